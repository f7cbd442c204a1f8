"""What TRL and Transformers do inside and this package depends on: one test for each seam, and for its public name."""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import TrainerState
from trl import GRPOConfig, GRPOTrainer

from ragen_trl import StarPOTrainer, Trajectory
from ragen_trl.batching.shared_prefixes import PackedModel
from ragen_trl.policies.model_calls import with_positions
from ragen_trl.trainers.trl.plain import (
    last_rollout,
    load_weights,
    log_training,
)
from tests.support.project import ROOT, VECTORS
from tests.support.ragen_trl.trainers import SMALL, TOKENIZER, lottery, parameters, small_model, small_trainer


class Recorder(StarPOTrainer):
    """Keeps what TRL passes to its private methods."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.rows: list[Any] = []
        self.generated: list[dict[str, Any]] = []
        self.split: list[list[dict[str, Any]]] = []
        self.played: list[Trajectory] = []
        self.rewards = torch.empty(0)
        self.scored: list[int | None] = []
        self.losses = 0
        super().__init__(*args, **kwargs)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self.rows.append(inputs)
        return super()._generate_and_score_completions(inputs)

    def score_trajectories(self, rows: Any, played: Any) -> Any:
        self.played = list(played)
        batch, self.rewards = super().score_trajectories(rows, played)
        return batch, self.rewards

    def _learn_from(self, rollout: Any, kept: Any) -> dict[str, Any]:
        self.generated.append(dict(rollout.batch))
        return super()._learn_from(rollout, kept)

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if self._buffered_inputs is not before:
            self.split.append(list(self._buffered_inputs))
        return inputs

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        self.scored.append(kwargs.get("batch_size"))
        return super()._get_per_token_logps_and_entropies(*args, **kwargs)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self.losses += 1
        return super()._compute_loss(model, inputs)


def test_what_a_rollout_is_made_of(tmp_path: Path) -> None:
    """Consecutive rows are a group; ``env_mask`` becomes the tool mask, which TRL pads with 1; the rest is kept."""
    recorded: Any = small_trainer(tmp_path, trainer=Recorder, max_steps=1)
    recorded.train()
    seeds = [row["seed"] for row in recorded.rows[0]]
    assert [len(set(seeds[i : i + 4])) for i in (0, 4)] == [1, 1] and seeds[0] != seeds[4] and len(seeds) == 8
    (batch,) = recorded.generated
    for i, trajectory in enumerate(recorded.played):
        first = len(trajectory.turns[0].prompt_ids)
        mask = batch["tool_mask"][i] * batch["completion_mask"][i]
        expected = trajectory.action_mask[first:]
        assert mask.tolist() == [*expected, *[0] * (len(mask) - len(expected))]
        sampled = torch.tensor(trajectory.turns[0].logprobs)
        torch.testing.assert_close(batch["sampling_per_token_logps"][i][: len(sampled)], sampled)
    assert recorded.rewards[:, 0].tolist() == pytest.approx([one.episode_return for one in recorded.played])


def unpadded(batch: dict[str, Any]) -> list[tuple[int, ...]]:
    """The completions of a batch."""
    pairs = zip(batch["completion_ids"], batch["completion_mask"], strict=True)
    return [tuple(ids[mask.bool()].tolist()) for ids, mask in pairs]


def test_what_was_generated_is_split_into_buffered_micro_batches(tmp_path: Path) -> None:
    """`TRLAdapter` passes ``_buffered_inputs`` to `prepare_micro_batches` when they are new."""
    options: dict[str, Any] = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
    trainer = small_trainer(tmp_path, trainer=Recorder, max_steps=2, **options)
    trainer.train()
    assert isinstance(trainer, Recorder)
    assert [len(batches) for batches in trainer.split] == [4, 4]
    for generated, batches in zip(trainer.generated, trainer.split, strict=True):
        rows = [row for batch in batches for row in unpadded(batch)]
        assert sorted(rows) == sorted(unpadded(generated))
        assert all(len(batch["completion_ids"]) == 2 for batch in batches)
        assert all(batch["step_trajectories"].item() == 8 for batch in batches)


def test_a_loss_asks_for_log_probabilities_once(tmp_path: Path) -> None:
    """`TRLAdapter.recorded_scores` records the answer, for the entropy bonus and the ratio."""
    trainer = small_trainer(tmp_path, lottery(), trainer=Recorder, max_steps=2)
    trainer.train()
    assert isinstance(trainer, Recorder)
    assert (trainer.losses, trainer.scored) == (2, [None, None])  # on-policy: none for old log-probabilities


def test_a_whole_rollout_is_scored_with_a_batch_size(tmp_path: Path) -> None:
    """`TRLScoring` gives zeros for it: here the old log-probabilities."""
    sizes: dict[str, Any] = {"per_device_train_batch_size": 4, "steps_per_generation": 2}
    trainer = small_trainer(tmp_path, lottery(), trainer=Recorder, max_steps=2, num_iterations=2, **sizes)
    trainer.train()
    assert isinstance(trainer, Recorder)
    assert trainer.scored == [4, None, None]  # TRL asks and gets zeros; the kept rows are scored without its asking


def test_only_the_last_columns_are_scored(tmp_path: Path) -> None:
    """`TRLAdapter.score` asks for the completion."""
    trainer = small_trainer(tmp_path, lottery())
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    logprobs, entropies, _ = trainer._get_per_token_logps_and_entropies(
        trainer.model, ids, torch.ones_like(ids), 2, compute_entropy=True
    )
    logits = trainer.model(ids).logits[0].log_softmax(-1)  # row t predicts token t + 1
    expected = torch.stack([logits[2, 4], logits[3, 5]])
    torch.testing.assert_close(logprobs[0], expected)
    torch.testing.assert_close(entropies[0], -(logits.exp() * logits).sum(-1)[2:4])


def test_the_trainer_state_is_the_last_file_of_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`last_whole_checkpoint` takes a readable trainer_state.json as the sign that all else was written."""
    written: list[set[str]] = []
    save = TrainerState.save_to_json

    def spy(self: TrainerState, path: str) -> None:
        written.append({file.name for file in Path(path).parent.iterdir()})
        save(self, path)

    monkeypatch.setattr(TrainerState, "save_to_json", spy)
    trainer = small_trainer(tmp_path, lottery(), max_steps=1, save_strategy="steps", save_steps=1)
    trainer.train()
    after = {file.name for file in (tmp_path / "checkpoint-1").iterdir()}
    assert after - written[0] == {"trainer_state.json"}
    assert {"model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"} <= written[0]


