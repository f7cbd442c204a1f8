"""Verifiers (``pip install 'verifiers>=0.2,<0.3'``) both ways: its environments here, and these environments in it.

    turns = AgentTurns(VerifiersText(verifiers.load_environment("wordle")), max_actions_per_turn=1)
    turns = ToolTurns(VerifiersTools(verifiers.load_environment("wiki-search")))
    env = verifiers_environment("ragen/FrozenLake-v0", seeds=range(10_000, 10_512))

Verifiers runs whole rollouts and asks a client for each reply. The client here waits for the next `step`, so prompts,
stop conditions and rubrics stay Verifiers' own.
"""

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ragen_envs.arguments import check_choice
from ragen_envs.bridges.foreign import ForeignEnvError, ForeignText, ForeignTools, Reaction, Success
from ragen_envs.bridges.making import Maker, make_turns
from ragen_envs.bridges.verifiers_rollout import (
    Asked,
    Rollout,
    joined,
    latest,
    message_text,
    shared_loop,
    verifiers_package,
)
from ragen_envs.calling.tool import Call, read_action

SPLITS = ("train", "eval")
_LIMITS = ("max_turns_reached", "max_total_completion_tokens_reached", "prompt_too_long", "timeout_reached")


class VerifiersText(ForeignText):
    """An environment of verifiers without tools, such as a `SingleTurnEnv` or a `MultiTurnEnv`.

    ## Description
    The first observation is the prompt of a row of its data; later ones are what the environment says. Its system
    prompt is the instruction. A reply's text is what it gets as the assistant's message, through `write`.

    ## Starting State
    The seed draws a row. Verifiers takes no seeds: what it draws itself is neither fixed by `seed` nor by
    `outcome_seed`.

    ## Rewards
    The reward of its rubric, when a rollout is over; 0 before.

    ## Episode End
    Truncated by its limits (of turns, of tokens, of time), else terminated. The one turn of a `SingleTurnEnv` is no
    limit.

    ## Information
    `success`: the rubric's reward reaches the environment's `pass_threshold`. `env_info`: `example_id`, and at the end
    `stop_condition` and `metrics`.

    ## Arguments
    See `__init__`.
    """

    def __init__(
        self,
        env: Any,
        *,
        split: str = "train",
        write: Callable[[str], str] = str,
        instruction: str | None = None,
        success: Success | None = None,
        timeout: float = 600.0,
        max_observation_length: int = 8000,
        render_mode: str | None = None,
    ) -> None:
        """Takes an environment of verifiers, which may be shared.

        Args:
            env: The environment, as `verifiers.load_environment` returns it. Make it in the main thread: it sets
                handlers of signals.
            split: "train" or "eval": which of its data to draw from.
            write: Makes the assistant's message from an action: ``"<guess>{}</guess>".format`` for a parser of tags.
            instruction: The first lines that a model sees; None for the system prompt.
            success: Says whether the task is solved, from reward, end and info of a step.
            timeout: Seconds that the environment may take for an answer.
            max_observation_length: Characters of an observation that are shown, at least 40.
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ImportError: Without verifiers.
            ValueError: If `env` is none, has tools, or scores groups.
        """
        self._side = _Side(env, split, timeout)
        super().__init__(
            instruction=instruction or self._side.system_prompt or "Answer what the state asks.",
            success=success or self._side.passed,
            max_observation_length=max_observation_length,
            render_mode=render_mode,
        )
        self._write = write

    def close(self) -> None:
        """Ends the rollout."""
        self._side.leave()

    def _begin(self, seed: int, outcome_seed: int | None) -> Reaction:
        begun = self._side.begin(self.np_random, self._instruction)
        if self._side.tools:
            self.close()
            raise ValueError(f"{self._side.name} has tools; use VerifiersTools")
        return begun

    def _answer(self, action: str) -> Reaction:
        return self._side.answer(self._write(action), None)


