"""What is asked of an environment from outside: its oracle's moves and plans, and how often it is solved.

A success rate by itself says little: RAGEN's published 0.5B rates are those of a random policy. `measure` gives the two
rows to compare it with. A seed gives the same episode here as in `ragen_trl.evaluate`: the same start state, the same
outcome seed, the same sampling seed.

The first functions call the method of `TextEnv` on the unwrapped environment and do not change it. All raise
`NoOracleError` if it lacks the method, and `gymnasium.error.ResetNeeded` before the first `reset`.
"""

import copy
import importlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator
from gymnasium.error import ResetNeeded

from ragen_envs.arguments import check_probability
from ragen_envs.errors import EnvError
from ragen_envs.text_env import NoOracleError, TextEnv, allowed_actions
from ragen_envs.turns import AgentTurns

TextGym = gymnasium.Env[str, str]
_Z = 1.959963984540054  # 97.5 % point of the normal distribution


def best_action(env: TextGym, actions_left: int) -> str:
    """The best next action, where so many may follow, this one included; see `TextEnv.best_action`.

    `NoOracleError` if there is none; `sokoban.rooms.RoomError` if a Sokoban room is too large for the solver.
    """
    return str(_method(env, "best_action")(actions_left))


def random_action(env: TextGym, rng: np.random.Generator) -> str:
    """A uniformly random valid action; `NoOracleError` if an environment of free text does not say how to draw one."""
    if isinstance(env, AgentTurns) and not isinstance(env.unwrapped, TextEnv) and env.actions:  # names from its caller
        return env.actions[rng.integers(len(env.actions))]
    return str(_method(env, "random_action")(rng))


def difficulty(env: TextGym) -> float:
    """How hard the present state is, as the environment counts (moves, numbers, calls); larger is harder.

    `NoOracleError` if it does not say; `webshop.remote.HiddenGoalError` if a shop's goal is on a server.
    """
    return float(_method(env, "difficulty")())


def explain(env: TextGym, actions: Sequence[str], rng: np.random.Generator | None = None) -> str:
    """One or two true sentences that lead to an answer, for `AgentTurns.format_reply`; see `TextEnv.explain`.

    The wording is drawn from `rng`; by default a state always gets the same words. `NoOracleError` if there are none.
    """
    return str(_method(env, "explain")(actions, np.random.default_rng(0) if rng is None else rng))


def plan(env: TextGym, actions_left: int, length: int, rng: np.random.Generator, noise: float = 0.0) -> list[str]:
    """The next few actions: each the best one, or with probability `noise` a random one.

    They are chosen on a copy of the environment whose outcomes are drawn from `rng`, so no plan sees what will happen.

    Args:
        env: A `TextEnv` after `reset`, in any wrappers.
        actions_left: Number of actions that the episode still allows.
        length: The most actions to plan; there are fewer if the copy ends or `actions_left` is smaller.
        rng: Source of the imagined outcomes and the noise.
        noise: Probability, in [0, 1], that an action is uniformly random.

    Raises:
        ValueError: If `noise` is not a probability.
        NoOracleError: If it has no oracle, or is no `TextEnv`.
    """
    return _imagined(env, actions_left, length, rng, noise, of_its_own=False)


def demonstration(
    env: TextGym, actions_left: int, length: int, rng: np.random.Generator, noise: float = 0.0
) -> list[str]:
    """`plan`, with the noise that suits the environment: each action by its own `TextEnv.demonstrated_action`."""
    return _imagined(env, actions_left, length, rng, noise, of_its_own=True)


def _imagined(
    env: TextGym, actions_left: int, length: int, rng: np.random.Generator, noise: float, of_its_own: bool
) -> list[str]:
    """See `plan` and, with noise of the environment's own, `demonstration`."""
    check_probability("noise", noise)
    game: Any = env.unwrapped
    if not isinstance(game, TextEnv):
        raise NoOracleError("best_action", game)  # whose outcomes could not be drawn anew
    _method(game, "best_action")  # asks for a reset
    kind = type(game) if of_its_own else TextEnv  # whose method chooses
    # Actions change none of these, and copying them would take twelve times as long as the rest.
    shared = (game.observation_space, game.action_space, game.spec, game.np_random)
    memo: dict[int, Any] = {id(part): part for part in shared}
    memo[id(game.outcome_random)] = np.random.default_rng(rng.integers(2**63))
    imagined = copy.deepcopy(game, memo)
    actions: list[str] = []
    for left in range(actions_left, max(0, actions_left - length), -1):
        actions.append(kind.demonstrated_action(imagined, left, rng, noise))
        _, _, terminated, truncated, _ = imagined.step(actions[-1])
        if terminated or truncated:
            break
    return actions


