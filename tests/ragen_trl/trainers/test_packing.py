"""What a filter keeps: only that is scored, in full micro-batches, and the step is that of the kept rows alone."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import StarPOTrainer
from ragen_trl.batching.rollout_batch import RolloutBatch
from tests.support.ragen_trl.equivalence import STEP, step, with_adapter
from tests.support.ragen_trl.trainers import lottery, parameters, small_trainer


class Asked(StarPOTrainer):
    """Keeps the keys of what TRL made of a rollout, and of what is trained on."""

    def score_trajectories(self, rows: Any, played: Any) -> Any:
        batch, rewards = super().score_trajectories(rows, played)
        self.asked = {key for key in batch if key.endswith("per_token_logps")}
        assert all(not batch[key].any() for key in self.asked - {"sampling_per_token_logps"})
        return batch, rewards

    def _learn_from(self, rollout: Any, kept: Any) -> dict[str, Any]:
        batch = super()._learn_from(rollout, kept)
        self.given = {key for key in batch if key.endswith("per_token_logps")}
        return batch


SCHEDULES: list[dict[str, Any]] = [
    {},
    {"num_iterations": 2},
    {"steps_per_generation": 4, "gradient_accumulation_steps": 2},
    {"steps_per_generation": 2, "gradient_accumulation_steps": 4},
    {"steps_per_generation": 2, "gradient_accumulation_steps": 4, "num_iterations": 2},
]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_what_trl_would_score_of_a_rollout_is_scored_of_what_is_kept(
    tmp_path: Path, schedule: dict[str, Any], beta: float
) -> None:
    """`TrajectoryTrainer._add_scores` repeats TRL's conditions; TRL itself is given zeros."""
    options = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 1, **schedule}
    trainer = small_trainer(tmp_path, lottery(), trainer=Asked, beta=beta, model=with_adapter(), **options)
    trainer.train()
    assert trainer.given == trainer.asked  # type: ignore[attr-defined]
    assert ("ref_per_token_logps" in trainer.given) == bool(beta)  # type: ignore[attr-defined]


class OneByOne(StarPOTrainer):
    """Every row in a micro-batch of its own width, as TRL splits them: nothing is packed."""

    def _regroup(self, micro_batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return micro_batches


# Losses and advantages: batching/test_micro_batches.py, in float32.
CASES: dict[str, dict[str, Any]] = {
    "reference and two passes": {"beta": 0.5, "num_iterations": 2, "max_steps": 4, "learning_rate": 0.3},
    "several rollouts": {"steps_per_generation": 3},
}


@pytest.mark.parametrize("name", CASES)
def test_in_float64_the_step_is_that_of_rows_that_are_not_packed(tmp_path: Path, name: str) -> None:
    """A third of 24 trajectories in six micro-batches, policy and adapter in double precision."""
    options = {**STEP, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 6, "filter_ratio": 0.4}
    options |= {"entropy_coef": 0.01, **CASES[name]}
    found = []
    for trainer in (OneByOne, StarPOTrainer):
        made = small_trainer(tmp_path, lottery(draws=3), trainer=trainer, model=with_adapter().double(), **options)
        found.append(step(made))
    assert max(float(value.abs().max()) for value in found[0].values()) > 1e-3
    for key, value in found[0].items():
        torch.testing.assert_close(found[1][key], value, rtol=0.0, atol=1e-7, msg=key)


class Seen(StarPOTrainer):
    """Counts the trajectories of each micro-batch that is computed, and the rows that are scored outside of them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.computed: list[int] = []
        self.scored: list[int] = []
        super().__init__(*args, **kwargs)

    def policy_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self.computed.append(int(inputs["completion_mask"].any(dim=1).sum()))
        return super().policy_loss(model, inputs)

    def _scored(self, model: Any, inputs: dict[str, Any], batch_size: int | None, compute_entropy: bool) -> Any:
        if batch_size is not None:
            self.scored.append(len(inputs["completion_ids"]))
        return super()._scored(model, inputs, batch_size, compute_entropy)


def test_only_what_is_kept_is_scored_and_it_is_computed_in_full_micro_batches(tmp_path: Path) -> None:
    """Regression: old and reference log-probabilities of all 24 rows, then six passes of one or two rows."""
    options = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 6, "filter_ratio": 0.4}
    options |= {"beta": 0.5, "num_iterations": 2, "model": with_adapter()}
    trainer = small_trainer(tmp_path, lottery(draws=3), trainer=Seen, **options)
    trainer.train()
    assert trainer.scored == [8, 8]  # type: ignore[attr-defined]
    assert trainer.computed == [4, 4] * 2  # type: ignore[attr-defined]


def test_every_update_on_a_rollout_gets_its_share_of_the_kept_rows(tmp_path: Path) -> None:
    """Twelve rows for three updates of two micro-batches: one of four rows each, however TRL shuffles them."""
    options = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "steps_per_generation": 6}
    trainer = small_trainer(tmp_path, lottery(), trainer=Seen, filter_ratio=0.5, max_steps=3, **options)
    trainer.train()
    assert trainer.computed == [4, 4, 4]  # type: ignore[attr-defined]


def test_a_rollout_of_which_nothing_is_kept_scores_and_moves_nothing(tmp_path: Path) -> None:
    class Nothing(Seen):
        def select_groups(self, rollout: RolloutBatch) -> list[int]:
            return []

    trainer = small_trainer(tmp_path, lottery(), trainer=Nothing, beta=0.5, max_steps=1, model=with_adapter())
    before = parameters(trainer)
    trainer.train()
    assert trainer.scored == trainer.computed == []  # type: ignore[attr-defined]
    assert all(torch.equal(value, before[name]) for name, value in parameters(trainer).items())