class VerifiersTools(ForeignTools):
    """An environment of verifiers as a conversation: its tools are called, and words are the assistant's message.

    One without tools can be played too; a reply is then the assistant's message as it is.

    ## Description
    As in `VerifiersText`. Each call is an assistant's message of its own, so that several calls of one reply are
    several turns there. A call with wrong arguments does not reach it.

    ## Starting State, Rewards, Episode End
    As in `VerifiersText`.

    ## Information
    As in `VerifiersText`, and `tool` and `tool_failed`, which is always False: results do not say that they are errors.

    ## Arguments
    See `__init__`.
    """

    def __init__(
        self,
        env: Any,
        *,
        split: str = "train",
        purpose: str | None = None,
        success: Success | None = None,
        timeout: float = 600.0,
        max_result_length: int = 8000,
        render_mode: str | None = None,
    ) -> None:
        """Takes an environment of verifiers, which may be shared.

        Args:
            env: As in `VerifiersText`.
            split: "train" or "eval": which of its data to draw from.
            purpose: The first lines that a model sees; None for the system prompt.
            success: Says whether the task is solved, from reward, end and info of a step.
            timeout: Seconds that the environment may take for an answer.
            max_result_length: Characters of a result or of a message that are shown, at least 40.
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ImportError: Without verifiers.
            ValueError: If `env` is none, or scores groups.
        """
        self._side = _Side(env, split, timeout)
        super().__init__(
            purpose=purpose or self._side.system_prompt or "Carry out the task.",
            success=success or self._side.passed,
            max_result_length=max_result_length,
            render_mode=render_mode,
        )

    def close(self) -> None:
        """Ends the rollout."""
        self._side.leave()

    def _begin(self, seed: int, outcome_seed: int | None) -> Reaction:
        begun = self._side.begin(self.np_random, self._purpose)
        self._tools = tuple(self._described(tool.name, tool.description, tool.parameters) for tool in self._side.tools)
        return begun

    def _answer(self, action: str) -> Reaction:
        said = read_action(action)
        return self._side.answer(None, said) if isinstance(said, Call) else self._side.answer(said, None)


class _Side:
    """The other side: an environment of verifiers, its data, and the rollout of this episode."""

    def __init__(self, env: Any, split: str, timeout: float) -> None:
        vf = verifiers_package()
        check_choice("split", split, SPLITS)
        if not isinstance(env, vf.MultiTurnEnv):
            raise ValueError(f"env={env!r:.200} is no MultiTurnEnv; pass what verifiers.load_environment returns")
        if env.requires_group_rollouts:
            raise ValueError(f"{type(env).__name__} scores groups of rollouts together, which an environment cannot")
        self._env, self._timeout, self.name = env, timeout, type(env).__name__
        self._one_turn = isinstance(env, vf.SingleTurnEnv)
        self._data = env.get_dataset() if split == "train" else env.get_eval_dataset()
        self._rollout: Rollout | None = None
        self._facts: dict[str, Any] = {}
        self.system_prompt: str | None = env.system_prompt
        self.tools: Sequence[Any] = ()

    def passed(self, reward: float, over: bool, info: Mapping[str, Any]) -> bool:
        """Whether a reward reaches the environment's own threshold."""
        return over and reward >= self._env.pass_threshold

    def begin(self, rng: np.random.Generator, shown: str) -> Reaction:
        """Starts a rollout of a random row; a system prompt that is `shown` already is left out of the text."""
        self.leave()
        row = self._data[int(rng.integers(len(self._data)))]
        self._facts = {"example_id": row["example_id"], "stop_condition": "", "metrics": {}}
        self._rollout = Rollout(self._env, row, shared_loop(), self._timeout)
        asked = self._rollout.next()
        if not isinstance(asked, Asked):
            raise ForeignEnvError(f"{self.name} ends example {row['example_id']} before the first reply: {asked}")
        self.tools = asked.tools
        first = [m for m in asked.messages if not (m.role == "system" and message_text(m) == shown)]
        return Reaction(joined(first), info=self._facts)

    def answer(self, words: str | None, call: Call | None) -> Reaction:
        """Passes on words, or a call, and waits for what comes of it."""
        assert self._rollout is not None
        self._rollout.reply(words, call)
        said = self._rollout.next()
        if isinstance(said, Asked):
            return Reaction(joined(latest(said.messages)), info=self._facts)
        stop = str(said.get("stop_condition") or "")
        truncated = stop in _LIMITS and not (self._one_turn and stop == "max_turns_reached")
        self._facts = {**self._facts, "stop_condition": stop, "metrics": dict(said["metrics"] or {})}
        text = joined(latest(said["completion"] or [])) or "The episode is over."
        return Reaction(text, float(said["reward"] or 0.0), not truncated, truncated, self._facts)

    def leave(self) -> None:
        """Ends a rollout that is not over."""
        if self._rollout is not None:
            self._rollout.cancel()
            self._rollout = None


