"""An engine in the trainer's process that sleeps in updates (``vllm_enable_sleep_mode``). No GPU: the engine is a fake.

vLLM itself cannot sleep on a CPU. So the fake says when it was put to sleep and woken, and refuses what a sleeping
engine cannot do.
"""

from pathlib import Path
from typing import Any

import pytest

from ragen_trl import StarPOSConfig
from ragen_trl.trainers.trajectory import TrajectoryTrainer
from tests.support.ragen_trl import fake_vllm
from tests.support.ragen_trl.equivalence import timeless
from tests.support.ragen_trl.fake_vllm import FakeLLM, FakeModel, vllm_trainer
from tests.support.ragen_trl.trainers import lottery


class SleepingLLM(FakeLLM):
    """Asleep at first, as TRL leaves an engine.

    Attributes:
        calls: What it was told, in order; "played" once for several turns in a row.
    """

    def __init__(self, fake: FakeModel, max_model_len: int) -> None:
        super().__init__(fake, max_model_len)
        self.awake: set[str] = set()
        self.calls: list[str] = []
        load = fake.load

        def checked(name: str, value: Any) -> None:
            assert "weights" in self.awake, "it has no memory for weights"
            load(name, value)

        fake.load = checked  # type: ignore[method-assign]

    def sleep(self, level: int) -> None:
        """Level 2 drops the weights."""
        self.awake.clear()
        for value in self.fake.model.parameters():
            value.data.fill_(float("nan"))
        self.calls.append(f"sleep {level}")

    def wake_up(self, tags: list[str]) -> None:
        """In part."""
        self.awake |= set(tags)
        self.calls.append(f"wake {' '.join(tags)}")

    def generate(self, *given: Any, **named: Any) -> list[Any]:
        """As always, if it is awake."""
        assert self.awake == {"weights", "kv_cache"}
        if self.calls[-1] != "played":
            self.calls.append("played")
        return super().generate(*given, **named)


ROLLOUT = ["wake weights", "wake kv_cache", "played", "sleep 2"]


@pytest.mark.parametrize("refills", [0, 4])
def test_it_sleeps_from_a_rollout_with_its_refills_to_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refills: int
) -> None:
    monkeypatch.setattr(fake_vllm, "FakeLLM", SleepingLLM)
    options: dict[str, Any] = {"max_steps": 3, "learning_rate": 1e-2, "max_reply_length": 3}
    if refills:
        options |= {"config": StarPOSConfig, "filter_ratio": 1.0, "num_generations": 2, "max_refills": refills}
    runs = [
        vllm_trainer(tmp_path / str(sleeps), monkeypatch, lottery(), vllm_enable_sleep_mode=sleeps, **options)
        for sleeps in (True, False)
    ]
    llm = runs[0].vllm_generation.llm
    runs[1].vllm_generation.llm.awake = {"weights", "kv_cache"}  # as an engine without the mode
    runs[1].vllm_generation.llm.calls = [""]
    learns = TrajectoryTrainer.training_loss

    def asleep(trainer: Any, *given: Any) -> Any:
        assert trainer is not runs[0] or not llm.awake
        return learns(trainer, *given)

    monkeypatch.setattr(TrajectoryTrainer, "training_loss", asleep)
    for trainer in runs:
        trainer.train()
    assert llm.calls == ROLLOUT * 3
    losses = [[row["loss"] for row in timeless(trainer) if "loss" in row] for trainer in runs]
    assert losses[0] == losses[1] and len(losses[0]) == 3


def test_what_plays_between_updates_wakes_it_with_the_weights_of_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_vllm, "FakeLLM", SleepingLLM)
    options: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 1, "num_eval_seeds": 8, "max_reply_length": 3}
    trainer = vllm_trainer(tmp_path, monkeypatch, lottery(), vllm_enable_sleep_mode=True, max_steps=2, **options)
    trainer.train()
    evaluation = ["wake weights", "wake kv_cache", "played"]  # and the next rollout, on the same weights
    assert trainer.vllm_generation.llm.calls == [*ROLLOUT, *evaluation, "sleep 2", *evaluation]
