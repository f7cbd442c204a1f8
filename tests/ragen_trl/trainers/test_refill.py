"""Refills: rollouts of new start states until the groups to train on are complete."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import StarPOTrainer
from ragen_trl.rollout.seeds import REFILL
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.trainers import AnyReply, Lottery, lottery, parameters, small_trainer

TURNS: dict[str, Any] = {"think": False, "max_turns": 1, "max_actions": 1, "max_actions_per_turn": 1}


class Dull(Lottery):
    """A lottery in which most tickets never win, whatever the outcome seed."""

    share = 0.25

    def _start(self, options: Any) -> str:
        self.win = float(self.np_random.random() < self.share)
        return super()._start(options)


def dull() -> AnyReply:
    return AnyReply(Dull(), **TURNS)


class Spy(StarPOTrainer):
    """Keeps what every rollout played and what every micro-batch held."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.rollouts: list[list[Trajectory]] = []
        self.batches: list[dict[str, Any]] = []
        super().__init__(*args, **kwargs)

    def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
        played = super().rollout(starts, envs, policy)
        self.rollouts.append(played)
        return played

    def policy_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self.batches.append(inputs)
        return super().policy_loss(model, inputs)

    def groups(self) -> list[list[Trajectory]]:
        """All groups that were played, in order."""
        return [played[first : first + 4] for played in self.rollouts for first in range(0, len(played), 4)]


def run(folder: Path, env: Any = dull, **options: Any) -> Any:
    """Rollouts of 4 groups of 4."""
    trainer = small_trainer(folder, env, trainer=Spy, per_device_train_batch_size=16, **options)
    trainer.train()
    return trainer


def has_spread(group: list[Trajectory]) -> bool:
    return len({member.episode_return for member in group}) > 1


def rows_of(batch: dict[str, Any]) -> list[tuple[int, ...]]:
    """The unpadded contexts of a batch; of a row of filler only the prompt."""
    keys = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
    rows = zip(*(batch[key] for key in keys), strict=True)
    return [tuple(torch.cat([prompt[p.bool()], more[c.bool()]]).tolist()) for prompt, p, more, c in rows]


def completions(batch: dict[str, Any]) -> list[tuple[int, ...]]:
    """The contexts of a batch without filler, sorted."""
    used = batch["completion_mask"].any(dim=1)
    return sorted(row for row, whole in zip(rows_of(batch), used, strict=True) if whole)


@pytest.fixture(scope="module")
def refilled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Three updates. Half of 4 groups is wanted, and a quarter of the groups has spread. Two tests read it."""
    return run(tmp_path_factory.mktemp("refilled"), filter_ratio=0.5, max_refills=20, max_steps=3)


@pytest.fixture(scope="module")
def refilled_once(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The first of these updates. Two tests read it."""
    return run(tmp_path_factory.mktemp("once"), filter_ratio=0.5, max_refills=20, max_steps=1)


