"""Tasks over a local database that need two to six calls of tools, graded by the state that they reach."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ragen_envs.arguments import check_choice
from ragen_envs.calling.env import ToolEnv
from ragen_envs.calling.tool import Call, Tool, read_action, write_answer, write_call
from ragen_envs.tools.domains import LENGTHS, Agenda, Domain, Files, Orders
from ragen_envs.wording import TRIALS, phrases, pick

SPLITS: Mapping[str, tuple[tuple[type[Domain], ...], bool]] = {
    "train": ((Orders, Agenda), False),
    "unseen_tools": ((Orders, Agenda), True),
    "unseen_domain": ((Files,), False),
}
"""For each split: its domains, and whether their tools have the second wording."""
_THOUGHTS = phrases(__file__)


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

    ## Version History
    v0: first version.

    ## Source
    The splits follow ToolBench (arXiv 2307.16789). Tasks and tools were written for this package, under Apache-2.0.
    """

    horizon = 10
    plain_arguments = ("split",)
    turn_limits: ClassVar[Mapping[str, int] | None] = {"max_turns": 10, "max_actions_per_turn": 5, "max_actions": 10}

    def __init__(
        self, split: str = "train", calls: int | Sequence[int] = LENGTHS, render_mode: str | None = None
    ) -> None:
        """Sets the kind of task; `reset` draws one.

        Args:
            split: "train", "unseen_tools" or "unseen_domain".
            calls: How many calls a task needs, from 2 to 6; several numbers are equally likely.
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ValueError: If an argument is out of its range.
        """
        check_choice("split", split, SPLITS)
        self._kinds, self._other = SPLITS[split]
        self._lengths = tuple(calls) if isinstance(calls, Sequence) else (calls,)
        if not self._lengths or not set(self._lengths) <= set(LENGTHS):
            raise ValueError(f"calls={calls!r} must be one or more integers from {LENGTHS[0]} to {LENGTHS[-1]}")
        super().__init__(render_mode=render_mode, max_result_length=1000)
        # Before the first reset it only describes its tools.
        self.domain = self._kinds[0](np.random.default_rng(0))

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools of this episode's domain, in the wording of the split."""
        return self.domain.tools(self._other)

    @property
    def purpose(self) -> str:
        """What the domain is about."""
        return str(self.domain.words["purpose"])

    @property
    def way(self) -> tuple[Call, ...]:
        """The calls of a shortest way that were not made yet, in the wording of the split. Exists after `reset`."""
        return tuple(self.domain.spelled(made, self._other) for made in self._needed)

    def best_action(self, actions_left: int) -> str:
        """The next call of a shortest way. Nothing that it gives was not said before; it never guesses.

        After wrong changes the way may lead nowhere. At its end the oracle then gives up with an answer.
        """
        way = self.way
        return write_call(way[0].name, way[0].arguments) if way else write_answer("It cannot be done any more.")

    def random_action(self, rng: np.random.Generator) -> str:
        """A uniformly random tool, with arguments that are uniformly random among those of its kind in the database."""
        tools = self.domain.tools(other=False)
        tool = tools[rng.integers(len(tools))]
        choices = {argument: self.domain.values(argument) for argument in tool.parameters["properties"]}
        arguments = {argument: found[int(rng.integers(len(found)))] for argument, found in choices.items()}
        made = self.domain.spelled(Call(tool.name, arguments), self._other)
        return write_call(made.name, made.arguments)

    def explain(self, actions: Sequence[str], rng: np.random.Generator) -> str:
        """One or two sentences that end with the name of the first call's tool; see `TextEnv.explain`."""
        made = read_action(actions[0])
        if made is None or isinstance(made, str):
            return pick(rng, *_THOUGHTS["nothing"])
        if made not in self.way:
            return f"The task is not done yet{pick(rng, *TRIALS)} {made.name}."
        changes = self.domain.changes(self._needed[self.way.index(made)].name)
        about = " and ".join(str(value) for value in made.arguments.values()) or "nothing"
        last = "This is the last step" if len(self.way) == 1 else "Now I know enough for a change"
        return pick(rng, *_THOUGHTS["change" if changes else "lookup"]).format(about=about, tool=made.name, last=last)

    def difficulty(self) -> float:
        """Calls that the shortest way still needs."""
        return float(len(self._needed))

    def _start(self, options: Mapping[str, Any]) -> str:
        kind = self._kinds[self.np_random.integers(len(self._kinds))]
        length = self._lengths[self.np_random.integers(len(self._lengths))]
        self.domain = kind(self.np_random)
        text, calls = self.domain.draw(self.np_random, length)
        imagined = copy.deepcopy(self.domain)
        for made in calls:
            imagined.carry_out(made)
        self._needed, self._goal = list(calls), imagined.state()
        return text

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        made = read_action(action)
        # Also if it fails: what a wrong change has spoilt is not tried again.
        self._needed = [one for one, said in zip(self._needed, self.way, strict=True) if said != made]
        return super()._act(action)

    def _judge(self) -> tuple[float, bool]:
        done = self.domain.state() == self._goal
        return float(done), done
