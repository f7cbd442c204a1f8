"""Stage 1 as AStarPOTrainer runs it: what V* is made of, what the cache saves, and which starts are trained on."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl.algorithms.soft_values import soft_value
from ragen_trl.astar_po.reference_values import NothingToLearnError, ReferenceNeverSucceedsError
from ragen_trl.rollout.env_specs import EnvSpec
from tests.support.ragen_trl.astar_runs import astar, cached, draws
from tests.support.ragen_trl.trainers import TOKENIZER, logged, lottery, parameters, small_model


def test_v_star_is_the_soft_value_of_the_returns_in_the_cache(tmp_path: Path) -> None:
    """β₁ = 0.5 return ranges of 4: V* = 2·log(mean(e^(R/2))), for k wins of 4: 2·log(1 + k/4·(e² − 1))."""
    trainer = astar(tmp_path, lottery(win=4.0))
    values = trainer.estimate_values()[0]
    returns = cached(tmp_path)
    assert sorted(values.starts) == list(range(10_000, 10_008)) == list(returns)
    for seed, start in values.starts.items():
        wins = sum(value == 4.0 for value in returns[seed])
        assert start.samples == len(returns[seed]) == 4
        assert start.value == pytest.approx(2 * math.log(1 + wins / 4 * (math.exp(2) - 1)), rel=1e-12)
        assert start.value == soft_value(torch.tensor(returns[seed]), 2.0).item()
        assert start.zero_variance == (wins in (0, 4))
    assert values.beta1 == 2.0
    assert len({start.value for start in values.starts.values()}) > 2


def test_reference_episodes_do_not_depend_on_the_seed_of_the_run(tmp_path: Path) -> None:
    found = []
    for seed in (1, 2):
        trainer = astar(tmp_path / str(seed), draws(), seed=seed)
        trainer.estimate_values()
        found.append({trajectory.token_ids for trajectory in trainer.reference_played})
    assert found[0] == found[1]
    assert len(found[0]) == 32
    assert cached(tmp_path / "1") == cached(tmp_path / "2")


def test_training_does_not_play_the_episodes_of_the_reference_again(tmp_path: Path) -> None:
    """V* and what it is compared with are independent: same starts, other outcomes and other words."""
    trainer = astar(tmp_path, max_steps=1)
    trainer.train()
    of_reference = {(t.seed, t.outcome_seed) for t in trainer.reference_played}
    assert not of_reference & {(t.seed, t.outcome_seed) for t in trainer.played}
    assert {t.seed for t in trainer.played} <= {t.seed for t in trainer.reference_played}


SAME: list[dict[str, Any]] = [
    {"seed": 3},
    {"beta1": 0.1, "beta2": 0.1, "learning_rate": 1e-3},
    {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
    {"num_generations": 4, "filter_ratio": 0.5},
]
# The other options of play are in the key, too: test_value_cache.py goes through all of them.
OTHER: list[dict[str, Any]] = [
    {"max_turns": 3},
    {"reward_weights": [2.0]},
    {"reward_version": "2"},
    {"temperature": 0.9},
    {"top_k": 100},
    {"top_p": 0.9},
    {"force_reply_prefix": False},
    {"model": 1},
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cache that one run has filled with 32 episodes."""
    folder = tmp_path_factory.mktemp("filled")
    trainer = astar(folder, value_cache=str(folder / "shared.sqlite"))
    assert trainer.estimate_values()[0].played == 32
    return str(folder / "shared.sqlite")


@pytest.mark.parametrize("changes", SAME, ids=str)
def test_a_run_that_asks_for_the_same_episodes_plays_none(filled: str, tmp_path: Path, changes: dict) -> None:
    trainer = astar(tmp_path, value_cache=filled, **changes)
    assert trainer.estimate_values()[0].played == 0
    assert trainer.reference_played == []
    assert not (tmp_path / "values.sqlite").exists()


