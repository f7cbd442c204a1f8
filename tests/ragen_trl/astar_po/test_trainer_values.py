"""Stage 1 as AStarPOTrainer runs it: what V* is made of, what the cache saves and refuses, which starts are trained."""

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from ragen_trl import AStarPOConfig
from ragen_trl.algorithms.soft_values import soft_value
from ragen_trl.astar_po.reference_values import Sample, ValueCache, value_key
from ragen_trl.config.options import MannerOptions, TaskOptions, option_names
from ragen_trl.errors import OptionError
from tests.support.ragen_trl.astar_runs import Spy, astar, cached
from tests.support.ragen_trl.trainers import lottery, small_model, small_trainer


def test_v_star_is_the_soft_value_of_the_returns_in_the_cache(tmp_path: Path) -> None:
    """β₁ = 0.5 return ranges of 4: V* = 2·log(mean(e^(R/2))), for k wins of 4: 2·log(1 + k/4·(e² − 1))."""
    trainer = astar(tmp_path, lottery(win=4.0))
    values = trainer.estimate_values()[0]
    returns = cached(tmp_path)
    assert sorted(values.starts) == list(range(10_000, 10_008)) == list(returns)
    for seed, found in values.starts.items():
        wins = sum(value == 4.0 for value in returns[seed])
        assert len(returns[seed]) == 4
        assert found == pytest.approx(2 * math.log(1 + wins / 4 * (math.exp(2) - 1)), rel=1e-12)
        assert found == soft_value(torch.tensor(returns[seed]), 2.0).item()
        assert (seed in values.trainable) == (0 < wins < 4)
    assert values.beta1 == 2.0
    assert len(set(values.starts.values())) > 2


def test_training_does_not_play_the_episodes_of_the_reference_again(tmp_path: Path) -> None:
    """V* and what it is compared with are independent: same starts, other outcomes and other words."""
    trainer = astar(tmp_path, max_steps=1)
    trainer.train()
    of_reference = {(t.seed, t.outcome_seed) for t in trainer.reference_played}
    assert not of_reference & {(t.seed, t.outcome_seed) for t in trainer.played}
    assert {t.seed for t in trainer.played} <= {t.seed for t in trainer.reference_played}


