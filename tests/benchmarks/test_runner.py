"""The runner of benchmarks/: a question's grid, resuming, the JSON, intervals, measures, a smoke run."""

import json
from argparse import Namespace
from dataclasses import fields
from pathlib import Path
from typing import Any

import lessons
import pytest
import runner
import settings
import training
from transformers import TrainerControl, TrainerState

import ragen_trl
from ragen_trl import Trajectory, Turn, WarmStartConfig
from ragen_trl.cli.options import parse, read_plan
from ragen_trl.config.options import ModelArguments, RunArguments
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from tests.support.project import ROOT
from tests.support.ragen_trl.trainers import rollout_of

EMBEDDED = [name for name in settings.questions() if settings.read(name).get("kind") != "pretrained"]
PRETRAINED = sorted({*settings.questions()} - {*EMBEDDED})


def test_a_grid_is_games_times_variants_times_seeds_with_the_options_of_each() -> None:
    runs = {run.name: run for run in settings.runs_of(settings.read("collapse"))}
    assert len(runs) == 2 * 3 + 4 * 3 + 4 * 4 * 5
    assert [*runs][:2] == ["sokoban/grpo/11", "sokoban/starpo_s/11"]  # the first seed of everything first
    found = runs["sokoban_200/ppo_four/14"].settings
    assert found["options"] == {
        **{"per_device_train_batch_size": 8, "steps_per_generation": 4, "gradient_accumulation_steps": 1},  # of changes
        **{"num_generations": 4, "learning_rate": 4e-4},  # of the game, the second in shared.yaml
        **{"adam_beta2": 0.99, "entropy_coef": 0.0, "gradient_checkpointing": False},  # of all
        **{"advantage": "gae", "critic_learning_rate": 1e-3, "epsilon": 0.2, "epsilon_high": 0.2},  # of the variant
        "max_steps": 800,  # 6,400 trajectories are 200 rollouts of 32, in four updates each
    }
    assert (found["seed"], found["config"], found["play"]["max_turns"]) == (14, "StarPOConfig", 5)


def test_games_with_equal_lessons_share_a_warm_start() -> None:
    runs = settings.runs_of(settings.read("actions_per_turn"))
    assert len({run.needs[0].digest for run in runs}) == 3  # of 21 games


@pytest.mark.parametrize("name", EMBEDDED)
def test_every_option_is_one_of_its_configuration_and_every_committed_run_is_asked_for(name: str) -> None:
    question = settings.read(name)
    runs = settings.runs_of(question)
    for run in (run for run in runs if run.seed == question["games"][run.game]["seeds"][0]):
        known = {field.name for field in fields(getattr(ragen_trl, run.settings.get("config", "StarPOConfig")))}
        assert {*run.settings.get("options", ()), *run.settings["play"]} <= known, run.name
        assert hasattr(ragen_trl, run.settings.get("trainer", "StarPOTrainer"))
        assert hasattr(lessons, run.needs[0].settings["warm_start"].get("lesson", "places"))
    committed = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    found = [run["digest"] for game in committed["games"].values() for run in runner.each_run(game)]
    assert sorted(found) == sorted({run.digest for run in runs})
    assert committed["table"] == runner.table(question, committed)


@pytest.mark.parametrize("name", PRETRAINED)
def test_every_command_is_one_that_the_package_takes(name: str, tmp_path: Path) -> None:
    tiny = tmp_path / "tiny"
    runner.tiny_model(tiny)
    question = settings.read(name)
    for run in {(run.game, run.variant): run for run in settings.runs_of(question)}.values():
        (tmp_path / run.folder).mkdir(exist_ok=True)
        (tmp_path / run.folder / "bf16.json").write_text("false")
        evaluated = []
        for _, words in runner.commands(run, tmp_path, str(tiny)):
            command, options = words[3], words[4:]
            options[options.index("--model") + 1] = str(tiny)
            assert not any(place in word for place in (settings.HERE, settings.NEEDED) for word in options)
            if command == "eval":
                spec = read_plan({}, options).spec
                evaluated.append((spec.env, set(spec.kwargs)))
            elif command == "train":
                (_, _, args), _ = parse({}, options, RunArguments, WarmStartConfig)
                assert args.seed == run.seed
            else:
                parse({}, options, ModelArguments, WarmStartConfig)
        assert evaluated == [(env, set(of)) for env, of in question["games"][run.game]["evaluations"].values()]


def test_what_a_run_needs_is_done_once_and_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = settings.Run("g", "start", None, {"kind": "warm_start"})
    second = settings.Run("g", "baselines", None, {"kind": "baselines"}, (first,))
    trained = [settings.Run("g", "v", seed, {"kind": "run", "seed": seed}, (first, second)) for seed in (0, 1)]
    assert runner.in_order(trained, tmp_path) == [[first], [second], trained]
    (tmp_path / first.folder).mkdir()
    (tmp_path / first.folder / "result.json.partial").write_text("{")  # of a process that was killed while it wrote
    assert runner.in_order(trained, tmp_path)[0] == [first]
    (tmp_path / first.folder / "result.json").write_text("{}")
    assert runner.in_order(trained, tmp_path) == [[second], trained]
    begun: list[str] = []

    def process(command: Any, log: Path, lock: int, one_thread: bool) -> int:
        begun.append(log.parent.name)
        if len(begun) == 2:
            return -9  # killed
        (log.parent / "result.json").write_text("1")
        return 0

    monkeypatch.setattr(runner, "process", process)
    options = Namespace(smoke=False, jobs=1, model=None)
    assert runner.do(trained, tmp_path, options, 0) == [trained[0].name]
    assert runner.do(trained, tmp_path, options, 0) == []  # finished runs are passed over, the others are done
    assert begun == [second.folder, trained[0].folder, trained[1].folder, trained[0].folder]


