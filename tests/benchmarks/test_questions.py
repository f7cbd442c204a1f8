"""The questions in benchmarks/: their settings, what they share, and going on where they stopped."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ragen_trl.policies.tiny_model import save_tiny_model
from tests.benchmarks.finished_runs import run

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


def test_at_the_papers_scale_games_are_the_papers_and_rates_are_no_tiny_models(
    load: Callable[[str], ModuleType],
) -> None:
    spec = load("learning.spec")
    for name in QUESTIONS:
        question = load(name).QUESTION.at_paper_scale("a/model")
        for task, variant in of_question(question):
            options = spec.training_options(task, variant, question.variants[variant])
            assert options["learning_rate"] <= 1e-5, (name, variant)
            assert options["critic_learning_rate"] == 1e-5
            assert not {"is_slippery", "dim_room"} & set(task.env_kwargs), name
    vanilla = load("starpo_s").QUESTION.at_paper_scale("a/model")
    options = spec.training_options(vanilla.tasks["sokoban"], "vanilla", vanilla.variants["vanilla"])
    assert options["max_steps"] == 200 * 16  # four passes over a rollout in four mini-batches each
    generalised = load("generalisation").QUESTION.at_paper_scale("a/model").tasks["sokoban"].evaluations
    assert set(generalised["other symbols"].env_kwargs) == {"symbols"}
    assert list(load("reasoning").QUESTION.at_paper_scale("a/model").tasks) == ["without", "with notes"]


def test_a_json_with_more_runs_is_not_written_over(
    load: Callable[[str], ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner, question = load("learning.runner"), load("filtering").QUESTION
    kept = json.dumps({"tasks": {"frozenlake": {"variants": {"group_25": {"runs": [{"seed": 0}]}}}}})
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "filtering.json").write_text(kept)
    folders = ["--folder", str(tmp_path / "runs"), "--output", str(tmp_path / "out")]
    runner.ask(question, [*folders, "--budget-minutes", "0"])
    assert (tmp_path / "out" / "filtering.json").read_text() == kept
    assert "holds more runs than there are here" in capsys.readouterr().err
    assert json.loads((tmp_path / "runs" / "filtering.json").read_text())["tasks"] == {}


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
