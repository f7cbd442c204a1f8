"""Baselines: intervals by hand, rows that are known exactly, the reference's rates, and the file they go to."""

import json
import math
import os
import re
import threading
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

from ragen_envs.baselines import (
    HORIZONS,
    TURN_LIMITS,
    default_horizon,
    default_turns,
    episode_seeds,
    measure,
    wilson_interval,
    write_results,
)
from ragen_envs.oracles import NoOracleError

LAKE = "ragen/FrozenLake-v0"
OPEN_LAKE = {"size": 2, "frozen_prob": 1.0, "is_slippery": False}


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (51, 256, 0.1549, 0.2524),  # RAGEN's 0.5B result: 15.5 to 25.2 %, where the random policy is as well
        (5, 10, 0.2366, 0.7634),
        (1, 1, 0.2065, 1.0),
    ],
)
def test_intervals_by_hand(successes: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=6e-5)


@pytest.mark.parametrize("n", [1, 10, 512, 10_000])
def test_an_interval_never_claims_certainty(n: int) -> None:
    """0 of n reaches up to z²/(n + z²), which a normal approximation would call 0; n of n mirrors it."""
    z2 = 1.959963984540054**2
    assert wilson_interval(0, n) == pytest.approx((0.0, z2 / (n + z2)))
    assert wilson_interval(n, n) == pytest.approx((n / (n + z2), 1.0))
    assert all(0 <= bound <= 1 for successes in (0, n) for bound in wilson_interval(successes, n))


@pytest.mark.parametrize("successes", range(0, 21, 4))
def test_an_interval_solves_the_equation_that_defines_it(successes: int) -> None:
    """Both bounds p are where the observed share is exactly z standard errors of p away."""
    n, share = 20, successes / 20
    for bound in wilson_interval(successes, n):
        assert abs(share - bound) == pytest.approx(1.959963984540054 * math.sqrt(bound * (1 - bound) / n), abs=1e-9)


@pytest.mark.parametrize(("successes", "n"), [(3, 2), (-1, 2), (0, 0)])
def test_impossible_counts_are_refused(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match=f"{successes} successes in {n} episodes"):
        wilson_interval(successes, n)


def test_bandit_rows_are_known() -> None:
    oracle, random = (measure("ragen/Bandit-v0", policy, episodes=512) for policy in ("oracle", "random"))
    assert (oracle.n, oracle.successes, oracle.success, oracle.horizon) == (512, 512, 1.0, 1)
    assert (oracle.mean_length, random.mean_length) == (1.0, 1.0)
    assert (oracle.low, oracle.high) == wilson_interval(512, 512)
    assert abs(oracle.mean_return - 0.25) < 4 * math.sqrt(0.1875 / 512)
    assert random.low < 0.5 < random.high
    assert (random.low, random.high) == wilson_interval(random.successes, 512)


def test_rows_agree_with_the_reference() -> None:
    """Slippery FrozenLake at ten actions on RAGEN's lakes: random 21.2 %, oracle 48.3 %."""
    random, oracle = measure(LAKE, "random"), measure(LAKE, "oracle", episodes=1024)
    assert random.low < 0.212 < random.high
    assert oracle.low < 0.483 < oracle.high


@pytest.mark.parametrize(("env_id", "random", "oracle"), [("Sokoban", 0.167, 0.99), ("SokobanLarge", 0.026, 0.993)])
def test_sokoban_rows_agree_with_the_original(env_id: str, random: float, oracle: float) -> None:
    """RAGEN's room code, over 2000 and 1000 rooms: random play 16.7 % (± 0.5) and 2.6 % (± 0.2) at ten actions."""
    row = measure(f"ragen/{env_id}-v0", "random")
    assert row.low < random < row.high
    row = measure(f"ragen/{env_id}-v0", "oracle", episodes=512)
    assert row.low < oracle < row.high or row.success > oracle


