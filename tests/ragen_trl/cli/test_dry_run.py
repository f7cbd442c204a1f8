"""``--dry-run``: what is counted, what is said where something is missing, and that nothing is made."""

import re
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
    assert "run folder runs/frozenlake-starpo-s-seed42: new" in said
    assert "limits: actions per turn 2, actions in all 6, turns 2" in said
    assert "2 start states · 4 = 8 a rollout; 5 rollouts = 40" in said
    assert "trains on 1 of 2 groups (top_k)" in said  # a quarter of two groups is still one
    assert "4 · 16 episodes" in said
    assert "20 sampled and 700 after the first prompt of a trajectory; 800 sampled in all rollouts" in said
    assert "36,000 demonstrations (noise 0.5) · 1 epochs = 2,250 updates of 16" in said
    assert "weights, held: 531,744 parameters · 4 bytes" in said
    ((shown, written),) = re.findall(r"(\d+) shown and (\d+) written", said)
    ((most, longest),) = re.findall(r"at most ([\d.]+) MiB at its peak, if every trajectory has (\d+) tokens", said)
    ((usual, less),) = re.findall(r"with the typical (\d+) tokens ([\d.]+) MiB", said)
    assert abs(int(usual) - int(shown) - int(written)) <= 1 and int(usual) < int(longest) and float(less) < float(most)
    assert list(tmp_path.iterdir()) == []


def test_the_plans_of_the_other_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = plan(capsys, "warm-start", "--demonstrations", "100", "--demo_epochs", "2")
    assert "100 demonstrations (noise 0.5) · 2 epochs = 14 updates of 16, all weights at learning" in said
    said = plan(capsys, "eval", "--episodes", "10", "--env", "ragen/Bandit-v0", "ragen/BanditRev-v0")
    assert "10 start states · 1 episodes · 2 environments · 2 policies = 40" in said
    assert list(tmp_path.iterdir()) == []
