"""How a model plays is recorded beside it, by scripts as by commands, and noticed where it is to play otherwise."""

import logging
from pathlib import Path

import pytest

from ragen_trl.rollout.environments import load_play_options
from tests.support.ragen_trl.trainers import TOKENIZER, small_trainer

LAKE = "ragen/FrozenLake-v0"


def test_a_trainer_records_how_it_played_and_says_what_the_next_does_otherwise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: only the commands did, and a warm start without thoughts was trained with thoughts without a word."""
    first = small_trainer(tmp_path / "a", LAKE, think=False, max_steps=1, save_strategy="steps", save_steps=1)
    first.train()
    first.save_model(str(tmp_path / "saved"))
    for folder in (tmp_path / "saved", tmp_path / "a" / "checkpoint-1"):
        found = load_play_options(str(folder))
        assert (found["env"], found["think"]) == (LAKE, False)
    TOKENIZER.save_pretrained(tmp_path / "saved")
    with caplog.at_level(logging.WARNING, logger="ragen_trl"):
        small_trainer(tmp_path / "b", LAKE, model=str(tmp_path / "saved"), think=False)
        assert caplog.messages == []
        small_trainer(tmp_path / "c", LAKE, model=str(tmp_path / "saved"), think=True)
    assert caplog.messages == [
        f"{tmp_path / 'saved'} has learnt to play in another way, says its play.json: think is True, and was False"
    ]
