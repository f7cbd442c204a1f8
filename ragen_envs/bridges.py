"""The environments under other interfaces: TRL's tool environments, OpenEnv servers, GEM.

With TRL's own `GRPOTrainer`, where the model plays by tool calls (a dataset row is one start state):

    rows = {"prompt": [[{"role": "user", "content": ""}]] * 512, "seed": range(10_000, 10_512)}
    factory = trl_environment("ragen/FrozenLake-v0")
    GRPOTrainer(model, train_dataset=Dataset.from_dict(rows), environment_factory=factory).train()

As an OpenEnv server. A client sends whole replies and reads user messages, as in `AgentTurns`:

    from openenv.core.env_server import create_app
    app = create_app(*openenv_environment("ragen/FrozenLake-v0"), max_concurrent_envs=64)
    uvicorn.run(app)

With GEM's vectors and wrappers, also as in `AgentTurns`:

    gem.register("ragen:FrozenLake", GemEnvironment, env="ragen/FrozenLake-v0")
    envs = gem.make_vec(["ragen:FrozenLake"] * 8)
    messages, infos = envs.reset(seed=0)

Only OpenEnv is ever imported, and only when it is needed. Left out: their environments in this package. One with text
observations and actions works in `AgentTurns` as it is.
"""

import copy
import functools
import os
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from ragen_envs.arguments import check_limit
from ragen_envs.baselines import HORIZONS
from ragen_envs.oracles import random_action
from ragen_envs.text_env import TextEnv
from ragen_envs.turns import AgentTurns

Maker = Callable[[], gymnasium.Env[str, str]]


def _made(env: str | Maker) -> gymnasium.Env[str, str]:
    if isinstance(env, gymnasium.Env):
        raise ValueError(f"{env} is a single environment; pass its id, or a function that makes a new one each time")
    return gymnasium.make(env) if isinstance(env, str) else env()


def _turns(env: str | Maker) -> AgentTurns:
    """The environment with RAGEN's limits, unless `env` makes an `AgentTurns` with its own."""
    made = _made(env)
    if isinstance(made, AgentTurns):
        return made
    most = _horizon(made)
    return AgentTurns(made, max_turns=min(5, most), max_actions_per_turn=min(5, most), max_actions=most)


def _horizon(env: gymnasium.Env[str, str]) -> int:
    """RAGEN's number of actions for its environments, else 10."""
    return 10 if env.spec is None else HORIZONS.get(env.spec.id, 10)


