"""The monitor in real training: what it logs, and what it does when alerts fire."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from safetensors.torch import load_file
from transformers import TrainerCallback
from trl import GRPOTrainer

from ragen_trl import CollapseMonitor
from ragen_trl.monitoring import collapse_monitor
from ragen_trl.monitoring.collapse_monitor import rollout_measures
from ragen_trl.monitoring.mutual_information import ThoughtPair
from ragen_trl.system.atomic import seal
from ragen_trl.trajectory import Trajectory, Turn
from tests.support.ragen_trl.trainers import TOKENIZER, plain_trainer, rollout_of, small_trainer

DEPENDENCE = {"mi", "mi_sequence", "mi_bound", "mi_retrieval", "mi_chance", "mi_seconds"}


class Story(TrainerCallback):
    """Puts a success of a test's own into the log, before the monitor reads it."""

    def __init__(self, trainer: GRPOTrainer, success: Any) -> None:
        self.trainer, self.success = trainer, success

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        for name in ("success", "eval_success"):
            self.trainer._metrics["train"][name] = [self.success(state.global_step)]


def letters(completions: list[str], **_: Any) -> list[float]:
    return [float(len(completion) % 3) for completion in completions]


def logged(trainer: GRPOTrainer) -> list[set[str]]:
    """The monitor's names in each row of a training step."""
    rows = [row for row in trainer.state.log_history if "loss" in row]
    return [{key.removeprefix("collapse/") for key in row if key.startswith("collapse/")} for row in rows]


def test_measures_of_trajectories_are_logged_and_the_mutual_information_every_so_often(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, max_steps=3)
    trainer.add_callback(CollapseMonitor(trainer, mi_every=2))
    trainer.train()
    first, second, third = logged(trainer)
    assert first >= {"actions_per_turn", "identical_replies", *DEPENDENCE}
    assert not second & DEPENDENCE
    assert third == first
    row = trainer.state.log_history[0]
    assert row["collapse/actions_per_turn"] == pytest.approx(row["actions"] / row["turns"])
    assert row["collapse/mi_chance"] == 0.5  # two groups