def test_cached_rewards_of_somebody_elses_game_are_named(
    filled: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: a class that had come to pay ten times as much was trained on the former V*, silently."""
    trainer = astar(tmp_path, value_cache=filled)
    trainer.estimate_values()
    (said,) = [record.message for record in caplog.records if "cache" in record.message]
    assert said.startswith("32 of the 32 episodes behind V* of ") and "set another reward_version" in said
    caplog.clear()
    for env in ("ragen/Bandit-v0", "ragen_envs:ragen/Bandit-v0"):  # the package's own pay what its version says
        trainer._tasks.specs = [EnvSpec(env)]
        trainer._tell_of_cached_rewards(0)
        assert not caplog.records
    trainer._tasks.specs = [EnvSpec("ragen/WebShop-v0", {"catalog": "shop/products.jsonl"})]  # another file, same name
    trainer._tell_of_cached_rewards(0)
    assert caplog.records
    caplog.clear()
    trainer._tasks.specs = [EnvSpec("ragen/Bandit-v0")]
    trainer._extra = [lambda **_: []]
    trainer._tell_of_cached_rewards(0)
    assert caplog.records


@pytest.mark.filterwarnings("ignore::ragen_trl.config.validation.OffPolicySamplingWarning")
@pytest.mark.parametrize("changes", OTHER, ids=str)
def test_whatever_changes_v_star_misses_the_cache(filled: str, tmp_path: Path, changes: dict[str, Any]) -> None:
    options = {**changes, "model": small_model(changes["model"])} if "model" in changes else changes
    trainer = astar(tmp_path, value_cache=filled, **options)
    assert trainer.estimate_values()[0].played == 32


def test_functions_of_one_name_count_with_their_weights(tmp_path: Path) -> None:
    """Regression: the key held names and weights as a mapping, in which the last function of a name stood for all."""
    functions = [lambda trajectory, **_: [1.0] * len(trajectory), lambda trajectory, **_: [3.0] * len(trajectory)]
    means = []
    for weights in ([1.0, 5.0, 1.0], [1.0, 0.0, 1.0]):
        options = {"reward_funcs": functions, "reward_weights": weights, "value_cache": str(tmp_path / "one.sqlite")}
        values = astar(tmp_path / str(weights[1]), **options).estimate_values()[0]
        assert values.played == 32
        means.append([start.mean for start in values.starts.values()])
    assert means[0] == pytest.approx([mean + 5.0 for mean in means[1]])


def test_more_samples_join_the_stored_ones(filled: str, tmp_path: Path) -> None:
    trainer = astar(tmp_path, value_cache=filled, reference_samples=6, max_reference_samples=6)
    values = trainer.estimate_values()[0]
    assert (values.played, values.episodes) == (8 * 2, 8 * 6)


def test_a_second_trainer_on_the_same_folder_plays_nothing(tmp_path: Path) -> None:
    first = astar(tmp_path, max_steps=1)
    first.train()
    second = astar(tmp_path, max_steps=1)
    second.train()
    assert logged(first, "astar/reference_episodes") == [32]
    assert logged(second, "astar/reference_episodes") == [32]  # all that V* is estimated from, cached or not
    assert second.values[0].played == 0
    assert first.values[0].starts == second.values[0].starts
    for name, value in parameters(first).items():
        assert torch.equal(value, parameters(second)[name]), name


@pytest.mark.parametrize("group_size", [1, 4])
def test_starts_without_spread_are_replaced_by_others(tmp_path: Path, group_size: int) -> None:
    trainer = astar(tmp_path, num_generations=group_size, max_steps=4, per_device_train_batch_size=8 * group_size)
    trainer.train()
    values = trainer.values[0]
    dull = {seed for seed, start in values.starts.items() if start.zero_variance}
    assert 0 < len(dull) < 8
    rollouts = [trainer.played[i : i + 8 * group_size : group_size] for i in range(0, 32 * group_size, 8 * group_size)]
    for rollout in rollouts:
        seeds = [trajectory.seed for trajectory in rollout]
        assert set(seeds) == set(values.trainable)  # all of them come in their turn, some twice or more
    assert len({tuple(sorted(t.seed for t in rollout)) for rollout in rollouts}) > 1  # not always the same ones twice
    for group in range(0, len(trainer.played), group_size):
        assert len({trajectory.seed for trajectory in trainer.played[group : group + group_size]}) == 1


def test_a_reference_that_never_succeeds_is_an_error_before_any_update(tmp_path: Path) -> None:
    """FrozenLake, played by an untrained model: penalties differ, so there is spread, but never a success."""
    trainer = astar(tmp_path, "ragen/FrozenLake-v0", max_reference_samples=4)
    before = parameters(trainer)
    with pytest.raises(ReferenceNeverSucceedsError, match="none of 32 episodes.*warm-start"):
        trainer.train()
    assert trainer.played == [] and trainer.state.global_step == 0
    assert all(torch.equal(value, before[name]) for name, value in parameters(trainer).items())


def test_a_lottery_that_pays_nothing_teaches_nothing(tmp_path: Path) -> None:
    """It is won, but for no money: all returns are 0."""
    trainer = astar(tmp_path, lottery(win=0.0))
    with pytest.raises(NothingToLearnError, match="8 start states.*raise the temperature"):
        trainer.train()
    assert trainer.played == []


def length(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A reward of one per token."""
    return [float(len(ids)) for ids in completion_ids]


def test_extra_reward_functions_count_in_both_stages(tmp_path: Path) -> None:
    trainer = astar(tmp_path, reward_funcs=[length], reward_weights=[2.0, 0.5], max_steps=1)
    trainer.train()

    def score(trajectory: Any) -> float:
        return 2.0 * trajectory.episode_return + 0.5 * len(trajectory.turns[0].reply_ids)

    assert sorted(value for found in cached(tmp_path).values() for value in found) == pytest.approx(
        sorted(map(score, trainer.reference_played))
    )
    values = trainer.values[0]
    (batch,) = trainer.batches
    expected = [(score(t) - values.of(t.seed).value) / values.return_range for t in trainer.played]
    assert sorted(batch["advantages"].tolist()) == pytest.approx(sorted(expected), abs=1e-6)


def test_reward_functions_read_the_same_completions_in_both_stages(tmp_path: Path) -> None:
    """Scored differently, V* would be the value of another task (as in the official code of A*-PO)."""
    seen: dict[tuple[int, ...], set[str]] = {}

    def record(completions: Any, completion_ids: list[list[int]], **_: Any) -> list[float]:
        for completion, ids in zip(completions, completion_ids, strict=True):
            seen.setdefault(tuple(ids), set()).add(completion[0]["content"])
        return [0.0] * len(completions)

    trainer = astar(tmp_path, draws(), reward_funcs=[record], max_steps=1)
    trainer.train()
    assert len(seen) >= 32
    for ids, contents in seen.items():
        assert contents == {TOKENIZER.decode(ids, skip_special_tokens=True)}


def test_environments_that_functions_make_do_not_share_their_values(tmp_path: Path) -> None:
    """Both functions are lambdas of one name, and both environments have the same start seeds."""
    options: dict[str, Any] = {"per_device_train_batch_size": 16, "num_train_seeds": 16, "max_steps": 1}
    trainer = astar(tmp_path, [lottery(win=1.0), lottery(win=10.0)], **options)
    trainer.train()
    assert [trainer.values[task].return_range for task in (0, 1)] == [1.0, 10.0]
    (batch,) = trainer.batches
    assert batch["advantages"].abs().max() <= 1.0
    assert {t.seed for t in trainer.played} <= set(trainer.values[0].starts) | set(trainer.values[1].starts)