class ToolEnvironment:
    """An environment that TRL plays: `act` is the tool, the trainer calls the rest.

    TRL shows the model every public method except `reset` and `get_reward`, with the docstring as its description.
    The model ends an episode by calling no more tools, so that doing nothing earns 0. If every action costs something,
    also give the trainer a reward function; it gets these objects in its argument `environments`.

    Attributes:
        success: Whether the task is solved.
        episode_return: Sum of the rewards so far.
        actions_left: Number of valid actions that the episode still allows.
    """

    def __init__(self, env: str | Maker, max_actions: int | None, outcome_seeds: np.random.SeedSequence) -> None:
        """Makes the environment; call `trl_environment` to get one."""
        made = _made(env)
        if isinstance(made, AgentTurns) or not isinstance(made.unwrapped, TextEnv):
            raise ValueError(f"{made} must be a TextEnv without AgentTurns; tool calls replace replies")
        self._env, self._game = made, made.unwrapped
        self._max_actions = max_actions or _horizon(made)
        self._outcome_random = np.random.default_rng(outcome_seeds.spawn(1)[0])
        self._over = True
        self.success, self.episode_return, self.actions_left = False, 0.0, 0

    def reset(self, *, seed: int | None = None, **row: Any) -> str:
        """Starts an episode with a new outcome seed.

        Args:
            seed: The row's start state, which a group shares.
            row: The other columns of the dataset, which TRL also passes; not used.

        Returns:
            The task and the start state; TRL appends them to the prompt's last message.

        Raises:
            ValueError: If the row has no seed.
        """
        if seed is None:
            raise ValueError(f"the row {sorted(row)} has no seed; give the dataset a column 'seed' of start states")
        if isinstance(seed, bool) or seed != int(seed):
            raise ValueError(f"seed={seed!r} must be an integer; correct the dataset's column 'seed'")
        seed = int(seed)  # a data set may have NumPy's integers
        options = {"outcome_seed": int(self._outcome_random.integers(2**63))}
        observation, _ = self._env.reset(seed=seed, options=options)
        self._over = self.success = False
        self.episode_return, self.actions_left = 0.0, self._max_actions
        names = [f"Actions: {', '.join(self._game.actions)}"] if self._game.actions else []
        how = "Call the tool act with one action at a time."
        lines = [self._game.instruction, *names, how, "State:", observation, f"Actions left: {self.actions_left}"]
        return "\n".join(lines)

    def act(self, action: str) -> str:
        """Carry out one action of the game and see what comes of it.

        Args:
            action: The action, as the task describes it.

        Returns:
            The reward and the new state, or what was wrong.
        """
        if self._over:
            return "The game is over. Call no more tools."
        observation, reward, terminated, truncated, info = self._env.step(str(action))
        if not info["action_is_valid"]:
            names = self._game.actions
            return f"Unknown action ignored. Use: {', '.join(names)}" if names else "Unknown action ignored."
        self.actions_left -= 1
        self.episode_return += float(reward)
        self.success = bool(info["success"])
        self._over = terminated or truncated or self.actions_left == 0
        ending = ["The game is over. Call no more tools."] if self._over else [f"Actions left: {self.actions_left}"]
        return "\n".join([f"Reward: {reward:g}", "State:", observation, *ending])

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
        env: Id of a `TextEnv`, or a function that makes one:
            ``functools.partial(gymnasium.make, "ragen/FrozenLake-v0", is_slippery=False)``.
        max_actions: Valid actions per episode, at least 1; None for RAGEN's number, or 10 where RAGEN has none.
        outcome_seed: Fixes the outcomes of all episodes.

    Raises:
        ValueError: If `max_actions` is below 1; when the factory is called, if `env` does not make a `TextEnv`.
        gymnasium.error.Error: If the id is unknown.
    """
    check_limit("max_actions", max_actions)
    if isinstance(env, str):
        gymnasium.spec(env)  # an unknown id fails here, not in the trainer
    # A group may be spread over processes: each has the rank that torchrun and accelerate give it.
    outcome_seeds = np.random.SeedSequence((outcome_seed, int(os.environ.get("RANK", "0"))))
    return functools.partial(ToolEnvironment, env, max_actions, outcome_seeds)


def openenv_environment(env: str | Maker) -> tuple[type[Any], type[Any], type[Any]]:
    """Makes the first arguments of OpenEnv's `create_app`: the classes of environment, actions and observations.

    An action's `text` is a model's whole reply. An observation has the next user message as `text`, and `reward`,
    `done`, `success` and `truncated`. ``reset(seed=…, outcome_seed=…)`` works as everywhere here. Each session has its
    own environment; OpenEnv keeps sessions by WebSocket, not by plain requests.

    Args:
        env: A Gymnasium id, or a function that makes a text environment, or an `AgentTurns` with its limits.

    Raises:
        ImportError: Without ``pip install openenv-core``.
    """
    action_type, observation_type = _openenv_messages()
    from openenv.core import env_server  # type: ignore[import-not-found, unused-ignore]

    class Turns(env_server.Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self._turns = _turns(env)
            self._state = env_server.State()

        def reset(self, seed: int | None = None, episode_id: str | None = None, outcome_seed: int | None = None) -> Any:
            options = None if outcome_seed is None else {"outcome_seed": outcome_seed}
            message, info = self._turns.reset(seed=seed, options=options)
            self._state = env_server.State(episode_id=episode_id, step_count=0)
            return observation_type(text=message, success=info["success"])

        def step(self, action: Any, timeout_s: float | None = None) -> Any:
            message, reward, terminated, truncated, info = self._turns.step(action.text)
            self._state.step_count += 1
            return observation_type(
                text=message,
                reward=reward,
                done=bool(terminated or truncated),
                success=info["success"],
                truncated=bool(truncated),
            )

        @property
        def state(self) -> Any:
            return self._state

        def close(self) -> None:
            self._turns.close()

    return Turns, action_type, observation_type


def _openenv_messages() -> tuple[type[Any], type[Any]]:
    """The classes of actions and observations, which are Pydantic models."""
    try:
        from openenv.core import env_server  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise ImportError("OpenEnv is not installed; pip install openenv-core") from error

    class TextAction(env_server.Action):
        text: str

    class TextObservation(env_server.Observation):
        text: str
        success: bool
        truncated: bool = False

    return TextAction, TextObservation


class GemEnvironment:
    """A text environment in turns with the methods of GEM's `Env`: `reset`, `step`, `sample_random_action`, `spawn`.

    GEM needs these methods and no base class, so that nothing of it is imported here. Messages, replies, reward,
    terminated, truncated and info are those of `AgentTurns`.

    Args:
        env: A Gymnasium id, or a function that makes a text environment, or an `AgentTurns` with its limits.
        seed: Seed of the first reset that is called without one; `gem.make_vec` passes a different one to each.
    """

    def __init__(self, env: str | Maker, seed: int | None = None) -> None:
        """Makes the environment; the arguments are described in the class docstring."""
        self._env, self._seed = env, seed
        self._turns = _turns(env)
        self._random = np.random.default_rng(seed)  # only for random actions

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Starts an episode; returns the first user message and the info of `AgentTurns`."""
        seed, self._seed = self._seed if seed is None else seed, None
        return self._turns.reset(seed=seed)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes one reply, any string, as `AgentTurns.step` does."""
        return self._turns.step(action)

    def sample_random_action(self) -> str:
        """A well-formed reply with one random action."""
        return self._turns.format_reply([random_action(self._turns, self._random)])

    def spawn(self, same_state: bool = False, seed: int | None = None) -> "GemEnvironment":
        """A copy in the same state, or a new environment that is made the same way."""
        return copy.deepcopy(self) if same_state else GemEnvironment(self._env, seed)

    @property
    def unwrapped(self) -> "GemEnvironment":
        """This object: for GEM, it is not a wrapper."""
        return self
