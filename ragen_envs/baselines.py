"""Baselines: how often the random policy and the oracle succeed, with intervals and the origin of the numbers.

A success rate by itself says little: RAGEN's published 0.5B rates are those of a random policy. These are the two rows
to compare it with. A seed gives the same episode here as in `ragen_trl.evaluate`: the same start state, the same
outcome seed, the same sampling seed.
"""

import json
import math
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator

from ragen_envs.arguments import check_choice, check_integer, check_limit
from ragen_envs.checkout import commit_of
from ragen_envs.oracles import TextGym, best_action, random_action
from ragen_envs.sokoban.env import LEVEL_STEPS, Sokoban
from ragen_envs.text_env import allowed_actions

_Z = 1.959963984540054  # 97.5 % point of the normal distribution
_PACKAGES = ("ragen-trl", "gymnasium", "numpy")

HORIZONS = {
    "ragen/Bandit-v0": 1,
    "ragen/BanditRev-v0": 1,
    "ragen/Countdown-v0": 1,
    "ragen/FrozenLake-v0": 10,
    "ragen/Sokoban-v0": 10,
    "ragen/SokobanLarge-v0": 10,
    "ragen/TextWorld-v0": 20,
    "ragen/Tools-v0": 10,
    "ragen/ToyShop-v0": 5,
    "ragen/WebShop-v0": 15,
}
"""Actions of an episode in RAGEN (``max_actions_per_traj`` of its configurations); of the shops and tools, their
defaults; of TextWorld, our own."""

_ONE_SHOT = {"max_turns": 1, "max_actions_per_turn": 1, "max_actions": 1}

TURN_LIMITS: Mapping[str, dict[str, Any]] = {
    "ragen/Bandit-v0": {**_ONE_SHOT},
    "ragen/BanditRev-v0": {**_ONE_SHOT},
    "ragen/Countdown-v0": {**_ONE_SHOT},
    "ragen/TextWorld-v0": {"max_turns": 20, "max_actions_per_turn": 1, "max_actions": 20},
    "ragen/Tools-v0": {"max_turns": 10, "max_actions_per_turn": 5, "max_actions": 10},
    "ragen/ToyShop-v0": {"max_turns": 5, "max_actions_per_turn": 1, "max_actions": 5},
    "ragen/WebShop-v0": {"max_turns": 9, "max_actions_per_turn": 1, "max_actions": 9},
}
"""Limits of a model's turns where they are not 5 turns of 5 actions, 10 in all, which is RAGEN's own. Bandits,
Countdown and WebShop have RAGEN's (its config/envs.yaml and config/_6_webshop.yaml), ToyShop those of its report. Tools
and TextWorld have ours: 20 commands are five times what TextWorld's default quests need."""

Policy = Callable[[TextGym, int, np.random.Generator], str]
"""Chooses the next action from the environment, the number of actions left and the episode's random generator."""

POLICIES: Mapping[str, Policy] = {
    "random": lambda env, actions_left, rng: random_action(env, rng),
    "oracle": lambda env, actions_left, rng: best_action(env, actions_left),
}


@dataclass(frozen=True)
class Baseline:
    """The results of ``n`` episodes of one policy.

    Attributes:
        env: Gymnasium id, as given.
        env_kwargs: Keyword arguments of the environment.
        policy: A key of `POLICIES`.
        horizon: The most actions of an episode.
        first_seed: The first of the ``n`` seeds, which are consecutive.
        n: Number of episodes.
        successes: How many succeeded.
        success: Their share; ``low`` and ``high`` are its Wilson 95 % interval.
        low: Lower end of the interval.
        high: Upper end of the interval.
        mean_return: Mean undiscounted return; ``return_stderr`` is its standard error.
        return_stderr: Standard error of ``mean_return``, 0 for a single episode.
        mean_length: Actions per episode.
        seconds: Wall-clock time of all episodes.
    """

    env: str
    env_kwargs: dict[str, Any]
    policy: str
    horizon: int
    first_seed: int
    n: int
    successes: int
    success: float
    low: float
    high: float
    mean_return: float
    return_stderr: float
    mean_length: float
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)


