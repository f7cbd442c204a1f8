"""The public names that `trl_adapter` and `trl_plain` give to TRL's private members, each against TRL itself.

What TRL does with these members by itself is in ``test_trl_contract.py``.
"""

import inspect
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import grpo_trainer

from ragen_trl import StarPOTrainer
from ragen_trl.batching.shared_prefixes import PackedModel
from ragen_trl.policies.model_calls import with_positions
from ragen_trl.trainers.trl.plain import (
    last_rollout,
    load_weights,
    log_training,
    references_divided_by_layer,
    tokenizer_of,
    unwrapped_for_generation,
)
from tests.support.ragen_trl.equivalence import with_adapter
from tests.support.ragen_trl.fake_vllm import fake_of, vllm_trainer
from tests.support.ragen_trl.trainers import SMALL, TOKENIZER, lottery, parameters, small_model, small_trainer

SEEN: list[tuple[list[str], list[float]]] = []


def length(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A reward of one per token."""
    return [float(len(ids)) for ids in completion_ids]


def first(completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
    """The number of the first token; remembers what it was asked and what it gave."""
    rewards = [float(ids[0]) for ids in completion_ids]
    SEEN.append((list(completions), rewards))
    return rewards


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> GRPOTrainer:
    """TRL's own trainer after one update on 8 completions, in two micro-batches."""
    ours = {"think", "max_turns", "max_reply_length", "dataloader_pin_memory"}
    options = {name: value for name, value in SMALL.items() if name not in ours}
    options |= {"max_completion_length": 6, "max_steps": 1, "per_device_train_batch_size": 4}
    options["gradient_accumulation_steps"] = 2
    args = GRPOConfig(str(tmp_path_factory.mktemp("plain")), **options)
    rows = Dataset.from_dict({"prompt": ["Actions: Left", "Actions: Right"]})
    trainer = GRPOTrainer(small_model(), [length, first], args, rows, processing_class=TOKENIZER)
    trainer.train()
    return trainer


def test_the_last_rollout_of_a_plain_trainer(plain: GRPOTrainer) -> None:
    """`CollapseMonitor` reads it: rewards and completions in the same order, all rows in the micro-batches."""
    rollout = last_rollout(plain)
    assert rollout.rewards.shape == (8, 2)
    assert (rollout.completions, rollout.rewards[:, 1].tolist()) == SEEN[-1]
    assert [len(batch["completion_ids"]) for batch in rollout.micro_batches] == [4, 4]
    lengths = [float(n) for batch in rollout.micro_batches for n in batch["completion_mask"].sum(dim=1)]
    assert sorted(lengths) == sorted(rollout.rewards[:, 0].tolist())


def test_the_tokenizer_of_any_trainer(plain: GRPOTrainer, tmp_path: Path) -> None:
    assert tokenizer_of(plain) is TOKENIZER
    trainer = small_trainer(tmp_path, lottery())
    assert tokenizer_of(trainer) is trainer.tokenizer is TOKENIZER


def test_values_logged_in_any_trainer_are_means_since_the_last_row(plain: GRPOTrainer) -> None:
    log_training(plain, {"alert": 1})
    log_training(plain, {"alert": 2, "other": 5})
    plain.model.train()
    plain.log({"loss": 0.0})
    row = plain.state.log_history[-1]
    assert (row["alert"], row["other"]) == (1.5, 5.0)
    plain.log({"loss": 0.0})
    assert "alert" not in plain.state.log_history[-1]


def test_what_is_recorded_added_and_revised_is_what_is_logged(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, lottery())
    trainer.model.train()
    trainer.record("train", {"kl": 1.0, "seconds": 2.0})
    trainer.add_to_last("train", "seconds", 0.5)
    with trainer.revised_metrics({"kl": 10.0}, keep=True):
        trainer.record("train", {"kl": 2.0, "seconds": 3.5})
    with trainer.revised_metrics({}, keep=False):
        trainer.record("train", {"kl": 1000.0})
    trainer.log({})
    row = trainer.state.log_history[-1]
    assert (row["kl"], row["seconds"]) == ((1.0 + 10 * 2.0) / 2, 3.0)


def test_weights_of_a_checkpoint_are_put_back(tmp_path: Path) -> None:
    """`BestCheckpoint` relies on it; the optimizer and the step stay."""
    saved: list[dict[str, torch.Tensor]] = []

    class Saving(StarPOTrainer):
        def save_algorithm_state(self, folder: Path) -> None:
            assert folder == tmp_path / f"checkpoint-{self.state.global_step}"
            assert not (folder / "trainer_state.json").exists()
            saved.append(parameters(self))

    options: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1, "learning_rate": 1e-2}
    trainer = small_trainer(tmp_path, lottery(), trainer=Saving, **options)
    trainer.train()
    assert len(saved) == 2
    assert any(not torch.equal(value, saved[0][name]) for name, value in parameters(trainer).items())
    load_weights(trainer, tmp_path / "checkpoint-1")
    assert all(torch.equal(value, saved[0][name]) for name, value in parameters(trainer).items())
    assert trainer.state.global_step == 2


@pytest.mark.parametrize("shuffled", [True, False])
def test_the_rows_of_rollouts_are_those_that_the_loader_hands_over(tmp_path: Path, shuffled: bool) -> None:
    """A rollout is played ahead of them. TRL's loader has a batch for each micro-batch, equal within a rollout."""
    schedule: dict[str, Any] = {"steps_per_generation": 2, "gradient_accumulation_steps": 1, "num_iterations": 2}
    seeds = None if shuffled else 5
    trainer = small_trainer(tmp_path, lottery(), max_steps=16, num_train_seeds=seeds, **schedule)
    found = trainer.rows_of_rollouts()
    assert [len(rows) for rows in found] == [16] * 4
    handed = [[row["seed"] for row in batch] for batch in trainer.get_train_dataloader()]
    expected = [[trainer.train_dataset[index]["seed"] for index in rows] for rows in found]
    assert handed == [rows for rows in expected for _ in range(4)]
    order = [row for rows in expected for row in rows]
    assert (order == sorted(order)) is False
    assert trainer.shuffle_dataset is shuffled