def _method(env: gymnasium.Env[Any, Any], name: str) -> Any:
    """A method of the unwrapped environment, which was reset."""
    game = env.unwrapped
    if isinstance(game, TextEnv) and not hasattr(game, "outcome_random"):
        raise ResetNeeded(f"{name} was called before {type(game).__name__}.reset; call reset first")
    method = getattr(game, name, None)  # an environment that is no `TextEnv` may have it, too
    if method is None:
        raise NoOracleError(name, game)
    return method


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

    `EnvError` if the id does not exist (the message says which do), or does not take the arguments.
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
    """The most actions: `TextEnv.horizon`, else the registered time limit, else `otherwise`; `EnvError` if none."""
    own = env.unwrapped.horizon if isinstance(env.unwrapped, TextEnv) else None
    horizon = own or (env.spec and env.spec.max_episode_steps) or otherwise
    if horizon is None:
        name = env.spec.id if env.spec else str(env)
        raise EnvError(f"{name} has no time limit; say how many actions an episode may take: --max_actions 10")
    return horizon


def default_turns(env: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    """The limits of `AgentTurns`: `TextEnv.turn_limits`, else 5 turns of 5 actions, or what the horizon takes."""
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
    """An episode of the environment, as far as it was played.

    Attributes:
        random: The policy's source of chance.
        steps: Observation, reward, terminated, truncated and info; the first is of the reset, with reward 0.
        actions: The actions taken, one fewer than steps.
        left: Actions that it may still take, the next one included.
    """

    env: gymnasium.Env[Any, Any]
    random: np.random.Generator
    steps: list[tuple[Any, Any, Any, Any, dict[str, Any]]]
    actions: list[str] = field(default_factory=list)
    left: int = 0

    @classmethod
    def start(cls, env: gymnasium.Env[Any, Any], seed: int, options: Mapping[str, Any] | None = None) -> "Episode":
        """Starts the episode of a seed; the options of `reset` are by default the seed of its outcomes."""
        outcome_seed, sampling_seed = episode_seeds(seed)
        options = {"outcome_seed": outcome_seed} if options is None else options
        observation, info = env.reset(seed=seed, options=dict(options))
        return cls(env, np.random.default_rng(sampling_seed), [(observation, 0.0, False, False, info)])

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
        policy: A key of `POLICIES`.
        horizon: The most actions of an episode; None for `default_horizon`.
        episodes: Number of episodes, at least 1.
        env_kwargs: See ``env_id``.
        first_seed: Seed of the first episode. `ragen_trl` trains on no seed below 10,000, and evaluates on 0 to 7,999.

    Returns:
        The row, for JSON; all but ``seconds`` (of all episodes, by the wall clock) is the same in every process.
        ``success`` is the share of ``successes``, ``low`` and ``high`` its Wilson 95 % interval, ``mean_return`` the
        mean undiscounted return, ``return_stderr`` its standard error, ``mean_length`` the actions per episode.

    Raises:
        EnvError: If the environment cannot be made, or has no default horizon or no such policy.
    """
    began = time.perf_counter()
    env = make_named(env_id, env_kwargs or {})
    horizon = horizon or default_horizon(env)
    rows = []
    for seed in range(first_seed, first_seed + episodes):
        one = Episode.start(env, seed).play_policy(policy, horizon)
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


def wilson_interval(successes: float, n: float) -> tuple[float, float]:
    """Wilson score interval (95 %) of a proportion: its ends, in [0, 1].

    Args:
        successes: How many of the trials succeeded. It need not be whole.
        n: Number of trials, at least 1. It may be an effective number, not whole.

    Raises:
        ValueError: If there is no trial, or more successes than trials.

    Example:
        >>> low, high = wilson_interval(51, 256)
        >>> round(low, 3), round(high, 3)
        (0.155, 0.252)
    """
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"{successes} successes in {n} episodes")
    share = successes / n
    centre = share + _Z**2 / (2 * n)
    spread = _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    scale = 1 + _Z**2 / n
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