SAME: list[dict[str, Any]] = [
    {"seed": 3},
    {"beta1": 0.1, "beta2": 0.1, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
]
# The other options of play are in the key, too; another test goes through all of them.
OTHER: list[dict[str, Any]] = [{"reward_weights": [2.0]}, {"temperature": 0.9}, {"top_p": 0.9}, {"model": 1}]


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


@pytest.mark.filterwarnings("ignore:top_")
@pytest.mark.parametrize("changes", OTHER, ids=str)
def test_whatever_changes_v_star_misses_the_cache(filled: str, tmp_path: Path, changes: dict[str, Any]) -> None:
    options = {**changes, "model": small_model(changes["model"])} if "model" in changes else changes
    trainer = astar(tmp_path, value_cache=filled, **options)
    assert trainer.estimate_values()[0].played == 32


def test_starts_without_spread_are_replaced_by_others(tmp_path: Path) -> None:
    group_size = 4
    trainer = astar(tmp_path, num_generations=group_size, max_steps=4, per_device_train_batch_size=8 * group_size)
    trainer.train()
    values = trainer.values[0]
    assert 0 < len(values.trainable) < len(values.starts) == 8
    rollouts = [trainer.played[i : i + 8 * group_size : group_size] for i in range(0, 32 * group_size, 8 * group_size)]
    for rollout in rollouts:
        seeds = [trajectory.seed for trajectory in rollout]
        assert set(seeds) == set(values.trainable)  # all of them come in their turn, some twice or more
    assert len({tuple(sorted(t.seed for t in rollout)) for rollout in rollouts}) > 1  # not always the same ones twice
    for group in range(0, len(trainer.played), group_size):
        assert len({trajectory.seed for trajectory in trainer.played[group : group + group_size]}) == 1


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
    expected = [(score(t) - values.starts[t.seed]) / values.return_range for t in trainer.played]
    assert sorted(batch["advantages"].tolist()) == pytest.approx(sorted(expected), abs=1e-6)


# What the cache keeps


def test_samples_come_back_by_key_and_the_first_one_stays(tmp_path: Path) -> None:
    cache = ValueCache(tmp_path / "new" / "values.sqlite")
    cache.add("a", {(7, 0): Sample(0.1 + 0.2, True), (7, 1): Sample(-1.5, False)})
    cache.add("a", {(7, 1): Sample(1.0, True), (3, 0): Sample(0.0, False)})
    cache.add("b", {(7, 0): Sample(9.0, True)})
    cache = ValueCache(tmp_path / "new" / "values.sqlite")
    assert cache.read("a") == {(3, 0): (0.0, False), (7, 0): (0.1 + 0.2, True), (7, 1): (-1.5, False)}
    assert cache.read("b") == {(7, 0): (9.0, True)}
    assert cache.read("c") == {}
    (tmp_path / "other.sqlite").write_text("not a database")
    with pytest.raises(OptionError, match="not a database"):
        ValueCache(tmp_path / "other.sqlite")


def test_every_option_of_play_is_part_of_the_key(tmp_path: Path) -> None:
    """A hand-kept list of options forgot two of them; a new one must tell runs apart."""
    trainer, args = astar(tmp_path), AStarPOConfig(output_dir=str(tmp_path), use_cpu=True)

    def digest(**changes: Any) -> str:
        trainer.args = replace_options(args, **changes)
        return value_key(trainer._value_settings(0), "R")

    plain = digest()
    changed = {
        "max_turns": 9, "max_actions_per_turn": 9, "max_actions": 9, "format_penalty": -0.9, "window_turns": 2,
        "context": "actions_so_far", "stop_at_answer": False, "think": False, "max_reply_length": 9,
        "max_completion_length": 9, "system_prompt": "s", "cut_penalty": -0.9,
        "chat_template_kwargs": {"enable_thinking": False}, "observation": "image", "image_size": 84,
        "instruction": "Go.", "actions": ["a"], "success_return": 1.0,
    }  # fmt: skip
    # env_kwargs come with the environment, and the forced prefix as `reply_prefix`.
    options = {*option_names(TaskOptions), *option_names(MannerOptions)} - {"env_kwargs", "force_reply_prefix"}
    assert set(changed) == options
    digests = {digest(**{name: value}) for name, value in changed.items()}
    assert len(digests | {plain}) == len(changed) + 1


def replace_options(args: AStarPOConfig, **changes: Any) -> AStarPOConfig:
    """A copy with other values, unchecked: A*-PO refuses some of them today."""
    changed = copy.copy(args)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


# Start states without spread give their places to others, and the columns of a row go wherever it is played


SEEDS = list(range(10_000, 10_008))
NEVER_WON = SEEDS[:4]


class Lucky(Spy):
    """An episode wins by its outcome seed, but never from the first four start states."""

    def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
        played = super().rollout(starts, envs, policy)
        for index, start in enumerate(starts):
            won = start.seed not in NEVER_WON and start.outcome_seed % 2 == 1
            turn = replace(played[index].turns[-1], reward=float(won), info={**played[index].turns[-1].info})
            turn.info["success"] = won
            played[index] = replace(played[index], turns=(turn,))
        return played


def make(folder: Path, columns: dict[str, list[Any]], **options: Any) -> Any:
    """A run on the rows of eight bandits, with these further columns."""
    data = Dataset.from_dict({"env": ["ragen/Bandit-v0"] * 8, "seed": SEEDS, **columns})
    stage = {"num_generations": 1, "reference_samples": 4, "max_reference_samples": 4, "max_turns": 1}
    return small_trainer(folder, None, AStarPOConfig, Lucky, train_dataset=data, **{**stage, **options})


def test_both_stages_and_exchanged_starts_have_the_columns_of_their_own_row(tmp_path: Path) -> None:
    """Regression: stage 1 had no columns at all, and an exchanged start had those of the one that it replaced."""
    seen: list[tuple[int, float]] = []

    def bonus(seed: list[int], bonus: list[float], **_: Any) -> list[float]:
        seen.extend(zip(seed, bonus, strict=True))
        return bonus

    trainer = make(tmp_path, {"bonus": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]}, reward_funcs=[bonus], max_steps=2)
    trainer.train()
    assert len(seen) == 8 * 4 + 2 * 8
    assert {(seed, value) for seed, value in seen} == {(seed, seed - 10_000.0) for seed in SEEDS}
    values = trainer.values[0]
    assert not set(values.trainable) & set(NEVER_WON)
    assert {seed for seed, _ in seen[32:]} <= set(values.trainable)  # four of eight rows, at least, were exchanged
    for seed in NEVER_WON:
        assert values.starts[seed] == seed - 10_000.0
    for seed in values.trainable:
        assert seed - 10_000.0 < values.starts[seed] < seed - 9_999.0