def verifiers_environment(
    env: str | Maker, seeds: Sequence[int], eval_seeds: Sequence[int] | None = None, outcome_seed: int = 0
) -> Any:
    """Makes a `verifiers.MultiTurnEnv` of an environment in turns.

    A row is a start state. Its prompt is the first user message of `AgentTurns`, later ones are its other messages, and
    the last is the final environment response. The rubric's reward is the episode's return; `success` is a metric. The
    turns' own rewards are in the steps' `extras` as `turn_reward`. Outcomes are drawn separately in every rollout.

    Args:
        env: A Gymnasium id, or a function that makes a text environment, or an `AgentTurns` with its limits.
        seeds: Seeds of the start states to train on.
        eval_seeds: Seeds of those to evaluate on; None for the same.
        outcome_seed: Fixes the outcomes of all rollouts, in the order in which they begin.

    Raises:
        ImportError: Without verifiers.
        ValueError: If there are no seeds.
    """
    vf = verifiers_package()
    if not len(seeds) or (eval_seeds is not None and not len(eval_seeds)):
        raise ValueError("there are no seeds; pass at least one, such as seeds=range(512)")

    async def episode_return(state: Any) -> float:
        return float(state.get("episode_return", 0.0))

    async def success(state: Any) -> float:
        return float(state.get("success", False))

    rubric = vf.Rubric(funcs=[episode_return])
    rubric.add_metric(success)
    data = _rows(env, seeds)
    kind = _turns_of(env, np.random.default_rng(outcome_seed))
    return kind(dataset=data, eval_dataset=data if eval_seeds is None else _rows(env, eval_seeds), rubric=rubric)


def _turns_of(env: str | Maker, outcomes: np.random.Generator) -> Any:
    """The class whose rollouts play in `AgentTurns`."""
    vf = verifiers_package()
    base: Any = vf.MultiTurnEnv

    class Turns(base):
        async def setup_state(self, state: Any) -> Any:
            turns = make_turns(env)
            options = {"outcome_seed": int(outcomes.integers(2**63))}
            turns.reset(seed=state["info"]["seed"], options=options)
            state.update(turns=turns, episode_return=0.0, success=False)
            return state

        async def env_response(self, messages: Any, state: Any, **more: Any) -> Any:
            step = functools.partial(state["turns"].step, message_text(messages[-1]))
            message, reward, terminated, truncated, info = await asyncio.to_thread(step)
            state["episode_return"] += float(reward)
            state["success"] = bool(info["success"])
            state["trajectory"][-1]["extras"]["turn_reward"] = float(reward)
            answer = [vf.UserMessage(role="user", content=message)]
            if terminated or truncated:
                state["final_env_response"] = answer
            return answer

        @vf.cleanup
        async def close_turns(self, state: Any) -> None:
            if "turns" in state:
                state.pop("turns").close()

    return Turns


def _rows(env: str | Maker, seeds: Sequence[int]) -> Any:
    """A data set of start states."""
    from datasets import Dataset  # type: ignore[import-not-found, unused-ignore]

    turns = make_turns(env)
    prompts = [[{"role": "user", "content": turns.reset(seed=int(seed))[0]}] for seed in seeds]
    turns.close()
    return Dataset.from_dict({"prompt": prompts, "info": [{"seed": int(seed)} for seed in seeds]})