def test_horizons_are_those_of_ragen(tmp_path: Path) -> None:
    ten, one = ("FrozenLake", "Sokoban", "SokobanLarge"), ("Bandit", "BanditRev", "Countdown")
    shops = {"ragen/ToyShop-v0": 5, "ragen/WebShop-v0": 15}  # by their own default
    others = shops | {"ragen/Tools-v0": 10, "ragen/TextWorld-v0": 20}  # ours
    assert {f"ragen/{name}-v0": 10 for name in ten} | {f"ragen/{name}-v0": 1 for name in one} | others == HORIZONS
    levels = tmp_path / "levels.txt"
    levels.write_text("#######\n#@$ . #\n#######\n")
    assert default_horizon(gymnasium.make("ragen/Sokoban-v0", levels=str(levels)).spec) == 200


def test_a_level_of_a_file_may_take_200_actions(tmp_path: Path) -> None:
    """Regression: Sokoban ended after 100 of the 200 actions. Here a box is pushed down a corridor."""
    levels, squares = tmp_path / "levels.txt", 147
    wall = "#" * (squares + 5)
    levels.write_text(f"{wall}\n#@${' ' * squares}.#\n{wall}\n")
    row = measure("ragen/Sokoban-v0", "oracle", episodes=1, env_kwargs={"levels": str(levels)})
    assert (row.horizon, row.successes, row.mean_length) == (200, 1, squares + 1)
    env = gymnasium.make("ragen/Sokoban-v0", levels=str(levels))
    env.reset(seed=0)
    ended = [any(env.step("Up")[2:4]) for _ in range(200)]
    assert ended.index(True) == 199


def test_what_is_no_file_is_written_to_as_it_is(tmp_path: Path) -> None:
    """Regression: a rename over ``/dev/stdout`` replaced the link by a file."""
    fifo, link, target = tmp_path / "fifo", tmp_path / "link", tmp_path / "target.json"
    os.mkfifo(fifo)
    target.write_text("old")
    link.symlink_to(target)
    rows = [measure(LAKE, "random", episodes=2)]
    reader = threading.Thread(target=lambda: read.append(json.loads(fifo.read_text())))
    read: list[Any] = []
    reader.start()
    write_results(fifo, rows, "test")
    reader.join()
    assert fifo.is_fifo() and read[0]["rows"][0]["n"] == 2
    write_results(link, rows, "test")
    assert link.is_symlink() and json.loads(target.read_text())["command"] == "test"


@pytest.mark.parametrize("horizon", [1, 2])
def test_the_horizon_is_the_number_of_actions(horizon: int) -> None:
    """On 2 × 2 tiles of firm ice the goal is one move away, or two if it lies across."""
    env = gymnasium.make(LAKE, **OPEN_LAKE)
    maps = [env.reset(seed=seed)[0] for seed in range(40)]
    across = sum(abs(text.index("P") - text.index("G")) in (4, 2) for text in maps)  # "P_\n_G" and "_P\nG_"
    assert 0 < across < 40
    row = measure(LAKE, "oracle", horizon, episodes=40, env_kwargs=OPEN_LAKE)
    assert row.successes == (40 if horizon == 2 else 40 - across)
    assert row.mean_length == (1 + across / 40 if horizon == 2 else 1.0)
    assert row.mean_return == row.success
    assert row.env_kwargs == OPEN_LAKE
    limited = measure(LAKE, "oracle", episodes=40, env_kwargs={**OPEN_LAKE, "max_episode_steps": horizon})
    assert (limited.horizon, limited.successes, limited.mean_length) == (10, row.successes, row.mean_length)


def test_rows_of_parts_make_the_row_of_the_whole() -> None:
    """Every episode depends only on its seed, so that it does not matter which others are played."""
    whole = measure(LAKE, "random", episodes=60)
    parts = [measure(LAKE, "random", episodes=20, first_seed=first) for first in (0, 20, 40)]
    assert whole.successes == sum(part.successes for part in parts)
    assert len({part.successes for part in parts}) > 1
    assert whole.mean_length == pytest.approx(sum(part.mean_length for part in parts) / 3)


def test_mean_and_standard_error_by_hand() -> None:
    singles = [measure("ragen/Bandit-v0", "random", episodes=1, first_seed=seed) for seed in range(4)]
    returns = [row.mean_return for row in singles]
    assert len(set(returns)) > 1
    assert all(row.return_stderr == 0.0 for row in singles)
    mean = sum(returns) / 4
    row = measure("ragen/Bandit-v0", "random", episodes=4)
    assert row.mean_return == pytest.approx(mean)
    assert row.return_stderr == pytest.approx(math.sqrt(sum((each - mean) ** 2 for each in returns) / 3 / 4))


