"""Our own metrics go wherever TRL's ``report_to`` says; TensorBoard stands for all of them."""

from pathlib import Path

import pytest

from tests.support.ragen_trl.trainers import small_trainer

EventAccumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
).EventAccumulator


def test_what_is_logged_of_rollouts_reaches_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    trainer = small_trainer(tmp_path / "run", report_to="tensorboard", max_steps=2)
    trainer.train()
    board = EventAccumulator(str(tmp_path / "board"))
    board.Reload()
    rows = [row for row in trainer.state.log_history if "success" in row]
    for name in ("success", "return", "filter/in_group_std"):
        found = board.Scalars(f"train/{name}")
        assert [event.step for event in found] == [1, 2]
        assert [event.value for event in found] == pytest.approx([row[name] for row in rows])