def test_committed_runs_count_as_finished_and_are_kept_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (ROOT / "benchmarks" / "results" / "generalisation.json").read_text(encoding="utf-8")
    (tmp_path / "generalisation.json").write_text(before, encoding="utf-8")
    assert runner.main(["generalisation", "--out", str(tmp_path), "--folder", str(tmp_path / "runs")]) == 0
    assert (tmp_path / "generalisation.json").read_text(encoding="utf-8") == before
    assert not (tmp_path / "runs").exists()
    content = json.loads(before)
    del content["games"]["bandit"]["variants"]["starpo_s"]["runs"][1]
    (tmp_path / "generalisation.json").write_text(json.dumps(content), encoding="utf-8")
    capsys.readouterr()
    runner.main(["generalisation", "--list", "--out", str(tmp_path), "--folder", str(tmp_path / "runs")])
    missing = [line for line in capsys.readouterr().out.splitlines() if "missing" in line]
    assert missing[0] == "runner.py generalisation --only 'bandit/starpo_s/1'  # missing" and "1 of 24" in missing[1]


def test_a_difference_is_paired_by_seed_and_no_shorter_than_the_evaluations_leave_open() -> None:
    ours, theirs = {0: 0.6, 1: 0.7, 2: 0.9, 7: 0.0}, {0: 0.5, 1: 0.5, 2: 0.6, 8: 1.0}
    found = runner.paired(ours, theirs, 10**6)  # differences 0.1, 0.2, 0.3: s = 0.1, t(2) = 4.302653
    assert found is not None and found.n == 3
    assert (found.mean, found.high - found.mean) == pytest.approx((0.2, 4.302653 * 0.1 / 3**0.5))
    alike = runner.paired({0: 0.5, 1: 0.5}, {0: 0.5, 1: 0.5}, 96)  # 1.96 · √(4 · 0.25 / 100) / 2
    assert alike is not None and alike.high == pytest.approx(0.098, abs=1e-4)
    assert runner.paired({0: 0.5}, {0: 0.1, 1: 0.2}, 96) is None


def test_measures_of_a_run_by_hand() -> None:
    curve = {"success": [0.8, 0.9, 0.7, 0.2, 0.1], "cpu_seconds": [0, 1, 2, 3, 4]}
    run = {"curve": {**curve, "mutual_information": [None, 4, 3, 2, 1]}, "signal": {"task": [0.5, 1, 1, 2.0]}}
    assert runner.share_kept(run, {}) == pytest.approx(0.1 / 0.8)  # the mean of the first three is the best that lasted
    assert runner.seconds_to_level(run, {"level": 0.85}) == 1
    assert runner.seconds_to_level(run, {"level": 0.95}) is None
    assert runner.gradient_ratio("task", run) == 4.0
    assert runner.gradient_ratio("entropy", run) is None
    assert runner.information(run, {}) == pytest.approx(1.0)


def test_a_curve_counts_what_the_reference_and_refills_sample_and_stops_at_the_number() -> None:
    def log(step: int, **logs: float) -> bool:
        control = TrainerControl()
        curve.on_log(None, TrainerState(global_step=step), control, {"loss": 1.0, **logs})
        return bool(control.should_training_stop)

    rates = iter([0.1, 0.2, 0.3, 0.4])
    curve = training.Curve(lambda: {"success": next(rates)}, trajectories=100, every=40, steps_per_rollout=2)
    curve.begin()
    sampled, reference = "filter/trajectories_sampled", {"astar/reference_episodes": 30.0}
    assert not log(2, **reference, **{sampled: 8.0})  # 38: not yet
    assert not log(3, **reference, **{sampled: 16.0})  # 54, in the middle of a rollout
    assert not log(4, **reference)  # measured
    assert not log(6, **reference, **{sampled: 8.0})  # 62: not before 80
    assert log(8, **reference, **{sampled: 40.0})  # 102: measured, enough
    curve.finish(step=8)
    assert [(row["step"], row["trajectories"]) for row in curve.rows] == [(0, 0), (4, 54), (8, 102)]
    history = [{"step": step, "entropy": float(step)} for step in (2, 4, 6)]
    assert training.columns(curve.rows, history)["entropy"] == [None, 3.0, 6.0]


def test_the_gradient_of_the_task_grows_with_the_spread_and_that_of_the_entropy_does_not() -> None:
    model = build_tiny_model(build_tiny_tokenizer(), seed=3, hidden_size=32, num_layers=2)

    def episode(reply: tuple[int, ...], pays: float) -> Trajectory:
        return Trajectory((Turn((5, 6), reply, (-1.0,) * len(reply), "?", "!", pays),), seed=0)

    played = [each for spread in (2.0, 0.0, 4.0, 1.0) for each in (episode((8, 9), 0.0), episode((7,), spread))]
    found = training.gradients_by_spread(model, rollout_of(played, 2))
    assert [found[f"std_{part}"] for part in (1, 2, 3, 4)] == pytest.approx([s / 2**0.5 for s in (0, 1, 2, 4)])
    assert found["task_1"] == 0.0
    assert [found[f"task_{part}"] / found["task_2"] for part in (3, 4)] == pytest.approx([2.0, 4.0], rel=1e-4)
    assert all(found[f"entropy_{part}"] == pytest.approx(found["entropy_1"], rel=1e-4) for part in (2, 3, 4))
