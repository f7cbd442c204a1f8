"""Tasks over a local database that need two to six calls of tools, graded by the state that they reach."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ragen_envs.arguments import check_choice
from ragen_envs.calling.env import ToolEnv
from ragen_envs.calling.tool import Call, Tool, read_action
from ragen_envs.tools.agenda import Agenda
from ragen_envs.tools.domain import LENGTHS, Domain, spelled
from ragen_envs.tools.files import Files
from ragen_envs.tools.orders import Orders
from ragen_envs.tools.policies import best_call, random_call
from ragen_envs.tools.thoughts import call_thought

DOMAINS: Mapping[str, type[Domain]] = {"orders": Orders, "agenda": Agenda, "files": Files}
SPLITS: Mapping[str, tuple[tuple[str, ...], bool]] = {
    "train": (("orders", "agenda"), False),
    "unseen_tools": (("orders", "agenda"), True),
    "unseen_domain": (("files",), False),
}
"""For each split: its domains, and whether their tools have the second wording."""


class Tools(ToolEnv):
    """Carry out tasks in a database by calling tools.

    ## Description
    A shop's orders, a team's calendar, or a tree of files, which the seed fills. A task
    such as "Cancel the order of the mug by Anna." needs two to six calls, whose arguments (numbers of customers,
    orders, events, files) only earlier results tell. What counts is the state of the database, not the calls.

    Tools are held out as in ToolBench (arXiv 2307.16789): `split="train"` plays orders and the calendar;
    `"unseen_tools"` plays the same domains with tools that have other names, arguments and descriptions;
    `"unseen_domain"` plays the tree of files.

    ## Action Space
    AnyText: a call as JSON, ``{"name": "find_customer", "arguments": {"name": "Anna"}}``, or ``{"answer": "Done."}``,
    which gives up. A call with an unknown tool or wrong arguments is an invalid action. `ToolTurns` lets a model call
    tools in the form of its chat template.

    ## Observation Space
    AnyText: the task; after a call its result, or ``Error:`` and what was wrong.

    ## Starting State
    A uniformly random domain of the split, random rows, and a random task that needs a uniformly random one of `calls`.

    ## Rewards
    1 when the database has reached the state that the task describes. 0 otherwise.

    ## Episode End
    Terminated when the state is reached, and by an answer. A wrong change can be undone by other calls, if there are
    any; nothing else ends an episode.

    ## Information
    `success`: the state is reached. `action_is_valid`: a tool was called, or an answer was given.
    `action_is_effective`: the same, and the tool did not fail. `tool`: the name of the called tool, or "".
    `tool_failed`: the tool could not do what it was asked.

    ## Arguments
    See `__init__`.

    ## Version History
    v0: first version.

    ## Source
    The splits follow ToolBench (arXiv 2307.16789). Tasks and tools were written for this package, under Apache-2.0.
    """

    horizon = 10
    turn_limits: ClassVar[Mapping[str, int] | None] = {"max_turns": 10, "max_actions_per_turn": 5, "max_actions": 10}

    def __init__(
        self,
        split: str = "train",
        calls: int | Sequence[int] = LENGTHS,
        domains: Sequence[str] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Sets the kind of task; `reset` draws one.

        Args:
            split: "train", "unseen_tools" or "unseen_domain".
            calls: How many calls a task needs, from 2 to 6; several numbers are equally likely.
            domains: Some of the split's domains, "orders", "agenda" or "files"; None for all of them.
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ValueError: If an argument is out of its range.
        """
        check_choice("split", split, SPLITS)
        known, self._other = SPLITS[split]
        self._lengths = tuple(calls) if isinstance(calls, Sequence) else (calls,)
        if not self._lengths or not set(self._lengths) <= set(LENGTHS):
            raise ValueError(f"calls={calls!r} must be one or more integers from {LENGTHS[0]} to {LENGTHS[-1]}")
        self._kinds = known if domains is None else tuple(domains)
        if isinstance(domains, str) or not self._kinds or not set(self._kinds) <= set(known):
            names = ", ".join(known)
            raise ValueError(f"domains={domains!r} must be a list of one or more of {names}, those of split={split!r}")
        super().__init__(render_mode=render_mode, max_result_length=1000)
        # Before the first reset it only describes its tools.
        self._domain = DOMAINS[self._kinds[0]](np.random.default_rng(0))

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools of this episode's domain, in the wording of the split."""
        return self._domain.tools(self._other)

    @property
    def purpose(self) -> str:
        """What the domain is about."""
        return self._domain.purpose

    @property
    def domain(self) -> Domain:
        """The tables and the tools of this episode."""
        return self._domain

    @property
    def way(self) -> tuple[Call, ...]:
        """The calls of a shortest way that were not made yet, in the wording of the split. Exists after `reset`."""
        return tuple(spelled(made, self._other) for made in self._needed)

    @property
    def lookups(self) -> tuple[str, ...]:
        """Names of the tools that change nothing."""
        return tuple(spelled(Call(name, {}), self._other).name for name in self._domain.lookups)

    def random_call(self, rng: np.random.Generator) -> Call:
        """A uniformly random tool with random arguments of the right kind."""
        tool = Tool.of(self._domain.functions[rng.integers(len(self._domain.functions))])
        choices = {argument: self._domain.values(argument) for argument in tool.parameters["properties"]}
        arguments = {argument: values[int(rng.integers(len(values)))] for argument, values in choices.items()}
        return spelled(Call(tool.name, arguments), self._other)

    def best_action(self, actions_left: int) -> str:
        """See `policies.best_call`."""
        return best_call(self, actions_left)

    def random_action(self, rng: np.random.Generator) -> str:
        """See `policies.random_call`."""
        return random_call(self, rng)

    def explain(self, actions: Sequence[str], rng: np.random.Generator) -> str:
        """See `thoughts.call_thought`."""
        return call_thought(self, actions, rng)

    def difficulty(self) -> float:
        """Calls that the shortest way still needs."""
        return float(len(self.way))

    def _start(self, options: Mapping[str, Any]) -> str:
        kind = self._kinds[self.np_random.integers(len(self._kinds))]
        length = self._lengths[self.np_random.integers(len(self._lengths))]
        self._domain = DOMAINS[kind](self.np_random)
        wanted = self._domain.draw(self.np_random, length)
        self._needed, self._goal = list(wanted.calls), self._reached_by(wanted.calls)
        return wanted.text

    def _reached_by(self, calls: Sequence[Call]) -> tuple[Any, ...]:
        """The state after calls, which are carried out on a copy."""
        imagined = copy.deepcopy(self._domain)
        for made in calls:
            imagined.carry_out(made)
        return imagined.state()

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        made = read_action(action)
        # Also if it fails: what a wrong change has spoilt is not tried again.
        self._needed = [one for one, said in zip(self._needed, self.way, strict=True) if said != made]
        return super()._act(action)

    def _judge(self) -> tuple[float, bool]:
        done = self._domain.state() == self._goal
        return float(done), done
