"""What TRL and Transformers do inside and this package depends on: one test for each seam of ``trl_seams.py``."""

import ast
import inspect
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer
from trl import GRPOTrainer

from ragen_trl import StarPOTrainer, trl_seams
from ragen_trl.batching.shared_prefixes import PackedModel
from ragen_trl.errors import UserError
from ragen_trl.policies.model_calls import with_positions
from ragen_trl.system.atomic import damage, read_manifest, seal
from ragen_trl.training.checkpoints import whole_checkpoints
from ragen_trl.training.launch import load_weights
from ragen_trl.trl_seams import check_seams, last_rollout, log_values
from tests.support.project import ROOT
from tests.support.ragen_trl.trainers import lottery, parameters, plain_trainer, small_trainer


class Recorder(StarPOTrainer):
    """Keeps the rows that TRL hands over with each micro-batch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.handed: list[list[int]] = []
        super().__init__(*args, **kwargs)

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        self.handed.append([row["seed"] for row in generation_batch])
        return super()._prepare_inputs(generation_batch)


def test_every_micro_batch_comes_with_the_rows_of_its_rollout(tmp_path: Path) -> None:
    """Two updates and two passes on each rollout: eight calls with the same 16 rows, four groups of four."""
    split: dict[str, Any] = {"per_device_train_batch_size": 4, "steps_per_generation": 4, "num_iterations": 2}
    trainer: Any = small_trainer(
        tmp_path, lottery(), trainer=Recorder, gradient_accumulation_steps=2, max_steps=8, **split
    )
    trainer.train()
    assert len(trainer.handed) == 16
    for rollout in (trainer.handed[:8], trainer.handed[8:]):
        assert all(rows == rollout[0] for rows in rollout)
        assert [len(set(rollout[0][first : first + 4])) for first in range(0, 16, 4)] == [1] * 4
    assert trainer.handed[0] != trainer.handed[8]


def test_a_seam_that_moved_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = small_trainer(tmp_path, lottery())
    check_seams(trainer)
    for owner, names in ((GRPOTrainer, trl_seams._METHODS), (Trainer, trl_seams._OF_TRANSFORMERS)):
        for name in names:
            with monkeypatch.context() as patch:
                for kind in owner.__mro__:  # also where TRL overrides what is Transformers'
                    if name in vars(kind):
                        patch.delattr(kind, name)
                with pytest.raises(UserError, match=rf"has no {owner.__name__}\.{name}\b.*; install "):
                    check_seams(trainer)
    with monkeypatch.context() as patch:
        patch.setattr(GRPOTrainer, "_calculate_rewards", lambda self, rows, prompts, completions: None)
        with pytest.raises(UserError, match=r"_calculate_rewards\(inputs, completion_ids_list\)"):
            check_seams(trainer)
    del trainer._logs
    with pytest.raises(UserError, match="has no GRPOTrainer._logs"):
        check_seams(trainer)


def test_rewards_are_those_of_all_functions_with_what_they_logged(tmp_path: Path) -> None:
    """``None`` is NaN. ``log_metric`` comes back; it and ``log_extra`` are empty afterwards."""

    def judge(completions: Any, log_metric: Any, log_extra: Any, **_: Any) -> list[float | None]:
        log_metric("asked", len(completions))
        log_extra("letter", ["a", "b"])
        return [None, 2.0]

    trainer = small_trainer(tmp_path, lottery(), reward_funcs=[judge])
    rows = [{"seed": seed, "episode_return": float(seed), "trajectory": None} for seed in (3, 4)]
    prompts = [[{"role": "user", "content": "?"}]] * 2
    completions = [[{"role": "assistant", "content": "!"}]] * 2
    for _ in range(2):
        rewards, metrics = trl_seams.rewards_by_function(trainer, rows, prompts, completions, [[1], [2]])
        assert rewards[:, 0].tolist() == [3.0, 4.0] and rewards[0, 1].isnan() and rewards[1, 1] == 2.0
        assert metrics == {"asked": 2.0} and not trainer._pending_extra_logs


def test_only_the_last_columns_are_scored(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, lottery())
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    logprobs, entropies, _ = trainer._get_per_token_logps_and_entropies(
        trainer.model, ids, torch.ones_like(ids), 2, compute_entropy=True
    )
    logits = trainer.model(ids).logits[0].log_softmax(-1)  # row t predicts token t + 1
    expected = torch.stack([logits[2, 4], logits[3, 5]])
    torch.testing.assert_close(logprobs[0], expected)
    torch.testing.assert_close(entropies[0], -(logits.exp() * logits).sum(-1)[2:4])
    entropies.sum().backward()  # our bonus is a term of the loss, so TRL's fused head must not detach them
    assert any(value.grad is not None and bool(value.grad.any()) for value in trainer.model.parameters())


# Who uses private members

# Class attributes that the model card reads: each trainer sets its own.
OF_THE_CARD = {"_tag_names", "_name", "_paper"}
FOREIGN = {"trainer", "model", "policy", "config", "tokenizer", "GRPOConfig", "GRPOTrainer", "Trainer", "super"}
# Private members of models and configurations, which the packages before the trainers and the commands use.
EXCEPTIONS = {("policies/model_calls.py", "_attn_implementation"), ("policies/models.py", "_attn_implementation")}


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


# Of Transformers' trainer: when a checkpoint is loaded and written, where a run goes, the norm of the gradient.
OF_TRANSFORMERS = {
    *("_prepare_for_training", "_save_checkpoint", "_get_output_dir", "_get_grad_norm", "_save", "_load_best_model")
}
OURS = {"trl_seams.py", "trainer.py", "training/launch.py"}


def test_only_the_seams_use_private_members_of_trl() -> None:
    """At most ten of TRL's; and no attribute of a trainer of ours has by accident the name of one of theirs."""
    package, trls = ROOT / "ragen_trl", of_trl() - OF_THE_CARD
    found = set()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        of_self = trls if name.startswith(("trainer", "training/", "astar_po/")) else set()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found |= {(name, private) for private in private_names(tree, of_self)}
    assert {one for one in found if one[0] not in OURS} == EXCEPTIONS
    used = {private for name, private in found if name in OURS} - OF_TRANSFORMERS
    table = set(re.findall(r"``(_\w+)``", str(trl_seams.__doc__)))
    assert used - {"_n_gpu"} <= table and len(table) <= 10


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
    options = {"max_completion_length": 6, "max_steps": 1, "per_device_train_batch_size": 4}
    options["gradient_accumulation_steps"] = 2
    prompts = ["Actions: Left", "Actions: Right"]
    trainer = plain_trainer(tmp_path_factory.mktemp("plain"), [length, first], prompts, **options)
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
    log_values(plain, "train", {"alert": 1})
    log_values(plain, "train", {"alert": 2, "other": 5})
    plain.model.train()
    plain.log({"loss": 0.0})
    row = plain.state.log_history[-1]
    assert (row["alert"], row["other"]) == (1.5, 5.0)
    plain.log({"loss": 0.0})
    assert "alert" not in plain.state.log_history[-1]