def test_rollouts_are_added_until_enough_groups_have_spread(refilled: Any) -> None:
    trainer = refilled
    rows = trainer.state.log_history[:3]
    needed: list[int] = []
    groups = iter(trainer.groups())
    for row in rows:
        spread: list[bool] = []
        while sum(spread) < 2:
            spread += [has_spread(next(groups)) for _ in range(4)]
        needed.append(len(spread) // 4)
        assert row["filter/trajectories_sampled"] == 4 * len(spread)
        assert (row["filter/kept_groups"], row["filter/trajectories_used"]) == (2, 8)
    assert next(groups, None) is None  # not one rollout more
    assert max(needed) > 1
    assert [len(completions(batch)) for batch in trainer.batches] == [8, 8, 8]


def test_the_kept_groups_are_the_most_uncertain_of_all_rollouts(refilled_once: Any) -> None:
    trainer = refilled_once
    stds = [torch.tensor([m.episode_return for m in group]).std().item() for group in trainer.groups()]
    assert len(stds) > 4
    best = sorted(range(len(stds)), key=lambda index: (-stds[index], index))[:2]
    (batch,) = trainer.batches
    kept = sorted(member.token_ids for index in best for member in trainer.groups()[index])
    assert completions(batch) == kept


def test_start_states_of_refills_are_new(refilled: Any) -> None:
    trainer = refilled
    seeds = [
        [group[0].seed for group in trainer.groups()][first : first + 4]
        for first in range(0, 4 * len(trainer.rollouts), 4)
    ]
    assert all({member.seed for member in group} == {group[0].seed} for group in trainer.groups())
    flat = [seed for rollout in seeds for seed in rollout]
    assert len(set(flat)) == len(flat)
    assert sum(rollout[0] < REFILL for rollout in seeds) == 3
    assert all(min(rollout) >= REFILL or max(rollout) < REFILL for rollout in seeds)


@pytest.mark.parametrize(
    "schedule",
    [
        {"gradient_accumulation_steps": 2, "steps_per_generation": 2, "num_iterations": 2, "max_steps": 4},
        {"gradient_accumulation_steps": 2, "steps_per_generation": 1, "max_steps": 3},
        {"gradient_accumulation_steps": 4, "steps_per_generation": 1, "num_iterations": 2, "max_steps": 3},
        {"gradient_accumulation_steps": 3, "steps_per_generation": 1, "num_iterations": 3, "max_steps": 3},
        {"gradient_accumulation_steps": 1, "steps_per_generation": 2, "max_steps": 4},
    ],
)
def test_no_schedule_of_updates_repeats_a_refill(tmp_path: Path, schedule: dict[str, int]) -> None:
    """Regression: with several rollouts a step and several updates on each, two rollouts had one number."""
    trainer = run(tmp_path, lottery(win=0.0), max_refills=2, **schedule)
    seeds = [group[0].seed for group in trainer.groups()]
    assert len(set(seeds)) == len(seeds)
    assert sum(seed >= REFILL for seed in seeds) == 2 * len(seeds) // 3
    assert sorted(seed - REFILL for seed in seeds if seed >= REFILL)[0] == 0


def test_refills_are_played_with_their_own_outcome_seeds(tmp_path: Path) -> None:
    trainer = run(tmp_path, lottery(win=0.0), max_refills=2, max_steps=1)
    outcome_seeds = [member.outcome_seed for group in trainer.groups() for member in group]
    assert len(set(outcome_seeds)) == len(outcome_seeds) == 48


def test_a_refill_from_few_start_states_has_new_outcome_seeds(tmp_path: Path) -> None:
    """Four start states in all: extra rollouts have to play the same ones, but not with the same outcome seeds."""
    trainer = run(tmp_path, lottery(win=0.0), max_refills=3, num_train_seeds=4, max_steps=1)
    seeds = [{member.seed for member in played} for played in trainer.rollouts]
    assert seeds == [seeds[0]] * 4
    outcome_seeds = [member.outcome_seed for group in trainer.groups() for member in group]
    assert len(set(outcome_seeds)) == len(outcome_seeds)


def test_it_gives_up(tmp_path: Path) -> None:
    trainer = run(tmp_path, lottery(win=0.0), filter_ratio=0.5, max_refills=3, max_steps=2)
    assert len(trainer.rollouts) == 2 * (1 + 3)
    for row in trainer.state.log_history[:2]:
        assert row["filter/trajectories_sampled"] == 64
        assert (row["filter/trajectories_used"], row["filter/skipped"]) == (0, 1)
    assert trainer.batches == []


def test_it_trains_on_what_there_is_when_it_gives_up(tmp_path: Path) -> None:
    trainer = run(tmp_path, max_refills=1, max_steps=1)
    spread = [has_spread(group) for group in trainer.groups()]
    assert len(spread) == 8
    assert 0 < sum(spread) < 4
    row = trainer.state.log_history[0]
    assert (row["filter/kept_groups"], row["filter/trajectories_used"]) == (sum(spread), 4 * sum(spread))


def test_with_a_ratio_of_one_groups_without_spread_are_replaced(tmp_path: Path) -> None:
    """Dynamic sampling: 4 groups a rollout, and 4 groups with spread are trained on."""
    trainer = run(tmp_path, max_refills=20, max_steps=1)
    spread = [group for group in trainer.groups() if has_spread(group)]
    assert len(trainer.rollouts) > 1
    row = trainer.state.log_history[0]
    assert (row["filter/kept_groups"], row["filter/trajectories_used"]) == (4, 16)
    (batch,) = trainer.batches
    trained = set(completions(batch))
    assert trained <= {member.token_ids for group in spread for member in group}
    assert bool((batch["advantages"] != 0).all())


def test_enough_groups_need_no_refill(tmp_path: Path) -> None:
    trainer = run(tmp_path, lottery(), filter_ratio=0.5, max_refills=5, max_steps=2)
    assert len(trainer.rollouts) == 2


def test_a_resumed_run_refills_as_an_unbroken_one(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "filter_ratio": 0.5,
        "max_refills": 20,
        "learning_rate": 1e-2,
        "max_steps": 4,
        "save_strategy": "steps",
        "save_steps": 2,
    }
    unbroken = run(tmp_path, **options)
    resumed: Any = small_trainer(tmp_path, dull, trainer=Spy, per_device_train_batch_size=16, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert len(resumed.rollouts) > 2
    assert resumed.rollouts == unbroken.rollouts[-len(resumed.rollouts) :]
    end = parameters(unbroken)
    assert all(torch.equal(value, end[name]) for name, value in parameters(resumed).items())
    counts = [row["filter/trajectories_sampled"] for row in unbroken.state.log_history if "reward" in row]
    again = [row["filter/trajectories_sampled"] for row in resumed.state.log_history if "reward" in row]
    assert counts == again


def test_the_completions_table_shows_the_last_rollout_with_its_advantages(refilled_once: Any) -> None:
    """TRL's table holds as many rows as a rollout has; a prompt stands with its own advantage."""
    trainer = refilled_once
    shown = list(zip(trainer._logs["prompt"], trainer._logs["advantages"], strict=True))
    assert len(shown) == 16
    played = trainer.rollouts[-1]
    assert [prompt[0]["content"] for prompt, _ in shown] == [member.turns[0].observation for member in played]
    (batch,) = trainer.batches
    trained = dict(zip(rows_of(batch), batch["advantages"].tolist(), strict=True))
    expected = [trained.get(member.token_ids, 0.0) for member in played]
    assert [advantage for _, advantage in shown] == pytest.approx(expected, rel=1e-5)  # TRL's differ by 1e-4
    assert any(expected)


def test_processes_share_a_refill_as_they_share_a_rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are repeated within groups and then dealt out in equal contiguous parts."""
    trainer = small_trainer(tmp_path, lottery(), trainer=Spy, per_device_train_batch_size=8, max_refills=1)
    whole = [row["seed"] for row in trainer._refill_rows(1)]
    assert whole == [REFILL] * 4 + [REFILL + 1] * 4
    parts = []
    for process in (0, 1):
        monkeypatch.setattr(type(trainer.accelerator), "num_processes", property(lambda self: 2))
        monkeypatch.setattr(type(trainer.accelerator), "process_index", property(lambda self, process=process: process))
        parts.append([row["seed"] for row in trainer._refill_rows(1)])
    assert parts == [whole[:4], whole[4:]]