def loss_of(
    trainer: StarPOTrainer, monkeypatch: pytest.MonkeyPatch, case: dict[str, Any], entropy: float = 0.0
) -> torch.Tensor:
    """TRL's loss for given log-probabilities, with its gradient left in ``logp.grad``."""
    logp = torch.tensor(case["logp"], dtype=torch.float64, requires_grad=True)
    case["leaf"] = logp
    monkeypatch.setattr(
        trainer, "_get_per_token_logps_and_entropies", lambda *a, **k: (logp, torch.full_like(logp, entropy), None)
    )
    mask = torch.tensor(case["mask"], dtype=torch.float64)
    rows = logp.shape[0]
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    return GRPOTrainer._compute_loss(
        trainer,
        trainer.model,
        {
            "prompt_ids": torch.zeros((rows, 1), dtype=torch.long),
            "prompt_mask": torch.ones((rows, 1), dtype=torch.long),
            "completion_ids": torch.zeros(logp.shape, dtype=torch.long),
            "completion_mask": mask,
            "tool_mask": torch.ones_like(mask),
            "advantages": torch.tensor(case["adv"], dtype=torch.float64),
            "old_per_token_logps": torch.tensor(case["old_logp"], dtype=torch.float64),
            "num_items_in_batch": mask.sum(),
        },
    )


def test_loss_takes_an_advantage_per_token_and_clips_asymmetrically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """StarPO-S's clip-higher is TRL's own; ``losses.py`` needs none of it. Vector ps1: ε 0.2 and 0.28."""
    (case,) = json.loads(VECTORS.read_text())["ppo_sequence"]
    inputs = dict(case["inputs"])
    for loss_type, expected in (("grpo", "seq_mean_token_mean"), ("dapo", "token_mean")):
        trainer = small_trainer(tmp_path, lottery(), loss_type=loss_type, epsilon=0.2, epsilon_high=0.28)
        loss = loss_of(trainer, monkeypatch, inputs)
        assert loss.item() == pytest.approx(case["expected"][expected], abs=1e-9)
    loss.backward()
    gradient = torch.tensor(case["expected"]["grad_logp_token_mean"], dtype=torch.float64)
    torch.testing.assert_close(inputs["leaf"].grad, gradient, atol=1e-9, rtol=0.0)