def test_a_manifest_is_the_last_file_of_a_checkpoint_whose_weights_can_be_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transformers deletes no checkpoint before: this trainer does, when the new one is whole."""
    saved: list[dict[str, torch.Tensor]] = []
    mask = os.umask(0o027)

    class Saving(StarPOTrainer):
        def save_algorithm_state(self, folder: Path) -> None:
            assert folder == tmp_path / f"checkpoint-{self.state.global_step}"
            saved.append(parameters(self))

    def listing(found: Path, facts: dict[str, Any], *files: str) -> None:
        there.append({path.name for path in tmp_path.glob("checkpoint-*")})
        seal(found, facts, *files)

    there: list[set[str]] = []
    monkeypatch.setattr("ragen_trl.training.checkpoints.seal", listing)
    options: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1, "learning_rate": 1e-2, "max_steps": 3}
    trainer = small_trainer(tmp_path, lottery(), trainer=Saving, save_total_limit=2, log_kl=True, **options)
    trainer.train()
    os.umask(mask)
    assert there == [{"checkpoint-1"}, {"checkpoint-1", "checkpoint-2"}, {f"checkpoint-{step}" for step in (1, 2, 3)}]
    folder = tmp_path / "checkpoint-2"
    assert sorted(whole_checkpoints(tmp_path)) == [2, 3]
    files = {path.name: path for path in folder.iterdir()}
    assert read_manifest(folder)["files"].keys() == files.keys() - {"manifest.json"}
    assert {"model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"} <= files.keys()
    assert {oct(path.stat().st_mode & 0o777) for path in files.values()} == {"0o640"}
    assert any(not torch.equal(value, saved[1][name]) for name, value in parameters(trainer).items())
    trainer.save_model()  # beside the checkpoints
    assert damage(tmp_path) == "" and not any("/" in name for name in read_manifest(tmp_path)["files"])
    load_weights(trainer, folder)
    assert all(torch.equal(value, saved[1][name]) for name, value in parameters(trainer).items())
    assert trainer.state.global_step == 3  # the optimizer and the step stay


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
