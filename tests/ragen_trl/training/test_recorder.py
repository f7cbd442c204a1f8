"""Recorded trajectories: what is written, when, by whom, and what is refused when it is read."""

import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import ragen_trl.training.recorder
from ragen_trl.training.observers import RolloutEvent
from ragen_trl.training.recorder import TrajectoryRecorder, describe, describe_turn, recordings
from ragen_trl.trajectory import Trajectory, Turn
from tests.support.ragen_trl.trainers import TOKENIZER, LastRollout, parameters, rollout_of, small_trainer

PROMPT, REPLY, END = TOKENIZER.encode("é?"), TOKENIZER.encode("é!"), TOKENIZER.eos_token_id


def episode(reward: float, seed: int = 3, **info: Any) -> Trajectory:
    """One turn: é? is asked, é! and the end of the turn are sampled."""
    turn = Turn(tuple(PROMPT), (*REPLY, END), (), "é?", "<answer>é!", reward, {"success": reward > 0, **info})
    return Trajectory((turn,), seed=seed, outcome_seed=5, terminated=True)


def observation(
    trajectories: Sequence[Trajectory],
    advantages: Sequence[tuple[float, ...] | None],
    step: int = 0,
    kept: tuple[int, ...] = (0,),
    **processes: int,
) -> RolloutEvent:
    rollout = rollout_of(trajectories, group_size=2, **processes)
    return RolloutEvent(step, rollout, kept, tuple(advantages))


def recorder_in(folder: Path, traces: bool = False) -> TrajectoryRecorder:
    """It records the rollout of the first step."""
    recorder = TrajectoryRecorder(folder, TOKENIZER, traces)
    recorder.steps = (1,)
    return recorder


def read(folder: Path) -> dict[str, Any]:
    """The content of the last recording."""
    content: dict[str, Any] = json.loads(gzip.decompress(recordings(folder)[-1].read_bytes()))
    return content


def test_a_file_has_all_of_a_rollout(tmp_path: Path) -> None:
    acted = {"actions": ("Left",), "invalid_actions": ("Jump",), "format_is_valid": True, "action_is_valid": False}
    cut = Turn((7,), (8,), (), "é?", "<answer>é!", -0.1 - 0.2, cut=True, context_ids=(1, 2, 3))
    second = Trajectory((*episode(0.0).turns, cut), seed=3, truncated=True, limit="turns")
    played = [episode(1.0, **acted, state="not recorded"), second]
    event = observation(played, [(0.5, 0.5, 0.5, 0.5), (1.0, 2.0, 3.0, 4.0, 5.0)])
    recorder_in(tmp_path).on_rollout(event)
    found = read(tmp_path)
    assert recordings(tmp_path) == [tmp_path / "trajectories" / "step-000001.json.gz"]
    written = recordings(tmp_path)[0].read_bytes()
    recorder_in(tmp_path).on_rollout(event)
    assert recordings(tmp_path)[0].read_bytes() == written  # no time stamp in it
    ids = [*PROMPT, REPLY[-1], END, 7, 8]
    assert found["vocabulary"] == {str(token): TOKENIZER.decode([token]) for token in ids}
    said = {"observation": "é?", "reply": "<answer>é!"}
    tokens = {**said, "prompt": PROMPT, "tokens": [*REPLY, END]}
    first, other = found["trajectories"]
    assert first == {
        "group": 0,
        "member": 0,
        "env": "env",
        "seed": 3,
        "outcome_seed": 5,
        "return": 1.0,
        "success": True,
        "kept": True,
        "limit": "",
        "turns": [
            {**tokens, "reward": 1.0, "advantage": 0.5, **acted, "actions": ["Left"], "invalid_actions": ["Jump"]}
        ],
    }
    assert (other["member"], other["limit"], other["success"], other["outcome_seed"]) == (1, "turns", False, None)
    assert other["turns"] == [
        {**tokens, "reward": 0.0, "advantage": [1.0, 2.0, 3.0, 4.0]},
        {**said, "prompt": [7], "tokens": [8], "reward": -0.3, "advantage": 5.0, "cut": True, "context": 3},
    ]


