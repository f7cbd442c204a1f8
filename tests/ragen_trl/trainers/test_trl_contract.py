"""What TRL and Transformers do inside and this package depends on: one test for each point in `trl_adapter`.

When one of these fails after an upgrade, the test names the code that relies on it. The public names that the adapter
gives to these members are tested in ``test_trl_adapter.py``.
"""

import ast
import inspect
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerState
from trl import GRPOTrainer
from trl.scripts.vllm_serve import ScriptArguments, build_command

from ragen_trl import StarPOTrainer, Trajectory
from tests.support.project import ROOT, VECTORS
from tests.support.ragen_trl.trainers import lottery, small_trainer


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


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    trainer = small_trainer(tmp_path_factory.mktemp("run"), trainer=Recorder, max_steps=1)
    trainer.train()
    assert isinstance(trainer, Recorder)
    return trainer


def test_rows_arrive_repeated_with_groups_contiguous(recorded: Recorder) -> None:
    """`RolloutTrainer._starts` and `group_advantages` take consecutive rows for a group."""
    seeds = [row["seed"] for row in recorded.rows[0]]
    assert len(seeds) == 8
    assert all(len(set(seeds[i : i + 4])) == 1 for i in (0, 4))
    assert seeds[0] != seeds[4]


def test_env_mask_becomes_the_tool_mask(recorded: Recorder) -> None:
    """`to_rollout_output` returns it and the loss multiplies by it, and by the completion mask: TRL pads it with 1."""
    (batch,) = recorded.generated
    for i, trajectory in enumerate(recorded.played):
        first = len(trajectory.turns[0].prompt_ids)
        mask = batch["tool_mask"][i] * batch["completion_mask"][i]
        expected = trajectory.action_mask[first:]
        assert mask.tolist() == [*expected, *[0] * (len(mask) - len(expected))]


def test_sampling_logprobs_are_kept(recorded: Recorder) -> None:
    """`TrajectoryTrainer.training_loss` compares them with the trained ones."""
    (batch,) = recorded.generated
    first = recorded.played[0].turns[0]
    torch.testing.assert_close(
        batch["sampling_per_token_logps"][0][: len(first.reply_ids)], torch.tensor(first.logprobs)
    )


def test_rewards_are_those_of_all_processes(recorded: Recorder) -> None:
    """`TRLAdapter.score_trajectories` returns them, and raw returns are made of them."""
    assert recorded.rewards[:, 0].tolist() == pytest.approx([t.episode_return for t in recorded.played])


def test_reward_functions_receive_the_lists_that_a_rollout_returns(tmp_path: Path) -> None:
    """`to_rollout_output` returns ``trajectory``, which the functions of ``rewards.py`` read."""
    seen: list[Any] = []

    def spy(trajectory: list[Any], completion_ids: list[list[int]], **_: Any) -> list[float]:
        seen.append((list(trajectory), completion_ids))
        return [0.0] * len(trajectory)

    trainer = small_trainer(tmp_path, trainer=Recorder, max_steps=1, reward_funcs=[spy])
    trainer.train()
    ((trajectories, completions),) = seen
    assert trajectories == trainer.played
    first = [len(one.turns[0].prompt_ids) for one in trajectories]
    assert completions == [list(one.token_ids[start:]) for one, start in zip(trajectories, first, strict=True)]


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
    """`TRLAdapter.score` asks for the completion; ``test_memory.py`` sees to it that logits come in tiles."""
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


def test_delta_is_the_dual_clip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL's two-sided clip with ``delta=3`` is verl's dual clip with c = 3."""
    trainer = small_trainer(tmp_path, lottery(), loss_type="dapo", epsilon=0.2, epsilon_high=0.28, delta=3.0)
    for case in json.loads(VECTORS.read_text())["ppo_clip"]:
        ratio = torch.tensor(case["inputs"]["ratio"], dtype=torch.float64)
        inputs = {"logp": [[ratio.log().item()]], "old_logp": [[0.0]], "mask": [[1.0]]}
        loss = loss_of(trainer, monkeypatch, {**inputs, "adv": [[case["inputs"]["advantage"]]]})
        assert loss.item() == pytest.approx(case["expected"]["dual_clip_c3"], abs=1e-9), case["inputs"]


@pytest.mark.parametrize(("loss_type", "steps", "divisor"), [("grpo", 4, 4.0), ("dr_grpo", 4, 4.0), ("dapo", 4, 2.0)])
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


def test_trls_entropy_bonus_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`TrajectoryTrainer` replaces it: TRL's is a mean per micro-batch."""
    case = {"logp": [[-1.0]], "old_logp": [[-1.0]], "mask": [[1.0]], "adv": [[1.0]]}
    trainer = small_trainer(tmp_path, lottery(), entropy_coef=0.5)
    assert not trainer._entropy_bonus_enabled

    def loss(enabled: bool) -> float:
        trainer._entropy_bonus_enabled = enabled
        return loss_of(trainer, monkeypatch, dict(case), entropy=2.0).item()

    assert loss(False) == pytest.approx(-1.0)
    assert loss(True) == pytest.approx(-2.0)  # minus 0.5 · 2


