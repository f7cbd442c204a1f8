"""Options of environments that wait or fail, and training and evaluation among failures, end to end."""

import math
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from ragen_trl import StarPOConfig, evaluate
from ragen_trl.credit.estimators import goes_on
from ragen_trl.evaluation.evaluator import EvaluationError
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.trainers.checks import EnvironmentsFailError
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.trainers import SMALL, AnyReply, Lottery, made_up, parameters, small_trainer


class Fragile(Lottery):
    """Crashes in its second draw, or hangs there, from every third start state."""

    gate: Event | None = None

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        if self.drawn == 1 and int(self.ticket.split()[1]) % 3 == 0:
            if self.gate is None:
                raise OSError("the shop is on fire")
            self.gate.wait(60)
        observation, reward, _, info = super()._act(action)
        return observation, reward, self.drawn == self.draws, info

    def _start(self, options: Any) -> str:
        self.ticket = super()._start(options)
        return self.ticket


def fragile() -> AnyReply:
    return AnyReply(Fragile(draws=3), think=False, max_turns=3, max_actions=99, max_actions_per_turn=1)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    gate = Event()
    monkeypatch.setattr(Fragile, "gate", gate)
    yield
    gate.set()


def trained(folder: Path, **changes: Any) -> tuple[Any, list[Trajectory]]:
    trainer = small_trainer(folder, fragile, max_turns=3, max_completion_length=400, **changes)
    played: list[Trajectory] = []
    play = trainer.rollout

    def rollout(*arguments: Any) -> list[Trajectory]:
        trajectories = play(*arguments)
        played.extend(trajectories)
        return trajectories

    trainer.rollout = rollout
    trainer.train()
    return trainer, played


@pytest.mark.parametrize("advantage", ["group", "turn_gae", "gigpo"])
def test_training_goes_on_among_crashes(tmp_path: Path, advantage: str) -> None:
    trainer, played = trained(tmp_path, advantage=advantage, max_steps=3, env_failure_penalty=-3.0)
    crashed = [trajectory for trajectory in played if trajectory.limit == "crash"]
    assert 0 < len(crashed) < len(played) == 24
    assert {trajectory.turns[-1].reward for trajectory in crashed} == {-3.0}
    assert {len(trajectory.turns) for trajectory in crashed} == {2}
    logged = [row["rollout/env_failures"] for row in trainer.state.log_history if "rollout/env_failures" in row]
    assert sum(logged) == len(crashed)
    assert all(math.isfinite(row["loss"]) for row in trainer.state.log_history if "loss" in row)
    assert all(bool(value.isfinite().all()) for value in parameters(trainer).values())


@pytest.mark.usefixtures("hanging")
def test_training_goes_on_among_environments_that_hang(tmp_path: Path) -> None:
    trainer, played = trained(tmp_path, env_timeout=0.2)
    hung = [trajectory for trajectory in played if trajectory.limit == "timeout"]
    assert 0 < len(hung) < len(played) == 16
    assert trainer.state.global_step == 2


def test_a_rollout_that_fails_altogether_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    """A bug in an environment must not be trained on for hours, with a warning at the top of the log."""

    def broken() -> AnyReply:
        env = fragile()
        env.step = lambda action: 1 / 0  # type: ignore[assignment,method-assign,return-value]
        return env

    trainer = small_trainer(tmp_path, broken, max_steps=1)
    with pytest.raises(EnvironmentsFailError, match="all 8 episodes failed in the environment (?s:.*)ZeroDivision"):
        trainer.train()


def test_threads_change_nothing_in_training(tmp_path: Path) -> None:
    (_, inline), (_, threaded) = (trained(tmp_path / str(n), env_workers=n) for n in (0, 8))
    assert inline == threaded


def test_evaluation_leaves_failures_out_says_so_and_plays_on_in_new_environments() -> None:
    made: list[AnyReply] = []

    def maker() -> AnyReply:
        made.append(fragile())
        return made[-1]

    args = StarPOConfig(output_dir="unused", **SMALL)
    result = evaluate(ScriptedPolicy(lambda env, random: "hello"), maker, args, episodes=40, batch_size=8)
    assert result.n + result.left_out == 40
    assert 4 < result.left_out < 28
    assert result.truncated == 0  # no limit but the crashes
    assert len(made) == 8 + result.left_out
    assert f"(n={result.n}, {result.left_out} left out after failures)" in result.in_words()


def test_an_evaluation_of_failures_alone_says_why() -> None:
    def broken() -> AnyReply:
        env = fragile()
        env.step = lambda action: 1 / 0  # type: ignore[assignment,method-assign,return-value]
        return env

    args = StarPOConfig(output_dir="unused", **SMALL)
    with pytest.raises(EvaluationError, match="all of 4 episodes failed without the policy, 4 of them (?s:.*)Zero"):
        evaluate(ScriptedPolicy(lambda env, random: "hello"), broken, args, episodes=4)


def test_nothing_is_worth_anything_after_a_failure() -> None:
    """However limits are valued: there is no state."""
    for limit in ("crash", "timeout"):
        assert not goes_on(made_up((1, 1, 0.0), terminated=False, truncated=True, limit=limit), "all")
    assert goes_on(made_up((1, 1, 0.0), terminated=False, truncated=True, limit="turns"), "all")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env_workers": -1}, "env_workers is -1; give a number of threads, or 0"),
        ({"env_timeout": 0.0}, "env_timeout is 0.0; give seconds above 0"),
        ({"env_timeout": 5.0, "env_workers": 0}, "env_timeout is 5.0 and env_workers 0.*1 or more"),
        ({"rollout_batch_size": 0}, "rollout_batch_size is 0; give a number of trajectories, or leave it unset"),
        ({"env_failure_penalty": 1.0}, "env_failure_penalty is 1.0; a penalty is a number up to 0"),
        ({"cut_penalty": float("nan")}, "cut_penalty is nan; give a number"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StarPOConfig(output_dir="unused", **{**SMALL, **changes})