def test_vllm_is_sent_the_weights_of_a_step_once_and_again_when_they_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = vllm_trainer(tmp_path, monkeypatch, lottery())
    loads = [fake_of(trainer).loads]

    def send() -> None:
        trainer.send_weights()
        loads.append(fake_of(trainer).loads)

    send()
    send()
    trainer.forget_sent_weights()
    send()
    send()
    trainer.state.global_step = 1
    send()
    assert loads == [0, 1, 1, 2, 2, 3]
    for name, value in fake_of(trainer).model.named_parameters():
        assert torch.equal(value, trainer.model.get_parameter(name))


def test_the_table_of_completions_shows_the_advantages_of_the_last_rollout(tmp_path: Path) -> None:
    """TRL's column is as long as a rollout, whatever a filter kept."""
    trainer = small_trainer(tmp_path, lottery(), filter_ratio=0.5, max_steps=1)
    trainer.train()
    assert trainer._logs["advantages"].maxlen == 8
    for shown in ([0.5, -0.5] * 4, [float(place) for place in range(8)]):
        trainer.show_advantages(shown)
        assert list(trainer._logs["advantages"]) == shown


@pytest.mark.parametrize("kind", ["a model of its own", "an adapter switched off", "a copy of the adapter"])
def test_the_reference_scores_as_in_trls_kl_term(tmp_path: Path, kind: str) -> None:
    """`TrajectoryTrainer._add_scores` scores what TRL, outside training, scores itself."""
    batches: list[dict[str, Any]] = []

    class Keeping(StarPOTrainer):
        def score_trajectories(self, rows: Any, played: Any) -> Any:
            self.model.eval()
            batches.append(super().score_trajectories(rows, played)[0])
            self.model.train()
            return super().score_trajectories(rows, played)

    options: dict[str, Any] = {"beta": 0.5, "learning_rate": 1e-2}
    if kind == "a model of its own":
        small_model().save_pretrained(tmp_path / "model")
        options["model"] = str(tmp_path / "model")
    elif kind == "an adapter switched off":
        options["peft_config"] = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    else:
        options["model"] = with_adapter()
    trainer = small_trainer(tmp_path, lottery(), trainer=Keeping, **options)
    trainer.train()
    batch = batches[-1]
    mask = (batch["completion_mask"] * batch["tool_mask"]).bool()
    with torch.no_grad():
        found = trainer.score_reference(batch, 3)
        policy, _ = trainer.score(trainer.model, batch)
    torch.testing.assert_close(found[mask], batch["ref_per_token_logps"][mask])
    assert (policy - found)[mask].abs().max() > 1e-3


def test_the_unwrapped_policy_of_any_trainer(plain: GRPOTrainer) -> None:
    with unwrapped_for_generation(plain) as model:
        assert model is plain.accelerator.unwrap_model(plain.model)


def test_scoring_only_calls_the_model(tmp_path: Path) -> None:
    """In one pass, without positions: so what adds them (``with_positions``, ``PackedModel``) can take its place."""
    trainer = small_trainer(tmp_path, lottery())
    seen: list[dict[str, Any]] = []

    def call(**inputs: Any) -> Any:
        seen.append(inputs)
        return trainer.model(**inputs)

    ids, attention = torch.tensor([[9, 5, 6, 3], [5, 6, 7, 8]]), torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]])
    score = partial(GRPOTrainer._get_per_token_logps_and_entropies, trainer)
    score(call, ids, attention, 2)
    score(with_positions(call, trainer.model, attention), ids, attention, 2)
    expected, _, _ = score(PackedModel(call, trainer.model), ids, attention, 2)
    plain, placed, shared = seen
    assert set(plain) == {"input_ids", "attention_mask", "labels", "fused_lm_head"}
    assert set(placed) - set(plain) == {"position_ids"}
    assert placed["position_ids"].tolist() == [[0, 0, 1, 2], [0, 1, 2, 3]]
    assert set(shared) - set(placed) == {"shift_labels"} and "labels" not in shared
    assert shared["position_ids"].tolist() == [[0, 1, 2]]  # of 5, 6, 7: the rows begin alike
    found, _, _ = score(with_positions(trainer.model, trainer.model, attention), ids, attention, 2)
    torch.testing.assert_close(expected, found)


class Prepared(StarPOTrainer):
    """Remembers what it was when it was asked to begin."""

    def before_training(self) -> None:
        self.begun = (self.optimizer is not None, self.callback_handler.optimizer is not None, self.state.global_step)


def test_an_algorithm_begins_when_the_launch_has_prepared_the_model(tmp_path: Path) -> None:
    """A launch that divides the model does so after the trainer is made, and places it on its device only then."""
    trainer: Any = small_trainer(tmp_path, trainer=Prepared, max_steps=1)
    assert trainer.optimizer is None
    trainer.train()
    assert trainer.begun == (True, True, 0)


def test_trl_divides_a_frozen_reference_by_the_function_that_is_replaced() -> None:
    """What FSDP2 then does with it: ``tests/sharded``."""
    source = inspect.getsource(GRPOTrainer.__init__)
    assert "self.ref_model = prepare_fsdp(self.ref_model, self.accelerator)" in source
    theirs = grpo_trainer.prepare_fsdp
    with references_divided_by_layer():
        assert grpo_trainer.prepare_fsdp is not theirs
    assert grpo_trainer.prepare_fsdp is theirs
