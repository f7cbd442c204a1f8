"""Behind the questions in benchmarks/: what is counted and compared, the settings, and going on where it stopped."""

import importlib
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import TrainerControl, TrainerState

from ragen_trl.tiny_model import build_tiny_model, build_tiny_tokenizer, save_tiny_model
from ragen_trl.trajectory import Trajectory, Turn


@pytest.fixture
def load(root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a script; they stand beside each other and in no package."""
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    return importlib.import_module


QUESTIONS = sorted(
    path.stem
    for path in (Path(__file__).parents[2] / "benchmarks").glob("*.py")
    if "\nQUESTION = " in path.read_text(encoding="utf-8")
)


def of_script(load: Callable[[str], ModuleType]) -> Callable[[str], Any]:
    """From a script's name to its question."""
    return lambda name: load(name).QUESTION


def of_question(question: Any) -> list[tuple[Any, str]]:
    """Each task with the name of each of its variants."""
    return [(task, variant) for task in question.tasks.values() for variant in task.variants]


def run(success: list[float], trajectories: list[int], reference: int = 0, seed: int = 0, **final: float) -> Any:
    """A finished run; a second of both clocks and a nat per evaluation."""
    rows = [
        {
            "step": number,
            "trajectories": sampled,
            "reference_trajectories": reference if number else 0,
            "seconds": float(number),
            "cpu_seconds": float(number),
            "kl": float(number),
            "success": rate,
        }
        for number, (rate, sampled) in enumerate(zip(success, trajectories, strict=True))
    ]
    figures = {"seconds": 9.0, "cpu_seconds": 8.0, "peak_mib": 600.0, "loss_min": 0.25, **final}
    return {"settings": {"seed": seed}, "curve": rows, "final": figures}


def test_a_summary_is_of_the_best_evaluation_and_the_last_and_of_the_first_at_the_level(
    load: Callable[[str], ModuleType],
) -> None:
    summary = load("learning.summary").summary
    collapsed = run([0.2, 0.8, 0.4], [0, 100, 200], loss_min=-3.0)
    steady = run([0.2, 0.5, 0.6], [0, 100, 200], seed=1, peak_mib=700.0)
    found = summary([collapsed, steady], level=0.6)
    assert found["seeds"] == [0, 1]
    assert found["success"] == {"mean": 0.5, "low": 0.4, "high": 0.6}
    assert found["peak"] == {"mean": pytest.approx(0.7), "low": 0.6, "high": 0.8}
    assert found["kept"] == [0.5, 1.0]
    assert found["peak_mib"] == {"mean": 650.0, "low": 600.0, "high": 700.0}
    assert found["loss_min"] == -3.0
    assert [spent["trajectories"] for spent in found["reached"]] == [100, 200]
    assert summary([collapsed, steady], level=0.7)["reached"][1] is None


def test_equal_success_is_the_highest_step_of_a_twentieth_that_all_runs_have_reached(
    load: Callable[[str], ModuleType],
) -> None:
    equal_success = load("learning.summary").equal_success
    ours = [run([0.1, 0.62, 0.9], [0, 300, 400], reference=200), run([0.1, 0.3, 0.9], [0, 300, 400], reference=200)]
    theirs = [run([0.1, 0.2, 0.64], [0, 400, 800], peak_mib=1200.0)]
    found = equal_success(ours, theirs)
    assert found["level"] == 0.6
    assert found["trajectories"] == {"ours": 350.0, "theirs": 800.0, "ratio": 0.4375}
    assert found["policy_trajectories"] == {"ours": 150.0, "theirs": 800.0, "ratio": 0.1875}
    assert found["seconds"] == {"ours": 1.5, "theirs": 2.0, "ratio": 0.75}
    assert found["peak_mib"]["ratio"] == 0.5


def test_nothing_is_compared_at_a_success_that_training_began_with(load: Callable[[str], ModuleType]) -> None:
    equal_success = load("learning.summary").equal_success
    assert equal_success([run([0.5, 0.9], [0, 9])], [run([0.5, 0.54], [0, 9])]) is None


def test_a_mean_curve_is_flat_while_the_reference_plays_and_ends_with_the_shortest_run(
    load: Callable[[str], ModuleType],
) -> None:
    mean_curve = load("learning.summary").mean_curve
    x, mean, low, high = mean_curve([run([0.2, 0.6], [0, 100], reference=50), run([0.4, 0.4], [0, 200])], points=5)
    assert x == [0.0, 25.0, 50.0, 75.0, 100.0]
    assert low == pytest.approx([0.2, 0.2, 0.2, 0.4, 0.4])
    assert high == pytest.approx([0.4, 0.4, 0.4, 0.4, 0.6])
    assert mean == pytest.approx([0.3, 0.3, 0.3, 0.4, 0.5])


def log(curve: Any, step: int, **logs: float) -> bool:
    """Feeds a curve the log of an update; whether training is to stop."""
    control = TrainerControl()
    curve.on_log(None, TrainerState(global_step=step), control, {"loss": 1.0, **logs})
    return bool(control.should_training_stop)


def test_a_curve_counts_what_the_reference_and_refills_sample_and_stops_at_the_number(
    load: Callable[[str], ModuleType],
) -> None:
    rates = iter([0.1, 0.2, 0.3, 0.4])
    curve = load("learning.measure").Curve(
        lambda: {"success": next(rates)}, trajectories=100, every=40, steps_per_rollout=1
    )
    curve.begin()
    logs = {"astar/reference_episodes": 30.0}
    assert not log(curve, 1, **logs, **{"filter/trajectories_sampled": 8.0, "entropy": 2.0})  # 38: not yet
    assert not log(curve, 2, **logs, **{"filter/trajectories_sampled": 16.0, "entropy": 4.0})  # 54: measured
    assert not log(curve, 3, **logs, **{"filter/trajectories_sampled": 8.0, "entropy": 1.0})  # 62: not before 80
    assert log(curve, 4, **logs, **{"filter/trajectories_sampled": 40.0, "loss": -2.0})  # 102: measured, enough
    curve.finish(step=4)
    assert [(row["step"], row["trajectories"], row["reference_trajectories"]) for row in curve.rows] == [
        (0, 0, 0),
        (2, 54, 30),
        (4, 102, 30),
    ]
    assert [row.get("entropy") for row in curve.rows] == [None, 3.0, 1.0]
    assert curve.totals()["loss_min"] == -2.0
    assert "due" not in curve.rows[0]


def test_a_curve_neither_measures_nor_stops_between_two_updates_on_one_rollout(
    load: Callable[[str], ModuleType],
) -> None:
    curve = load("learning.measure").Curve(lambda: {"success": 0.5}, trajectories=10, every=5, steps_per_rollout=2)
    curve.begin()
    assert not log(curve, 1, **{"filter/trajectories_sampled": 16.0})
    assert len(curve.rows) == 1
    assert log(curve, 2)
    assert [row["step"] for row in curve.rows] == [0, 2]


def test_the_distance_is_the_mean_over_trajectories_of_the_summed_log_ratio(load: Callable[[str], ModuleType]) -> None:
    model = build_tiny_model(build_tiny_tokenizer(), seed=3, hidden_size=32, num_layers=2)
    turns = (Turn((5, 6, 7), (8, 9), (-1.0, -2.0), "?", "!", 0.0), Turn((10,), (11,), (-0.5,), "?", "!", 0.0))
    trajectories = [Trajectory(turns, seed=0), Trajectory(turns[:1], seed=1)]

    def log_ratio(ids: list[int], sampled: dict[int, float]) -> float:
        total = 0.0
        for place, logprob in sampled.items():
            with torch.no_grad():
                logits = model(torch.tensor([ids[:place]])).logits[0, -1]
            total += logprob - torch.log_softmax(logits, -1)[ids[place]].item()
        return total

    ratios = [
        log_ratio([5, 6, 7, 8, 9, 10, 11], {3: -1.0, 4: -2.0, 6: -0.5}),
        log_ratio([5, 6, 7, 8, 9], {3: -1.0, 4: -2.0}),
    ]
    mean, stderr = load("learning.measure").distance(trajectories, model)
    assert mean == pytest.approx(sum(ratios) / 2, abs=1e-4)
    assert stderr == pytest.approx(abs(ratios[0] - ratios[1]) / 2, abs=1e-4)  # |a - b| / √2 / √2


def test_seed_i_of_the_shop_is_prompt_i(load: Callable[[str], ModuleType]) -> None:
    evaluation = load("learning.tasks").TASKS["toyshop"].evaluations["256 prompts"]
    env = evaluation.make()
    wanted = [env.reset(seed=seed)[0] for seed in (0, 1, 255)]
    assert len(set(wanted)) == 3
    for seed, observation in zip((0, 1, 255), wanted, strict=True):
        assert env.unwrapped.reset(seed=12345, options={"index": seed})[0] == observation


def test_every_variant_has_options_that_its_configuration_takes(
    load: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    spec, resolve = load("learning.spec"), load("learning.run").resolve
    for question in map(of_script(load), QUESTIONS):
        for form in (question, question.small(), question.at_paper_scale("a/model")):
            for task, name in of_question(form):
                variant = form.variants[name]
                options = spec.training_options(task, name, variant)
                args = resolve(variant.config)(output_dir=str(tmp_path), **options, use_cpu=True)
                per_rollout = args.generation_batch_size
                total = spec.run_trajectories(task, variant)
                assert args.num_rollouts == math.ceil(total / per_rollout), (question.name, name)
                assert args.max_steps == args.num_rollouts * args.steps_per_rollout, (question.name, name)


def test_a_question_is_named_after_its_script_and_has_every_variant_of_its_tasks(
    load: Callable[[str], ModuleType],
) -> None:
    for name in QUESTIONS:
        question = load(name).QUESTION
        assert question.name == name
        assert {variant for _, variant in of_question(question)} == set(question.variants), name


def test_equal_settings_share_a_result_and_others_do_not(load: Callable[[str], ModuleType]) -> None:
    store, curves = load("learning.store"), load("learning_curves").QUESTION
    lake, shown = curves.tasks["frozenlake"], curves.variants["starpo_s"]
    path = store.run_file(Path("here"), lake, "starpo_s", shown, 0)
    filtering = load("filtering").QUESTION
    quarter, half = (filtering.variants[name] for name in ("group_25", "group_50"))
    assert store.run_file(Path("here"), filtering.tasks["frozenlake"], "group_25", quarter, 0) == path
    others = [(lake, quarter, 1), (lake, half, 0), (replace(lake, episodes=8), quarter, 0)]
    assert path not in [store.run_file(Path("here"), *(task, "x", variant, seed)) for task, variant, seed in others]


def test_the_papers_scale_needs_a_model_and_has_its_settings(load: Callable[[str], ModuleType]) -> None:
    question = load("filtering").QUESTION
    runner, spec = load("learning.runner"), load("learning.spec")
    with pytest.raises(SystemExit, match="2"):
        runner.parse(question, ["--paper"])
    options = runner.parse(question, ["--paper", "--model", "a/model"])
    asked = question.scaled(options.smoke, options.model)
    given = spec.training_options(asked.tasks["frozenlake"], "group_50", asked.variants["group_50"])
    assert (given["max_steps"], given["num_generations"], given["filter_ratio"]) == (200, 16, 0.5)


def test_variants_of_a_task_differ_in_their_algorithm_alone(load: Callable[[str], ModuleType]) -> None:
    spec, tasks = load("learning.spec"), load("learning.tasks")
    names = ("learning_rate", "max_turns", "max_actions", "max_reply_length", "env_kwargs", "think", "adam_beta2")
    for task in tasks.TASKS.values():
        first, *others = [spec.training_options(task, name, tasks.VARIANTS[name]) for name in task.variants]
        assert all(other.get(name) == first.get(name) for other in others for name in names)


def test_a_run_ends_with_its_curve_its_evaluations_and_the_settings_it_was_made_with(
    load: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    question, learning_run = load("learning_curves").QUESTION.small(), load("learning.run")
    task, variant = replace(question.tasks["bandit"], episodes=8), question.variants["starpo_s"]
    result = learning_run.train(task, "starpo_s", variant, 0, str(save_tiny_model(tmp_path / "model")))
    assert result["settings"] == learning_run.run_settings(task, "starpo_s", variant, 0)
    assert [(row["step"], row["trajectories"]) for row in result["curve"]] == [(0, 0), (1, 16), (2, 32)]
    assert result["curve"][0]["kl"] == pytest.approx(0.0, abs=1e-4)
    assert {name: found["n"] for name, found in result["final"]["evaluations"].items()} == dict.fromkeys(
        ("trained pair", "other pairs", "BanditRev"), 8
    )
    assert result["final"]["peak_mib"] >= result["final"]["base_mib"] > 0
    assert [row["step"] for row in result["steps"]] == [1, 2]
    json.dumps(result)


FAKE = """
import json, pathlib, sys
here = pathlib.Path(__file__).parent.parent
with (here / "calls").open("a") as file:
    file.write(" ".join(sys.argv[3:]) + "\\n")
name = "warm_start" if "--variants" not in sys.argv else sys.argv[-1]
if name in (here / "broken").read_text().split():
    sys.exit("broken")
target = pathlib.Path((here / f"{name}.path").read_text())
target.parent.mkdir(parents=True, exist_ok=True)
target.write_text((here / f"{name}.json").read_text())
"""


def test_a_question_repeats_what_failed_and_what_has_other_settings_and_nothing_else(
    load: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    question, store, runner = load("learning_curves").QUESTION, load("learning.store"), load("learning.runner")
    task, here, folder = question.tasks["frozenlake"], tmp_path / "here", tmp_path / "runs"
    (here / "learning").mkdir(parents=True)
    (here / "learning" / "__init__.py").touch()
    (here / "learning" / "run.py").write_text(FAKE)
    results = {"held out": {name: {"success": 0.5} for name in ("random", "oracle", "warm_start", "warm_start_greedy")}}
    prepared = {"settings": store.prepare_settings(task), "results": results}
    (here / "warm_start.json").write_text(json.dumps(prepared))
    (here / "warm_start.path").write_text(str(store.baselines_file(folder, task)))
    for variant in ("starpo", "astar_po"):
        finished = run([0.1, 0.9], [0, 100])
        (here / f"{variant}.json").write_text(json.dumps({**finished, "commit": "abc", "steps": []}))
        target = store.run_file(folder, task, variant, question.variants[variant], 0)
        (here / f"{variant}.path").write_text(str(target))
    monkeypatch.setattr(runner, "HERE", here)

    def call(broken: str) -> tuple[int, list[str]]:
        (here / "broken").write_text(broken)
        (here / "calls").write_text("")
        arguments = ["--tasks", "frozenlake", "--variants", "starpo", "astar_po", "--seeds", "0", "--jobs", "1"]
        status = runner.ask(question, [*arguments, "--folder", str(folder), "--output", str(tmp_path / "out")])
        return status, (here / "calls").read_text().splitlines()

    asked = "--seeds 0 --tasks frozenlake"
    starpo, astar_po = f"{asked} --variants starpo", f"{asked} --variants astar_po"
    assert call(broken="astar_po") == (1, [asked, starpo, astar_po])
    assert "missing: frozenlake/astar_po/seed0" in capsys.readouterr().err
    assert call(broken="") == (0, [astar_po])
    assert call(broken="") == (0, [])
    written = json.loads((tmp_path / "out" / "learning_curves.json").read_text())
    variants = written["tasks"]["frozenlake"]["variants"]
    assert {name: variant["summary"]["success"]["mean"] for name, variant in variants.items()} == {
        "starpo": 0.9,
        "astar_po": 0.9,
    }
    for name in ("learning_curves", "learning_curves_frozenlake"):
        assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_table_has_the_baselines_first_and_says_how_many_seeds_reached_the_level(
    load: Callable[[str], ModuleType],
) -> None:
    summary, tables = load("learning.summary"), load("learning.tables")
    runs = [run([0.1, 0.9], [0, 1000]), run([0.1, 0.3], [0, 1000], seed=1)]
    rate = {"success": 0.25, "success_low": 0.2, "success_high": 0.31}
    task = {
        "prepared": {
            "settings": {"env": "ragen/FrozenLake-v0", "evaluations": {"held out": {}}, "episodes": 256},
            "results": {"held out": dict.fromkeys(("random", "warm_start", "warm_start_greedy", "oracle"), rate)},
        },
        "trajectories": 1000,
        "level": 0.5,
        "variants": {"starpo": {"label": "StarPO", "summary": summary.summary(runs, 0.5), "runs": runs}},
        "astar_po_to_starpo": None,
    }
    lines = tables.learning_tables(
        {"tasks": {"lake": task}, "cpu_minutes": 12.3, "commits": ["0123456789abc+changes"]}
    ).splitlines()
    assert [line.split(" | ")[0] for line in lines[4:9]] == [
        *("| random", "| warm start", "| warm start, greedy", "| oracle", "| StarPO")
    ]
    assert lines[4].startswith("| random | 0.25 [0.20, 0.31] |")
    cells = "0.60 (0.30 to 0.90) | 0.60 (0.30 to 0.90) | 100 % | 1,000 (1 of 2) | 1.00 | 0.25 | 0.1 | 600"
    assert lines[8] == f"| StarPO | {cells} |"
    assert lines[-1] == "12 minutes of CPU in training in all. Runs made with `012345678`."