def test_a_plain_grpo_trainer_is_measured_by_its_completions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract with TRL: ``_logs`` holds the last rollout, groups contiguous; ``_buffered_inputs`` its tokens."""
    measured: list[ThoughtPair] = []

    def measure(model: Any, pairs: list[ThoughtPair], *others: Any) -> None:
        measured.extend(pairs)

    monkeypatch.setattr(collapse_monitor, "measured_dependence", measure)
    places = [f"Go to {place}." for place in range(8)]
    trainer = plain_trainer(tmp_path, letters, places, max_steps=2, max_completion_length=8)
    trainer.add_callback(CollapseMonitor(trainer, mi_every=2))
    trainer.train()
    first, second = logged(trainer)
    assert first == {"identical_replies", "in_group_std", "mi_seconds"}
    assert second == {"identical_replies", "in_group_std"}
    prompts, rewards = list(trainer._logs["prompt"]), list(trainer._logs["rewards"]["letters"])
    assert prompts[:4] == [prompts[0]] * 4 and prompts[4:] == [prompts[4]] * 4
    assert rewards == letters(list(trainer._logs["completion"]))
    expected = torch.tensor(rewards).view(2, 4).std(dim=1).mean().item()
    assert trainer.state.log_history[1]["collapse/in_group_std"] == pytest.approx(expected, abs=1e-6)
    assert len(measured) == len(prompts)
    assert all(TOKENIZER.decode(pair.prompt).startswith("Go to ") for pair in measured)


TINY: dict[str, Any] = {"max_turns": 1, "max_reply_length": 1, "num_generations": 2, "per_device_train_batch_size": 2}


def collapsing(folder: Path, action: str, **options: Any) -> tuple[Any, CollapseMonitor]:
    """A run of 8 steps that is told to fail from step 5 on; its weights are its own."""
    trainer = small_trainer(folder, **{**TINY, "max_steps": 8, **options})
    trainer.add_callback(Story(trainer, lambda step: 0.5 if step < 5 else 0.0))
    monitor = CollapseMonitor(trainer, action=action, mi_every=0)
    trainer.add_callback(monitor)
    trainer.train()
    return trainer, monitor


def test_a_checkpoint_of_an_earlier_run_in_the_folder_is_never_the_best(tmp_path: Path) -> None:
    for step in (2, 3):
        earlier = tmp_path / f"checkpoint-{step}"
        earlier.mkdir()
        seal(earlier, {"step": step})
    _, monitor = collapsing(tmp_path, "rollback", save_strategy="steps", save_steps=6)
    assert monitor.rolled_back_to == 6


@pytest.mark.parametrize("kind", ["all weights", "LoRA"])
def test_it_rolls_back_to_the_best_checkpoint_with_its_critic_and_stops(tmp_path: Path, kind: str) -> None:
    options: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2, "advantage": "gae", "learning_rate": 1e-2}
    if kind == "LoRA":
        options["peft_config"] = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer, monitor = collapsing(tmp_path, "rollback", **options)
    assert monitor.stopped_at == trainer.state.global_step == 6
    assert [sign["name"] for sign in monitor.summary()["signs"]] == ["eval_success_falls"]
    assert monitor.rolled_back_to == 4  # 2 and 4 are as good; the later one counts
    best, last = tmp_path / "checkpoint-4", tmp_path / "checkpoint-6"
    trainer.save_model(str(tmp_path / "kept"))
    trainer.critic.save(tmp_path / "kept" / "critic.pt")
    name = "adapter_model.safetensors" if kind == "LoRA" else "model.safetensors"
    weights = [load_file(folder / name) for folder in (best, last, tmp_path / "kept")]
    assert same(weights[2], weights[0]) and not same(weights[2], weights[1])
    critics = [
        torch.load(folder / "critic.pt", weights_only=True)["weights"] for folder in (best, last, tmp_path / "kept")
    ]
    assert same(critics[2], critics[0]) and not same(critics[2], critics[1])


def test_a_resumed_run_can_roll_back_to_the_checkpoint_that_it_went_on_from(tmp_path: Path) -> None:
    saved: dict[str, Any] = {**TINY, "save_strategy": "steps", "save_steps": 2}
    for steps, resumed in ((2, None), (8, str(tmp_path / "checkpoint-2"))):
        trainer = small_trainer(tmp_path, max_steps=steps, **saved)
        trainer.add_callback(Story(trainer, lambda step: 0.5 if step < 3 else 0.0))
        monitor = CollapseMonitor(trainer, action="rollback", mi_every=0)
        trainer.add_callback(monitor)
        trainer.train(resume_from_checkpoint=resumed)
    assert (monitor.stopped_at, monitor.rolled_back_to) == (6, 2)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    assert one.keys() == other.keys() and one
    return all(torch.equal(one[name], other[name]) for name in one)


def test_two_processes_measure_what_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three groups of four, the second one half here and half there."""
    generator = torch.Generator().manual_seed(0)

    def said(token: int) -> Turn:
        info = {"actions": ("Up",) * (token % 3)}
        return Turn((1,), (token, token + 1), (), "?", str(token), float(token % 2), info)

    played = [Trajectory((said(int(torch.randint(9, (), generator=generator))),), seed=0) for _ in range(12)]
    alone = rollout_measures(rollout_of(played, 4))
    sent: list[list[Any]] = [[], []]
    for process, mine in enumerate(sent):
        monkeypatch.setattr(collapse_monitor, "gather_object", lambda part, mine=mine: mine.append(part) or part * 2)
        rollout_measures(rollout_of(played, 4, processes=2, process=process))
    for process in (0, 1):
        both = iter([one + other for one, other in zip(*sent, strict=True)])
        monkeypatch.setattr(collapse_monitor, "gather_object", lambda part, both=both: next(both))
        found = rollout_measures(rollout_of(played, 4, processes=2, process=process))
        assert found == pytest.approx(alone, abs=1e-12)
    assert 0 < alone["identical_replies"] < 1