@pytest.mark.parametrize(("loss_type", "steps", "divisor"), [("grpo", 4, 4.0), ("dapo", 4, 2.0)])
def test_losses_divide_by_the_accumulation_or_by_the_token_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss_type: str, steps: int, divisor: float
) -> None:
    """`add_step_totals` relies on it.

    Of 8 micro-batches 4 make a step: a mean over rows is divided by 4. All of them together are said to hold 4 times
    the tokens of this one, and so a step twice as many, by which a sum over tokens is divided.
    """
    case = {"logp": [[-1.0, -2.0]], "old_logp": [[-1.0, -2.0]], "mask": [[1.0, 1.0]], "adv": [[0.5, 1.5]]}
    trainer = small_trainer(tmp_path, lottery(), loss_type=loss_type)
    alone = loss_of(trainer, monkeypatch, dict(case)).item()
    prepared = GRPOTrainer._compute_loss

    def accumulated(self: Any, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self.current_gradient_accumulation_steps = steps
        self.args.steps_per_generation = 2 * steps
        inputs["num_items_in_batch"] = inputs["num_items_in_batch"] * 4
        return prepared(self, model, inputs)

    monkeypatch.setattr(GRPOTrainer, "_compute_loss", accumulated)
    assert loss_of(trainer, monkeypatch, dict(case)).item() == pytest.approx(alone / divisor)


def test_entropies_have_a_gradient(tmp_path: Path) -> None:
    """Our bonus is a term of the loss, so TRL's fused head must not detach them."""
    trainer = small_trainer(tmp_path, lottery(), trainer=Recorder, max_steps=1)
    ids = torch.tensor([[1, 2, 3]])
    _, entropies, _ = trainer._get_per_token_logps_and_entropies(
        trainer.model, ids, torch.ones_like(ids), 2, compute_entropy=True
    )
    entropies.sum().backward()
    assert any(value.grad is not None and bool(value.grad.any()) for value in trainer.model.parameters())


# Who uses private members

# Class attributes that the model card reads: each trainer sets its own.
OF_THE_CARD = {"_tag_names", "_name", "_paper"}
FOREIGN = {"trainer", "model", "policy", "config", "tokenizer", "GRPOConfig", "GRPOTrainer", "Trainer", "super"}
# Private members of models and configurations, which the packages before the trainers and the commands use.
EXCEPTIONS = {
    ("cli/options.py", "_VALID_DICT_FIELDS"),
    ("config/starpo.py", "_VALID_DICT_FIELDS"),
    ("credit/critic_networks.py", "_attn_implementation"),
    ("policies/model_calls.py", "_attn_implementation"),
    ("policies/model_support.py", "_attn_implementation"),
    ("policies/model_support.py", "_is_stateful"),
}


def of_trl() -> set[str]:
    """The private methods and attributes of TRL's trainer."""
    code = "".join(inspect.getsource(kind) for kind in GRPOTrainer.__mro__[:-1])
    names = {*dir(GRPOTrainer), *re.findall(r"\bself\.(_\w+)", code)}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def private_names(tree: ast.AST, of_self: set[str]) -> Iterator[str]:
    """Private names in a module that TRL or Transformers own; of those of `self` only the ones named."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = node.value.func if isinstance(node.value, ast.Call) else node.value
            name = getattr(owner, "attr", getattr(owner, "id", ""))
            if name == "self" or name == "super":
                if node.attr in of_self:
                    yield node.attr
            elif name in FOREIGN:
                yield node.attr
        elif isinstance(node, ast.ClassDef):
            yield from (one.name for one in node.body if isinstance(one, ast.FunctionDef) and one.name in of_self)


def test_only_the_adapters_use_private_members_of_trl_and_transformers() -> None:
    """And no attribute of a trainer of ours has by accident the name of one of TRL's."""
    package, trls = ROOT / "ragen_trl", of_trl() - OF_THE_CARD
    found = set()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        of_self = trls if name.startswith(("trainers/", "astar_po/")) else set()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found |= {(name, private) for private in private_names(tree, of_self)}
    assert {private for name, private in found if name == "trainers/trl/adapter.py"} >= {"_compute_loss", "_metrics"}
    assert {one for one in found if not one[0].startswith("trainers/trl/")} == EXCEPTIONS


# The public names that `trl_adapter` and `trl_plain` give to TRL's private members, each against TRL itself

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


def test_values_logged_in_any_trainer_are_means_since_the_last_row(plain: GRPOTrainer) -> None:
    log_training(plain, {"alert": 1})
    log_training(plain, {"alert": 2, "other": 5})
    plain.model.train()
    plain.log({"loss": 0.0})
    row = plain.state.log_history[-1]
    assert (row["alert"], row["other"]) == (1.5, 5.0)
    plain.log({"loss": 0.0})
    assert "alert" not in plain.state.log_history[-1]


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


def test_the_rows_of_rollouts_are_those_that_the_loader_hands_over(tmp_path: Path) -> None:
    """A rollout is played ahead of them. TRL's loader has a batch for each micro-batch, equal within a rollout."""
    schedule: dict[str, Any] = {"steps_per_generation": 2, "gradient_accumulation_steps": 1, "num_iterations": 2}
    trainer = small_trainer(tmp_path, lottery(), max_steps=16, num_train_seeds=5, **schedule)
    found = trainer.rows_of_rollouts()
    assert [len(rows) for rows in found] == [16] * 4
    handed = [[row["seed"] for row in batch] for batch in trainer.get_train_dataloader()]
    expected = [[trainer.train_dataset[index]["seed"] for index in rows] for rows in found]
    assert handed == [rows for rows in expected for _ in range(4)]


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
