"""τ²-bench's conversations as environments with tools: a model serves a user by a policy."""

import contextlib
import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ragen_envs.arguments import check_choice, check_integer
from ragen_envs.calling.env import Judgement, ToolEnv
from ragen_envs.calling.tool import Call, Tool, read_action, write_call

_PURPOSE = "Serve the user by the policy below. A reply without a call is said to the user. Call done when all is done."


class Tau2(ToolEnv):
    """A domain of τ²-bench: a user wants something, tools change a database, and the state that is reached counts.

    A call is carried out in the domain; words are said to the user, who answers. Words that τ²-bench would take for a
    call, such as ``done()``, get a full stop and stay words. The policy is the purpose that a model is shown.

    ## Starting State
    The seed draws one of `tasks`; the first observation is what the user says first. The user is a model and gets no
    seed, so episodes do not repeat. `outcome_seed` changes nothing.

    ## Rewards
    τ²-bench's own, at the end: 1 if all that the task checks is right, else 0. Some tasks are also checked by a model.

    ## Episode End
    Terminated when the user or the agent (`done`, or words with ``###STOP###``) ends the conversation, or after too
    many errors; truncated after `max_steps` messages.

    ## Information
    `success`: the reward is 1. `tool`, `tool_failed`: as in every `ToolEnv`. `env_info`: the number of the task
    (`task_id`) and, at the end, `termination_reason` and `reward_info`, as τ²-bench reports them.
    """

    idle_info: ClassVar[Mapping[str, Any]] = {"env_info": {}, **ToolEnv.idle_info}
    tools: Sequence[Tool] = ()
    purpose: str = ""

    def __init__(
        self,
        domain: str,
        *,
        user: str,
        user_arguments: Mapping[str, Any] | None = None,
        tasks: Sequence[str] | None = None,
        max_steps: int = 100,
        max_result_length: int = 4000,
        render_mode: str | None = None,
    ) -> None:
        """Chooses a domain; `reset` begins a conversation.

        Args:
            domain: "mock", "airline", "retail" or "telecom".
            user: The model that plays the user, as LiteLLM names it, such as "gpt-4.1".
            user_arguments: Arguments of LiteLLM for it.
            tasks: Names of tasks; None for all of the domain.
            max_steps: Messages of a conversation, including calls and their results, at least 1.
            max_result_length: Characters of a result or of an answer that are shown, at least 40.
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ImportError: Without τ²-bench.
            ValueError: If there is no such domain or task, or a number is out of its range.
        """
        check_integer("max_steps", max_steps, 1, "leaves nothing to play")
        super().__init__(max_result_length=max_result_length, render_mode=render_mode)
        try:
            from tau2.gym.gym_agent import AgentGymEnv  # type: ignore[import-not-found, unused-ignore]
            from tau2.registry import registry  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise ImportError("τ²-bench is not installed; pip install 'ragen-trl[tau2]'") from error
        check_choice("domain", domain, sorted({*registry.get_task_sets()} & {*registry.get_domains()}))
        known = [task.id for task in registry.get_tasks_loader(domain)()]
        for name in tasks or ():
            check_choice("tasks", name, known)
        self._names, self._domain = tuple(tasks or known), domain
        talk = {"max_steps": max_steps, "user_llm": user, "user_llm_args": dict(user_arguments or {})}
        self._make = functools.partial(AgentGymEnv, domain, **talk)
        self._game: Any = None
        self._facts: Mapping[str, Any] = {}
        self._over = True

    def close(self) -> None:
        """Ends the conversation, whose thread would wait forever."""
        if not self._over:
            self._over = True
            with contextlib.suppress(Exception):  # such as a judge that cannot be reached, for a reward nobody reads
                self._game.step(write_call("done", {}))

    def _start(self, options: Mapping[str, Any]) -> str:
        self.close()
        name = self._names[int(self.np_random.integers(len(self._names)))]
        self._game = self._make(name)
        seen, info = self._game.reset()
        self._facts = {"task_id": name, "termination_reason": "", "reward_info": {}}
        if not seen:
            raise self._failure("does not begin")
        self._over = False
        self.purpose = f"{_PURPOSE}\n\n{info['policy']}"
        functions = [tool.openai_schema["function"] for tool in info["tools"]]
        # None is run by itself: `_act` hands each call on.
        self.tools = [Tool(each["name"], each["description"], each["parameters"], self.step) for each in functions]
        return self._shown(_without_role(seen))

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        from tau2.utils.tools import parse_action_string  # type: ignore[import-not-found, unused-ignore]

        said = read_action(action)
        if isinstance(said, str):  # what τ²-bench reads as a call it would carry out, past the schemas of the tools
            action = f"{said.rstrip()}." if said.strip() and parse_action_string(said).tool_calls else said
        seen, reward, over, _, info = self._game.step(action)
        text = _without_role(seen)
        if over:
            self._over = True
            run = json.loads(info["simulation_run"])
            if not run:
                raise self._failure("breaks off")
            self._truncated = run["termination_reason"] == "max_steps"
            facts = {"termination_reason": run["termination_reason"], "reward_info": json.loads(info["reward_info"])}
            self._facts = {**self._facts, **facts}
        tool = said.name if isinstance(said, Call) else ""
        failed = bool(tool) and text.startswith("Error: ")
        told = {"action_is_effective": not failed, "tool": tool, "tool_failed": failed, "env_info": self._facts}
        told["success"] = bool(over) and reward >= 1
        shown = self._shown(text or "The conversation is over.")
        return shown, float(reward), bool(over) and not self._truncated, told

    def _idle(self) -> dict[str, Any]:
        return {**super()._idle(), "env_info": self._facts}

    def _judge(self) -> Judgement:
        raise AssertionError("τ²-bench judges")

    def _failure(self, what: str) -> RuntimeError:
        return RuntimeError(
            f"the conversation of {self._domain} {self._facts['task_id']} {what}; its log (loguru) says why; often "
            "the user's model cannot be reached, or needs a key"
        )


def _without_role(text: str) -> str:
    """A single message without the word before it; several keep theirs."""
    roles = re.compile("^(user|assistant|tool): ", re.MULTILINE)
    return roles.sub("", text) if len(roles.findall(text)) == 1 and roles.match(text) else text