def test_a_turn_keeps_the_ends_of_a_long_text_and_the_chance_of_each_token() -> None:
    observed = "a" * 10_000 + "b" * 5 + "c" * 10_000
    turn = Turn((1,), (2, 3), (-0.126, float("-inf")), observed, "é!", 1.0, {"actions": ["Up"], "success": True})
    assert describe_turn(turn) == {
        "observation": "a" * 10_000 + "\n[5 characters are left out]\n" + "c" * 10_000,
        "reply": "é!",
        "reward": 1.0,
        "actions": ["Up"],
    }
    found, _ = describe(observation([Trajectory((turn,), seed=1)] * 2, [None, None]))
    assert found["turns"][0]["logprobs"] == [-0.13, None]


def test_the_file_holds_the_trajectories_of_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = [episode(float(number), seed=number) for number in range(4)]
    advantages = [(float(number),) * 4 for number in range(4)]
    alone = observation(played, advantages, kept=(0, 1))
    recorder_in(tmp_path / "one").on_rollout(alone)
    here, there = (
        observation(played, advantages[2 * process :][:2], kept=(0, 1), processes=2, process=process)
        for process in (0, 1)
    )
    monkeypatch.setattr(ragen_trl.training.recorder, "gather_object", lambda mine: [*describe(there), *mine])
    recorder_in(tmp_path / "two").on_rollout(here)
    one, two = (read(tmp_path / name) for name in ("one", "two"))
    assert one == two
    assert [found["seed"] for found in two["trajectories"]] == [0, 1, 2, 3]


def test_a_run_is_recorded_as_it_was_played(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, max_steps=3, record_rollouts=2)
    last, unseen = LastRollout(trainer), small_trainer(tmp_path / "unseen", max_steps=3)
    trainer.train()
    unseen.train()  # observers change no step
    assert all(torch.equal(value, parameters(unseen)[name]) for name, value in parameters(trainer).items())
    assert [path.name for path in recordings(tmp_path)] == ["step-000001.json.gz", "step-000003.json.gz"]
    content = read(tmp_path)
    assert len(content["trajectories"]) == len(last.played) == 8
    for found, played in zip(content["trajectories"], last.played, strict=True):
        tokens = [token for turn in found["turns"] for token in (*turn["prompt"], *turn["tokens"])]
        assert tuple(tokens) == played.token_ids
        assert [turn["reply"] for turn in found["turns"]] == [turn.reply for turn in played.turns]
        assert found["return"] == pytest.approx(played.episode_return)
        assert {turn["advantage"] for turn in found["turns"]} == {found["turns"][0]["advantage"]}
    logged = next(row for row in trainer.state.log_history if row["step"] == 3)
    returns = [found["return"] for found in content["trajectories"]]
    assert logged["return"] == pytest.approx(sum(returns) / 8)
    assert json.loads((tmp_path / "history.json").read_text()) == trainer.state.log_history
    (tmp_path / "history.json").write_text("of this training")
    trainer.log({"loss": 0.0})  # as an evaluation after it
    assert (tmp_path / "history.json").read_text() == "of this training"


def test_a_full_disk_and_numbers_that_json_lacks_end_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    event = observation([episode(1.0), episode(0.0)], [(float("nan"),) * 4, None])
    recorder = recorder_in(tmp_path)
    recorder.on_rollout(event)
    assert read(tmp_path)["trajectories"][0]["turns"][0]["advantage"] is None

    def full(path: Path, content: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ragen_trl.training.recorder, "write_atomically", full)
    recorder.on_rollout(event)
    assert "the rollout of step 1 is not recorded" in caplog.text
    recorder.on_train_end(None, SimpleNamespace(is_world_process_zero=True, log_history=[]), None)
    assert "history.json is not written" in caplog.text


def test_trackio_gets_each_trajectory_as_a_conversation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in: `trackio.Trace(messages=, metadata=)` and `trackio.log` as its documentation has them."""
    logged: list[dict[str, Any]] = []
    trackio = SimpleNamespace(Trace=lambda **parts: parts, log=logged.append)
    monkeypatch.setitem(sys.modules, "trackio", trackio)
    event = observation([episode(1.0), episode(0.0)], [(0.5,) * 4, None])
    recorder_in(tmp_path, traces=True).on_rollout(event)
    assert [row["train/global_step"] for row in logged] == [1, 1]
    trace = logged[0]["trajectory"]
    assert trace["messages"] == [{"role": "user", "content": "é?"}, {"role": "assistant", "content": "<answer>é!"}]
    assert {"step": 1, "group": 0, "return": 1.0, "success": True}.items() <= trace["metadata"].items()
