"""TRL's `environment_factory`, both ways: TRL's own `GRPOTrainer` plays ours by tool calls, our trainer plays TRL's.

A row of the dataset is one start state; docs/your_own_environment.md has a whole example.
"""

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from ragen_envs.arguments import check_limit
from ragen_envs.baselines import default_turns
from ragen_envs.calling.env import Judgement, ToolEnv
from ragen_envs.text_env import TextEnv, allowed_actions
from ragen_envs.turns import AgentTurns

Maker = Callable[[], gymnasium.Env[str, str]]
OVER = "The game is over. Call no more tools."


class ToolEnvironment:
    """An environment that TRL plays: `act` is the tool, the trainer calls the rest.

    TRL shows the model every public method except `reset` and `get_reward`, with the docstring as its description.
    The model ends an episode by calling no more tools, so doing nothing earns 0. If every action costs something, also
    give the trainer a reward function; it gets these objects in its argument `environments`.
    """

    def __init__(self, env: str | Maker, max_actions: int | None, outcome_seeds: np.random.SeedSequence) -> None:
        made = gymnasium.make(env) if isinstance(env, str) else env()
        if isinstance(made, AgentTurns) or not isinstance(made.unwrapped, TextEnv):
            raise ValueError(f"{made} must be a TextEnv without AgentTurns; tool calls replace replies")
        self._env, self._game = made, made.unwrapped
        self._max_actions = max_actions or default_turns(made)["max_actions"]
        self._outcome_random = np.random.default_rng(outcome_seeds.spawn(1)[0])
        self._over = True
        self.success, self.episode_return, self.actions_left = False, 0.0, 0

    def reset(self, *, seed: int | None = None, **row: Any) -> str:
        """Starts an episode with a new outcome seed; TRL appends what it returns to the prompt's last message.

        Args:
            seed: The row's start state, which a group shares; without one it is a `ValueError`.
            row: The other columns of the dataset, which TRL also passes; not used.
        """
        if seed is None:
            raise ValueError(f"the row {sorted(row)} has no seed; give the dataset a column 'seed' of start states")
        options = {"outcome_seed": int(self._outcome_random.integers(2**63))}
        observation, _ = self._env.reset(seed=int(seed), options=options)  # a data set may have NumPy's integers
        self._over = self.success = False
        self.episode_return, self.actions_left = 0.0, allowed_actions(self._env, self._max_actions)
        names = f"Actions: {', '.join(self._game.actions)}\n" if self._game.actions else ""
        how = f"{names}Call the tool act with one action at a time."
        return f"{self._game.instruction}\n{how}\nState:\n{observation}\nActions left: {self.actions_left}"

    def act(self, action: str) -> str:
        """Carry out one action of the game and see what comes of it.

        Args:
            action: The action, as the task describes it.

        Returns:
            The reward and the new state, or what was wrong.
        """
        if self._over:
            return OVER
        names = self._game.actions or ()
        if names and str(action).strip().casefold() not in map(str.casefold, names):
            # It is not passed on, so that it costs no step of a `TimeLimit`.
            return f"Unknown action ignored. Use: {', '.join(names)}"
        observation, reward, terminated, truncated, info = self._env.step(str(action))
        self.actions_left = allowed_actions(self._env, self.actions_left - bool(info["action_is_valid"]))
        self.episode_return += float(reward)
        self.success = bool(info["success"])
        self._over = terminated or truncated or self.actions_left == 0
        ending = OVER if self._over else f"Actions left: {self.actions_left}"
        if info["action_is_valid"]:
            return f"Reward: {reward:g}\nState:\n{observation}\n{ending}"
        return f"Unknown action ignored. {ending}" if self._over else "Unknown action ignored."

    def get_reward(self) -> float:
        """The return of the episode."""
        return self.episode_return


def trl_environment(
    env: str | Maker, max_actions: int | None = None, outcome_seed: int = 0
) -> Callable[[], ToolEnvironment]:
    """Makes the `environment_factory` for TRL's `GRPOTrainer` and `AsyncGRPOTrainer`.

    Start states come from the dataset's column `seed`, so that a group shares its start. Outcomes are drawn separately
    in every environment, episode and process.

    Args:
        env: Id of a `TextEnv`, or a function that makes one, such as
            ``functools.partial(gymnasium.make, "ragen/FrozenLake-v0", is_slippery=False)``.
        max_actions: Valid actions per episode, at least 1; None for RAGEN's number, else the registered
            time limit, else 10.
        outcome_seed: Fixes the outcomes of all episodes.

    Raises:
        ValueError: If `max_actions` is below 1; when the factory is called, if `env` does not make a `TextEnv`.
    """
    check_limit("max_actions", max_actions)
    # A group may be spread over processes: each has the rank that torchrun and accelerate give it.
    outcome_seeds = np.random.SeedSequence((outcome_seed, int(os.environ.get("RANK", "0"))))
    return functools.partial(ToolEnvironment, env, max_actions, outcome_seeds)


class TrlTask(ToolEnv):
    """An object that a class for TRL's `environment_factory` makes, as an environment: its methods are the tools.

    Its `reset` gets the columns of the row, as far as it names them or takes all, and `seed`. The task is the last
    message of the row's `prompt`, and what `reset` returns. After each call and the answer the change of `get_reward`,
    if there is one, is paid. Success is its attribute `success`, if it has one.
    """

    option_names = None  # any
    purpose = ""  # the row and `reset` say all
    tools: Sequence[Callable[..., Any]] = ()

    def __init__(self, made: Any) -> None:
        """Takes the object, which plays one episode at a time."""
        super().__init__()
        self._made, self._paid = made, 0.0
        names = [name for name, _ in inspect.getmembers(type(made), inspect.isfunction) if not name.startswith("_")]
        self.tools = [getattr(made, name) for name in names if name not in ("reset", "get_reward")]

    def _start(self, options: Mapping[str, Any]) -> str:
        row, named = {"seed": self._reset_seed, **options}, inspect.signature(self._made.reset).parameters
        if not any(each.kind is each.VAR_KEYWORD for each in named.values()):
            row = {name: value for name, value in row.items() if name in named}
        prompt, said, self._paid = options.get("prompt") or "", self._made.reset(**row), 0.0
        messages = [prompt] if isinstance(prompt, str) else [message["content"] for message in prompt]
        return "\n\n".join(filter(None, map(_text, messages))) + _text(said or "")

    def _judge(self) -> Judgement:
        found = self._made.get_reward() if hasattr(self._made, "get_reward") else 0.0
        total = float(asyncio.run(found) if inspect.iscoroutine(found) else found)
        paid, self._paid = total - self._paid, total
        return paid, False, {"success": bool(getattr(self._made, "success", False))}

    def _answered(self, text: str) -> Judgement:
        return self._judge()


def _text(content: Any) -> str:
    """The text of a message's content, which may come in blocks; only text plays."""
    return content if isinstance(content, str) else "".join(block["text"] for block in content)
