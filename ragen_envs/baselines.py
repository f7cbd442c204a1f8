"""Baselines: how often the random policy and the oracle succeed, with intervals, in as many actions as a game has.

A success rate by itself says little: RAGEN's published 0.5B rates are those of a random policy. These are the two rows
to compare it with. A seed gives the same episode here as in `ragen_trl.evaluate`: the same start state, the same
outcome seed, the same sampling seed.
"""

import importlib
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator

from ragen_envs.errors import EnvError
from ragen_envs.oracles import TextGym, best_action, random_action
from ragen_envs.text_env import TextEnv, allowed_actions

_Z = 1.959963984540054  # 97.5 % point of the normal distribution

POLICIES: Mapping[str, Callable[[TextGym, int, np.random.Generator], str]] = {
    "random": lambda env, actions_left, rng: random_action(env, rng),
    "oracle": lambda env, actions_left, rng: best_action(env, actions_left),
}
"""How each chooses the next action, from the environment, the number of actions left and a random generator."""


def environment_ids() -> list[str]:
    """The ids of this package, sorted."""
    return sorted(env_id for env_id in gymnasium.registry if env_id.startswith("ragen/"))


def make_named(env_id: str, env_kwargs: Mapping[str, Any]) -> gymnasium.Env[str, str]:
    """The environment of ``gymnasium.make`` without its checker, by any Gymnasium id, ``module:id`` included.

    Raises:
        EnvError: If the id does not exist (the message says which do), or does not take the arguments.
    """
    try:
        return gymnasium.make(env_id, disable_env_checker=True, **env_kwargs)
    except (ModuleNotFoundError, gymnasium.error.Error, AttributeError, TypeError, ValueError) as error:
        given = f" with --env_kwargs '{json.dumps(env_kwargs)}'" if env_kwargs else ""
        message = f"{env_id}{given} cannot be made: {str(error).rstrip('.')}"
        if env_id not in gymnasium.registry and ":" not in env_id:
            message += f"; known: {', '.join(environment_ids())}; for your own: module:{env_id}"
        raise EnvError(message) from error


def turn_limits(env_id: str) -> dict[str, int]:
    """`TextEnv.turn_limits` of a Gymnasium id (``module:id`` included); empty if there are none, or no such id."""
    module, _, name = env_id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        made_by: Any = gymnasium.spec(name).entry_point
        made_by = load_env_creator(made_by) if isinstance(made_by, str) else made_by
    except (gymnasium.error.Error, ImportError, AttributeError):
        return {}
    return dict(getattr(made_by, "turn_limits", None) or {})


def default_horizon(env: gymnasium.Env[Any, Any], otherwise: int | None = None) -> int:
    """The most actions of an episode: `TextEnv.horizon`, else the registered time limit, else `otherwise`.

    Raises:
        EnvError: If there is no number.
    """
    own = env.unwrapped.horizon if isinstance(env.unwrapped, TextEnv) else None
    horizon = own or (env.spec and env.spec.max_episode_steps) or otherwise
    if horizon is None:
        name = env.spec.id if env.spec else str(env)
        raise EnvError(f"{name} has no time limit; say how many actions an episode may take: --max_actions 10")
    return horizon


