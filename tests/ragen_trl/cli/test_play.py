"""``python -m ragen_trl play --model``: a saved model's episodes, turn by turn."""

from pathlib import Path

import pytest

from ragen_trl.cli.main import main
from tests.support.ragen_trl.trainers import TOKENIZER, small_model


def test_the_episodes_of_a_saved_model_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part in (small_model(), TOKENIZER):
        part.save_pretrained(tmp_path)
    options = ["--env", "ragen/Bandit-v0", "--episodes", "2", "--think", "false", "--max_reply_length", "4"]
    assert main(["play", "--model", str(tmp_path), *options]) == 0
    said = capsys.readouterr().out
    assert said.count("== Bandit-v0, seed") == said.count("Machines: ") == said.count("> <answer>") == 2
    assert said.count("return ") == 2