def wilson_interval(successes: int, n: int) -> tuple[float, float]:
    """Wilson score interval (95 %) of a proportion.

    Args:
        successes: How many of the ``n`` trials succeeded.
        n: Number of trials, at least 1.

    Returns:
        Lower and upper bound, in [0, 1].

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


def episode_seeds(seed: int) -> tuple[int, int]:
    """The other two seeds of an evaluated episode, which depend only on the seed of its start state.

    Args:
        seed: Seed of the start state.

    Returns:
        The outcome seed for ``reset(options=...)``, and the sampling seed for the policy.
    """
    outcome_seed, sampling_seed = np.random.SeedSequence((seed, 1)).generate_state(2).tolist()
    return outcome_seed, sampling_seed


def default_horizon(spec: EnvSpec | None, otherwise: int | None = None) -> int:
    """The most actions of an episode: RAGEN's number if it is in `HORIZONS`, else the registered time limit.

    RAGEN's number is for RAGEN's rooms: levels from a file get as many as Sokoban allows them.

    Args:
        spec: The specification of the environment; None if it was made without one.
        otherwise: The number where neither exists.

    Raises:
        ValueError: If there is no number.
    """
    if spec is not None and spec.kwargs.get("levels") is not None and _is_sokoban(spec):
        return LEVEL_STEPS
    horizon = None if spec is None else HORIZONS.get(spec.id, spec.max_episode_steps)
    horizon = otherwise if horizon is None else horizon
    if horizon is None:
        name = "the environment" if spec is None else spec.id
        raise ValueError(f"{name} has no time limit; say how many actions an episode may take (max_actions)")
    return horizon


def _is_sokoban(spec: EnvSpec) -> bool:
    """Whether an environment's argument `levels` is Sokoban's."""
    made_by = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
    return isinstance(made_by, type) and issubclass(made_by, Sokoban)


def default_turns(spec: EnvSpec | None) -> dict[str, Any]:
    """The limits of `AgentTurns`: those of `TURN_LIMITS`, else turns of up to 5 actions.

    At most 5 of these, or as many as the default horizon, or 10, takes if that is more.

    Args:
        spec: The specification of the environment; None if it was made without one.
    """
    if spec is not None and spec.id in TURN_LIMITS:
        return dict(TURN_LIMITS[spec.id])
    most = default_horizon(spec, 10)
    return {"max_turns": max(min(5, most), -(-most // 5)), "max_actions_per_turn": min(5, most), "max_actions": most}


def measure(
    env_id: str,
    policy: str,
    horizon: int | None = None,
    episodes: int = 2048,
    env_kwargs: Mapping[str, Any] | None = None,
    first_seed: int = 0,
) -> Baseline:
    """Plays one episode for each of the seeds ``first_seed``, ``first_seed + 1``, and so on.

    Args:
        env_id: A Gymnasium id with text observations and actions.
        policy: ``"random"``, uniform over the valid actions, or ``"oracle"``, the best action each time.
        horizon: The most actions of an episode; None for `default_horizon`.
        episodes: Number of episodes.
        env_kwargs: Keyword arguments of the environment.
        first_seed: Seed of the first episode. `ragen_trl` trains on no seed below 10,000, and evaluates on 0 to 7,999.

    Returns:
        The row. Everything in it except ``seconds`` is the same in every process.

    Raises:
        ValueError: If the policy is unknown, a number is out of its range, or there is no default horizon.
        NoOracleError: If the policy is not registered for the environment.
        gymnasium.error.Error: If the id is unknown.
    """
    check_choice("policy", policy, POLICIES)
    check_integer("episodes", episodes, 1, "leaves nothing to measure")
    check_limit("horizon", horizon)
    began = time.perf_counter()
    env = gymnasium.make(env_id, disable_env_checker=True, **(env_kwargs or {}))
    assert env.spec is not None  # gymnasium.make sets it
    horizon = default_horizon(env.spec) if horizon is None else horizon
    played = [_play(env, POLICIES[policy], seed, horizon) for seed in range(first_seed, first_seed + episodes)]
    env.close()
    return Baseline(
        env=env_id,
        env_kwargs=dict(env_kwargs or {}),
        policy=policy,
        horizon=horizon,
        first_seed=first_seed,
        **_summary(played),
        seconds=time.perf_counter() - began,
    )


def _summary(played: Sequence[tuple[bool, float, int]]) -> dict[str, Any]:
    """The numbers of a `Baseline`, from success, return and length of each episode."""
    solved, returns, lengths = zip(*played, strict=True)
    n, successes = len(played), sum(solved)
    low, high = wilson_interval(successes, n)
    return {
        "n": n,
        "successes": successes,
        "success": successes / n,
        "low": low,
        "high": high,
        "mean_return": float(np.mean(returns)),
        "return_stderr": float(np.std(returns, ddof=1) / math.sqrt(n)) if n > 1 else 0.0,
        "mean_length": float(np.mean(lengths)),
    }


def _play(env: TextGym, policy: Policy, seed: int, horizon: int) -> tuple[bool, float, int]:
    """Success, return and length of one episode."""
    outcome_seed, sampling_seed = episode_seeds(seed)
    _, info = env.reset(seed=seed, options={"outcome_seed": outcome_seed})
    rng = np.random.default_rng(sampling_seed)
    total = 0.0
    for taken in range(1, horizon + 1):
        left = allowed_actions(env, horizon - taken + 1)
        _, reward, terminated, truncated, info = env.step(policy(env, left, rng))
        total += float(reward)
        if terminated or truncated:
            break
    return bool(info.get("success", False)), total, taken


def write_results(path: Path, rows: Sequence[Baseline], command: str) -> None:
    """Writes rows as JSON, with command, commit, time, versions and seeds. A reader never sees half a file.

    A path that is not an ordinary file, such as ``/dev/stdout``, is written to directly.

    Args:
        path: The file; its folder is made if it is missing.
        rows: Results of `measure`.
        command: The command line that was run.

    Raises:
        OSError: If the file cannot be written.
    """
    results = {
        "command": command,
        "commit": commit_of(Path(__file__)),
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **_versions()},
        "rows": [row.as_dict() for row in rows],
    }
    text = json.dumps(results, indent=2) + "\n"
    path = path.resolve()  # a link stays a link
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # a rename may reach the disk before the text does
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue  # source code that was never installed
    return found