def test_luck_and_dice_differ_from_seed_to_seed() -> None:
    drawn = [episode_seeds(seed) for seed in range(100)]
    assert len({seed for pair in drawn for seed in pair}) == 200
    assert episode_seeds(7) == drawn[7]


def test_every_environment_has_a_horizon() -> None:
    ids = [env_id for env_id in gymnasium.registry if env_id.startswith("ragen/")]
    assert {"ragen/Bandit-v0", LAKE} <= set(ids)
    for env_id in ids:
        assert default_horizon(gymnasium.spec(env_id)) >= 1
    assert default_horizon(gymnasium.spec(LAKE)) == HORIZONS[LAKE] == 10
    assert default_horizon(gymnasium.spec("CartPole-v1")) == 500  # not RAGEN's: the registered limit
    with pytest.raises(ValueError, match=r"Blackjack-v1 has no time limit.*max_actions"):
        default_horizon(gymnasium.spec("Blackjack-v1"))
    assert default_horizon(gymnasium.spec("Blackjack-v1"), 20) == default_horizon(None, 20) == 20
    with pytest.raises(ValueError, match="the environment has no time limit"):
        default_horizon(None)


def test_levels_are_those_of_sokoban() -> None:
    """Regression: any environment with an argument of that name had Sokoban's limit."""
    other = EnvSpec("test/Other-v0", "ragen_envs:Bandit", max_episode_steps=7, kwargs={"levels": 3})
    assert default_horizon(other) == 7


def test_turns_are_ragens_or_five_of_five() -> None:
    assert default_turns(gymnasium.spec("ragen/WebShop-v0"))["max_turns"] == 9
    assert default_turns(None) == {"max_turns": 5, "max_actions_per_turn": 5, "max_actions": 10}
    short = EnvSpec("test/Short-v0", "ragen_envs:Bandit", max_episode_steps=3)
    assert default_turns(short) == {"max_turns": 3, "max_actions_per_turn": 3, "max_actions": 3}
    long = EnvSpec("test/Long-v0", "ragen_envs:FrozenLake", max_episode_steps=198)  # five turns could not make them
    assert default_turns(long) == {"max_turns": 40, "max_actions_per_turn": 5, "max_actions": 198}
    default_turns(gymnasium.spec("ragen/Bandit-v0"))["max_turns"] = 7
    assert TURN_LIMITS["ragen/Bandit-v0"]["max_turns"] == TURN_LIMITS["ragen/Countdown-v0"]["max_turns"] == 1
    assert {env_id: limits["max_actions"] for env_id, limits in TURN_LIMITS.items()} == {
        **{env_id: HORIZONS[env_id] for env_id in TURN_LIMITS},
        "ragen/WebShop-v0": 9,
    }


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="'best' is unknown; use one of random, oracle"):
        measure(LAKE, "best")
    with pytest.raises(ValueError, match="episodes=0"):
        measure(LAKE, "random", episodes=0)
    with pytest.raises(ValueError, match="horizon=0"):
        measure(LAKE, "random", horizon=0)
    with pytest.raises(NoOracleError, match="CartPoleEnv"):
        measure("CartPole-v1", "oracle", episodes=1)


def test_results_say_where_they_come_from(tmp_path: Path) -> None:
    row = measure(LAKE, "random", episodes=8, first_seed=3)
    target = tmp_path / "new" / "rows.json"
    write_results(target, [row], "python -m ragen_envs baselines")
    results = json.loads(target.read_text())
    assert results["rows"] == [row.as_dict()]
    assert (results["rows"][0]["first_seed"], results["rows"][0]["n"]) == (3, 8)
    assert results["command"] == "python -m ragen_envs baselines"
    assert results["versions"]["gymnasium"] == gymnasium.__version__
    assert results["commit"] is None or re.fullmatch(r"[0-9a-f]{40}(\+changes)?", results["commit"])
    assert list(target.parent.iterdir()) == [target]


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "rows.json").mkdir()
    with pytest.raises(OSError, match=re.escape("rows.json")):
        write_results(tmp_path / "rows.json", [], "command")
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.json"]