def default_turns(env: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    """The limits of `AgentTurns`: `TextEnv.turn_limits`, else turns of up to 5 actions.

    At most 5 of these, or as many as the default horizon, or 10, takes if that is more.
    """
    own = env.unwrapped.turn_limits if isinstance(env.unwrapped, TextEnv) else None
    if own is not None:
        return dict(own)
    most = default_horizon(env, 10)
    return {"max_turns": max(min(5, most), -(-most // 5)), "max_actions_per_turn": min(5, most), "max_actions": most}


def episode_seeds(seed: int) -> tuple[int, int]:
    """The seeds of outcomes and of sampling of an evaluated episode, which depend only on that of its start state."""
    outcome_seed, sampling_seed = np.random.SeedSequence((seed, 1)).generate_state(2).tolist()
    return outcome_seed, sampling_seed


@dataclass
class Episode:
    """An episode of the environment, as far as it was played; `random` is the policy's source of chance.

    Attributes:
        steps: Observation, reward, terminated, truncated and info; the first is of the reset, with reward 0.
        actions: The actions taken, one fewer than steps.
        left: Actions that it may still take, the next one included.
    """

    env: gymnasium.Env[Any, Any]
    random: np.random.Generator
    steps: list[tuple[Any, Any, Any, Any, dict[str, Any]]]
    actions: list[str] = field(default_factory=list)
    left: int = 0

    @property
    def total(self) -> float:
        """The undiscounted return."""
        return float(sum(step[1] for step in self.steps))

    @property
    def success(self) -> bool:
        """What the last info says."""
        return bool(self.steps[-1][4].get("success", False))

    @property
    def is_over(self) -> bool:
        """Whether the last step was terminated or truncated."""
        return bool(self.steps[-1][2] or self.steps[-1][3])

    def play(self, choose: Callable[["Episode"], str], most: int) -> "Episode":
        """Goes on to its end, or to so many actions in all; `choose` says the next one."""
        while len(self.actions) < most and not self.is_over:
            self.left = allowed_actions(self.env, most - len(self.actions))
            self.actions.append(choose(self))
            self.steps.append(self.env.step(self.actions[-1]))
        return self

    def play_policy(self, policy: str, most: int) -> "Episode":
        """The same with a key of `POLICIES`."""
        return self.play(lambda one: POLICIES[policy](one.env, one.left, one.random), most)


def start(env: gymnasium.Env[Any, Any], seed: int, options: Mapping[str, Any] | None = None) -> Episode:
    """Starts the episode of a seed; the options of `reset` are by default the seed of its outcomes."""
    outcome_seed, sampling_seed = episode_seeds(seed)
    options = {"outcome_seed": outcome_seed} if options is None else options
    observation, info = env.reset(seed=seed, options=dict(options))
    return Episode(env, np.random.default_rng(sampling_seed), [(observation, 0.0, False, False, info)])


def measure(
    env_id: str,
    policy: str,
    horizon: int | None = None,
    episodes: int = 2048,
    env_kwargs: Mapping[str, Any] | None = None,
    first_seed: int = 0,
) -> dict[str, Any]:
    """Plays one episode for each of the seeds ``first_seed``, ``first_seed + 1``, and so on.

    Args:
        env_id: A Gymnasium id with text observations and actions; ``env_kwargs`` are its keyword arguments.
        policy: A key of `POLICIES`: "random", uniform over the valid actions, or "oracle", the best action each time.
        horizon: The most actions of an episode; None for `default_horizon`.
        episodes: Number of episodes, at least 1.
        env_kwargs: See ``env_id``.
        first_seed: Seed of the first episode. `ragen_trl` trains on no seed below 10,000, and evaluates on 0 to 7,999.

    Returns:
        The row, for JSON; all but ``seconds`` (of all episodes, by the wall clock) is the same in every process.
        ``env``, ``env_kwargs``, ``policy``, ``horizon``, ``first_seed`` and ``n`` are what was played;
        ``successes`` how many succeeded, ``success`` their share, ``low`` and ``high`` its Wilson 95 % interval;
        ``mean_return`` the mean undiscounted return, ``return_stderr`` its standard error (0 for a single episode);
        ``mean_length`` the actions per episode.

    Raises:
        EnvError: If the environment cannot be made, or has no default horizon; a `NoOracleError` if it has no such
            policy.
    """
    began = time.perf_counter()
    env = make_named(env_id, env_kwargs or {})
    horizon = horizon or default_horizon(env)
    rows = []
    for seed in range(first_seed, first_seed + episodes):
        one = start(env, seed).play_policy(policy, horizon)
        rows.append((one.success, one.total, len(one.actions)))
    env.close()
    solved, returns, lengths = zip(*rows, strict=True)
    low, high = wilson_interval(sum(solved), episodes)
    return {
        "env": env_id,
        "env_kwargs": dict(env_kwargs or {}),
        "policy": policy,
        "horizon": horizon,
        "first_seed": first_seed,
        "n": episodes,
        "successes": sum(solved),
        "success": sum(solved) / episodes,
        "low": low,
        "high": high,
        "mean_return": float(np.mean(returns)),
        "return_stderr": float(np.std(returns, ddof=1) / math.sqrt(episodes)) if episodes > 1 else 0.0,
        "mean_length": float(np.mean(lengths)),
        "seconds": time.perf_counter() - began,
    }


def wilson_interval(successes: int, n: int) -> tuple[float, float]:
    """Wilson score interval (95 %) of a proportion: its ends, in [0, 1], for ``n`` trials, at least 1.

    Raises:
        ValueError: If there is no trial, or more successes than trials.

    Example:
        >>> low, high = wilson_interval(51, 256)
        >>> round(low, 3), round(high, 3)
        (0.155, 0.252)
    """
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"{successes} successes in {n} episodes")
    return wilson_score(successes / n, n)


def wilson_score(share: float, n: float) -> tuple[float, float]:
    """Wilson score interval (95 %) of a share of ``n`` trials, at least 1. It may be an effective number, not whole."""
    centre = share + _Z**2 / (2 * n)
    spread = _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    scale = 1 + _Z**2 / n
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