def test_a_loss_logs_one_mean_over_the_tokens_of_its_micro_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`TrajectoryTrainer.training_loss` weighs these means by the micro-batch's share. Of 3 tokens 1 is clipped."""
    case = {"logp": [[-1.0, -1.0, -1.0]], "old_logp": [[-2.0, -1.0, -1.0]], "mask": [[1.0] * 3], "adv": [[1.0] * 3]}
    trainer = small_trainer(tmp_path, lottery())
    loss_of(trainer, monkeypatch, case, entropy=2.0)
    metrics = trainer._metrics["train"]
    assert metrics["entropy"] == [2.0]
    assert metrics["clip_ratio/high_mean"] == [pytest.approx(1 / 3)]


def test_the_rows_of_an_evaluation_come_in_order(tmp_path: Path) -> None:
    """`TRLAdapter._get_eval_sampler`; TRL's own would shuffle them."""
    options: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 1, "num_eval_seeds": 16}
    trainer = small_trainer(tmp_path, lottery(), **options)
    seeds = [row["seed"] for rows in trainer.get_eval_dataloader() for row in rows]
    assert seeds == sorted(seeds) and len(set(seeds)) == 16


def test_the_model_card_reads_three_class_attributes(tmp_path: Path) -> None:
    assert {"_tag_names", "_name", "_paper"} <= vars(GRPOTrainer).keys()
    trainer = small_trainer(tmp_path, lottery())
    trainer.create_model_card(model_name="learner")
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert all(tag in card for tag in StarPOTrainer._tag_names)
    assert "trained with StarPO" in card
    assert "https://huggingface.co/papers/2504.20073" in card


def test_entropies_have_a_gradient(tmp_path: Path) -> None:
    """Our bonus is a term of the loss, so TRL's fused head must not detach them."""
    trainer = small_trainer(tmp_path, lottery(), trainer=Recorder, max_steps=1)
    ids = torch.tensor([[1, 2, 3]])
    _, entropies, _ = trainer._get_per_token_logps_and_entropies(
        trainer.model, ids, torch.ones_like(ids), 2, compute_entropy=True
    )
    entropies.sum().backward()
    assert any(value.grad is not None and bool(value.grad.any()) for value in trainer.model.parameters())


def test_a_forward_pass_gets_the_micro_batch_of_its_step(tmp_path: Path) -> None:
    """`TRLAdapter._prepare_inputs` returns the first one itself, since it has regrouped them."""
    seen: list[Any] = []

    class Spy(Recorder):
        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
            seen.append(inputs)
            return super()._compute_loss(model, inputs)

    options: dict[str, Any] = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
    trainer = small_trainer(tmp_path, trainer=Spy, max_steps=2, **options)
    trainer.train()
    assert isinstance(trainer, Spy)
    expected = [batch for batches in trainer.split for batch in batches]
    assert [id(batch["completion_ids"]) for batch in seen] == [id(batch["completion_ids"]) for batch in expected]


def test_the_page_starts_a_server_as_trl_does() -> None:
    """``trl vllm-serve``, which the page named, is deprecated; it starts this command with these options."""
    page = (ROOT / "docs" / "several_gpus.md").read_text(encoding="utf-8")
    command = build_command(ScriptArguments(model="m"))
    imposed = shlex.join(command[command.index("--weight-transfer-config") :])
    assert imposed.startswith("--weight-transfer-config '{\"backend\": \"nccl\"}' --logprobs-mode processed_logprobs")
    assert "VLLM_SERVER_DEV_MODE=1 CUDA_VISIBLE_DEVICES=0 vllm serve" in page and imposed in page
    assert "trl vllm-serve" not in page


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
