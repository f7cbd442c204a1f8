"""What every registered environment promises about randomness: one seed always gives the same episodes.

Run as a script, this file prints the courses of events of its process; see `test_other_processes_see_the_same`.
"""

import os
import random
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import data_equivalence

from ragen_envs import TextEnv
from ragen_envs.oracles import random_action
from tests.support.ragen_envs.registered import IDS, every_id, make

STOCHASTIC = {"ragen/Bandit-v0", "ragen/BanditRev-v0", "ragen/FrozenLake-v0"}
"""Ids whose outcomes are random. A new one must be named here, or its outcomes must not depend on a seed."""



def trace(env: TextEnv, seed: int, steps: int = 12, options: dict[str, Any] | None = None) -> list[Any]:
    """All results of an episode of random actions; they depend only on `seed`."""
    rng = np.random.default_rng(seed)
    seen: list[Any] = [env.reset(seed=seed, options=options)]
    for _ in range(steps):
        seen.append(env.step(random_action(env, rng)))
        if seen[-1][2] or seen[-1][3]:
            break
    return seen


def long_trace(env_id: str) -> list[Any]:
    """Episodes of one environment from one seed: random play, then on to the next start, as at an autoreset."""
    env = gymnasium.make(env_id, max_episode_steps=6)
    rng = np.random.default_rng(3)
    seen: list[Any] = [env.reset(seed=3)]
    for _ in range(40):
        seen.append(env.step(random_action(env, rng)))
        if seen[-1][2] or seen[-1][3]:
            seen.append(env.reset())
    return seen


@every_id
def test_twins_play_the_same_episode(env_id: str) -> None:
    for seed in range(5):
        assert data_equivalence(trace(make(env_id), seed), trace(make(env_id), seed), exact=True)


@every_id
def test_twins_play_on_alike_after_the_end(env_id: str) -> None:
    one, other = long_trace(env_id), long_trace(env_id)
    assert data_equivalence(one, other, exact=True)
    starts = [each[0] for each in one if len(each) == 2]
    assert len(starts) >= 7  # 40 steps, and a limit of 6
    assert len(set(starts)) > 1


def test_other_processes_see_the_same() -> None:
    """Strings hash differently in each process: a set of them, or hash(), must not decide anything."""
    here = repr([long_trace(env_id) for env_id in IDS])
    for_another = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "1234"}
    run = subprocess.run(
        [sys.executable, "-X", "utf8", __file__], env=for_another, capture_output=True, encoding="utf-8", check=True
    )
    there, hashed = run.stdout.splitlines()
    assert hashed != str(hash("ragen"))  # or the two processes hash alike, and this shows nothing
    assert there == here


@every_id
def test_seeds_tell_starts_apart(env_id: str) -> None:
    env = make(env_id)
    assert len({env.reset(seed=seed)[0] for seed in range(20)}) > 1
    assert len({env.reset()[0] for _ in range(20)}) > 1


@every_id
def test_global_randomness_is_neither_read_nor_moved(env_id: str) -> None:
    expected = long_trace(env_id)
    np.random.seed(99)
    random.seed(99)
    before = random.getstate(), np.random.get_state()[1].tolist()
    assert data_equivalence(long_trace(env_id), expected, exact=True)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


@every_id
def test_outcome_seed_keeps_the_start(env_id: str) -> None:
    env = make(env_id)
    traces = [trace(env, 7, options={"outcome_seed": outcome}) for outcome in range(40)]
    assert all(data_equivalence(each[0], traces[0][0], exact=True) for each in traces)
    assert data_equivalence(traces[0][0], env.reset(seed=7), exact=True)
    assert data_equivalence(traces[3], trace(env, 7, options={"outcome_seed": 3}), exact=True)


@every_id
def test_outcome_seed_draws_other_outcomes_where_they_are_random(env_id: str) -> None:
    env = make(env_id)
    # Several starts: the random action of one of them may be an arm that always pays the same.
    distinct = [
        len({str(trace(env, seed, options={"outcome_seed": outcome})) for outcome in range(20)}) for seed in range(4)
    ]
    assert max(distinct) > 1 if env_id in STOCHASTIC else max(distinct) == 1


@every_id
def test_outcomes_follow_the_seed_unless_they_have_one_of_their_own(env_id: str) -> None:
    env = make(env_id)

    def stream(seed: int | None = None, **options: int) -> float:
        env.reset(seed=seed, options=options)
        return env.outcome_random.random()

    drawn = [stream(1), stream(2), stream(), stream()]
    assert len(set(drawn)) == 4
    assert [stream(2), stream(), stream()] == drawn[1:]
    assert stream(1, outcome_seed=6) == stream(2, outcome_seed=6) == np.random.default_rng(6).random()


@every_id
def test_outcome_seed_and_play_do_not_move_later_starts(env_id: str) -> None:
    plain, seeded = make(env_id), make(env_id)
    plain.reset(seed=5)
    trace(seeded, 5, options={"outcome_seed": 99})
    assert [plain.reset()[0] for _ in range(10)] == [seeded.reset()[0] for _ in range(10)]


@every_id
def test_siblings_do_not_disturb_one_another(env_id: str) -> None:
    alone = trace(make(env_id), 11)
    env, sibling = make(env_id), make(env_id)
    rng = np.random.default_rng(11)
    together: list[Any] = [env.reset(seed=11)]
    sibling.reset(seed=3)
    for _ in range(len(alone) - 1):
        sibling.reset()
        together.append(env.step(random_action(env, rng)))
        sibling.step(random_action(sibling, np.random.default_rng(0)))
    assert data_equivalence(alone, together, exact=True)


if __name__ == "__main__":
    sys.stdout.write(f"{[long_trace(env_id) for env_id in IDS]!r}\n{hash('ragen')}\n")
