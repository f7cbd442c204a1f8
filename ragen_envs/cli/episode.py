"""One short episode of an environment, to show what it is like: as messages to a model, or as a moving picture.

The oracle plays it, or the random policy where there is no oracle.
"""

import textwrap
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from ragen_envs.baselines import POLICIES, default_horizon, episode_seeds
from ragen_envs.cli.games import Replies, turns_of
from ragen_envs.oracles import NoOracleError, TextGym
from ragen_envs.text_env import TextEnv

Frame = NDArray[np.uint8]  # (height, width, 3), RGB

SEEDS = 10
ENOUGH = 3  # actions, so that something happens
LONGEST = 20  # actions, where nothing says how long an episode is
MESSAGE, WIDTH = 1600, 86  # characters of a message, and of a line of it


def policy_of(env: TextGym) -> str | None:
    """The policy that shows the environment, a key of `POLICIES`; None if there is none."""
    env.reset(seed=0)
    for name in ("oracle", "random"):
        try:
            POLICIES[name](env, default_horizon(env.spec, LONGEST), np.random.default_rng(0))
        except NoOracleError:
            continue
        return name
    return None


def play_through(env: TextGym, policy: str, seed: int) -> tuple[list[str], bool]:
    """Plays an episode. Returns its actions, and whether it succeeded."""
    actions: list[str] = []
    success = False
    for action, info in _steps(env, policy, seed):
        actions.append(action)
        success = bool(info.get("success", False))
    return actions, success


def seed_to_show(env: TextGym, policy: str) -> int:
    """The first of `SEEDS` seeds whose episode succeeds and is long enough; else the first that succeeds, or 0."""
    won = None
    for seed in range(SEEDS):
        actions, success = play_through(env, policy, seed)
        if success and len(actions) >= ENOUGH:
            return seed
        if success and won is None:
            won = seed
    return won or 0


def transcript(env: TextGym, name: str) -> str:
    """The messages that a model gets and the replies of the policy, which start with ``>``.

    Args:
        env: A made environment; the unwrapped one is a `TextEnv`.
        name: Its name in the first line.

    Returns:
        The text; only the first message if nothing can play the environment.
    """
    assert isinstance(env.unwrapped, TextEnv)
    policy = policy_of(env)
    seed = 0 if policy is None else seed_to_show(env, policy)
    length, limit = 1 if env.unwrapped.actions is None else 2, default_horizon(env.spec, LONGEST)
    turns = turns_of(env, max_turns=limit, max_actions_per_turn=length, max_actions=limit, think=True)
    game, rng = Replies(turns, name), np.random.default_rng(episode_seeds(seed)[1])
    shown = [_shortened(game.begin(seed))]
    while policy is not None and not game.is_over:
        reply = game.suggest(policy, rng)
        shown += [textwrap.indent(_shortened(reply), "> "), _shortened(game.take(reply))]
    return "\n\n".join(shown)


def frames(env: TextGym) -> list[Frame]:
    """The pictures of one episode.

    Args:
        env: An environment that was made with ``render_mode="rgb_array"``.

    Returns:
        One picture of the start and one after each action; only the first if nothing can play the environment.
    """
    policy = policy_of(env)
    seed = 0 if policy is None else seed_to_show(env, policy)
    env.reset(seed=seed, **_outcomes(env, seed))
    shown = [_picture(env)]
    if policy is not None:
        shown += [_picture(env) for _ in _steps(env, policy, seed)]
    return shown


def _steps(env: TextGym, policy: str, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each action of an episode and its info."""
    rng = np.random.default_rng(episode_seeds(seed)[1])
    env.reset(seed=seed, **_outcomes(env, seed))
    for left in range(default_horizon(env.spec, LONGEST), 0, -1):
        action = POLICIES[policy](env, left, rng)
        _, _, terminated, truncated, info = env.step(action)
        yield action, info
        if terminated or truncated:
            return


def _outcomes(env: TextGym, seed: int) -> dict[str, dict[str, int]]:
    """The option of `reset` that fixes the outcomes as in the baselines, where an environment has it."""
    return {"options": {"outcome_seed": episode_seeds(seed)[0]}} if isinstance(env.unwrapped, TextEnv) else {}


def _picture(env: gymnasium.Env[str, str]) -> Frame:
    return np.asarray(env.render(), dtype=np.uint8)


def _shortened(message: str) -> str:
    """A message with lines that can be read on a page; a long one is cut."""
    text = message if len(message) <= MESSAGE else f"{message[:MESSAGE].rstrip()} …"
    lines = [textwrap.wrap(line, WIDTH, break_on_hyphens=False) or [""] for line in text.splitlines()]
    return "\n".join(part for line in lines for part in line)
