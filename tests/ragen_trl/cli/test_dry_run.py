"""``--dry-run``: what is counted, and that nothing is made."""

from pathlib import Path

import pytest

from ragen_trl.cli.main import main

OPTIONS = "--max_steps 5 --per_device_train_batch_size 8 --num_generations 4 --eval_episodes 16".split()


def plan(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """What a dry run prints, its white space made plain."""
    assert main([*argv, "--dry-run"]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_plan_of_a_run_counts_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = plan(capsys, "train", *OPTIONS, "--max_turns", "2", "--max_reply_length", "10")
    assert "run folder runs/frozenlake-starpo-s-seed42" in said
    assert "max_actions: 6" in said and "max_actions_per_turn: 2" in said and "max_turns: 2" in said
    assert "2 start states · 4 = 8 a rollout; 5 rollouts = 40" in said
    assert "4 · 16 episodes" in said
    assert "in the first prompt, then at most 700, of which 20 are sampled" in said
    assert "531,744 parameters" in said
    assert list(tmp_path.iterdir()) == []
