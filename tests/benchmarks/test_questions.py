"""The questions in benchmarks/: their settings, what they share, and how they go on where they stopped."""

import importlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import filtering
import learning_curves
import pytest
from learning import run as learning_run
from learning import runner, spec, store, tasks
from learning.spec import Question, Task
from tables import UNANSWERED

from ragen_trl.policies.tiny_model import save_tiny_model
from tests.support.finished_runs import run

ROOT = Path(__file__).parents[2]
QUESTIONS: dict[str, Question] = {
    path.stem: importlib.import_module(path.stem).QUESTION
    for path in sorted((ROOT / "benchmarks").glob("*.py"))
    if "\nQUESTION = " in path.read_text(encoding="utf-8")
}


def of_question(question: Question) -> list[tuple[Task, str]]:
    """Each task with the name of each of its variants."""
    return [(task, variant) for task in question.tasks.values() for variant in task.variants]


def test_seed_i_of_the_shop_is_prompt_i() -> None:
    evaluation = tasks.TASKS["toyshop"].evaluations["256 prompts"]
    env = evaluation.make()
    wanted = [env.reset(seed=seed)[0] for seed in (0, 1, 255)]
    assert len(set(wanted)) == 3
    for seed, observation in zip((0, 1, 255), wanted, strict=True):
        assert env.unwrapped.reset(seed=12345, options={"index": seed})[0] == observation


def test_every_variant_has_options_that_its_configuration_takes(tmp_path: Path) -> None:
    for question in QUESTIONS.values():
        for form in (question, question.small(), question.at_paper_scale("a/model")):
            for task, name in of_question(form):
                variant = form.variants[name]
                options = spec.training_options(task, name, variant)
                args = learning_run.resolve(variant.config)(output_dir=str(tmp_path), **options, use_cpu=True)
                per_rollout = args.generation_batch_size
                total = spec.run_trajectories(task, variant)
                assert args.num_rollouts == math.ceil(total / per_rollout), (question.name, name)
                assert args.max_steps == args.num_rollouts * args.steps_per_rollout, (question.name, name)


def test_a_question_is_named_after_its_script_and_has_every_variant_of_its_tasks() -> None:
    for name, question in QUESTIONS.items():
        assert question.name == name
        assert {variant for _, variant in of_question(question)} == set(question.variants), name


def test_equal_settings_share_a_result_and_others_do_not() -> None:
    curves = learning_curves.QUESTION
    lake, shown = curves.tasks["frozenlake"], curves.variants["starpo_s"]
    path = store.run_file(Path("here"), lake, "starpo_s", shown, 0)
    shares = filtering.QUESTION
    quarter, half = (shares.variants[name] for name in ("group_25", "group_50"))
    assert store.run_file(Path("here"), shares.tasks["frozenlake"], "group_25", quarter, 0) == path
    others = [(lake, quarter, 1), (lake, half, 0), (replace(lake, episodes=8), quarter, 0)]
    assert path not in [store.run_file(Path("here"), *(task, "x", variant, seed)) for task, variant, seed in others]


@pytest.mark.parametrize("name", sorted(QUESTIONS.keys() - UNANSWERED))
def test_every_committed_run_is_found_by_the_digest_that_it_was_made_with(name: str) -> None:
    """`digests.json` has the digests of the time when the runs were made; classes and modules have moved since."""
    question, folder = QUESTIONS[name], Path("here")
    recorded = json.loads((Path(__file__).parent / "digests.json").read_text(encoding="utf-8"))[name]
    committed = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))["tasks"]
    assert list(recorded) == list(committed)
    for task_name, digests in recorded.items():
        task, results = question.tasks[task_name], committed[task_name]
        assert as_json(store.prepare_settings(task)) == results["prepared"]["settings"]
        assert store.model_folder(folder, task).name == digests["model"]
        assert store.baselines_file(folder, task).stem == digests["baselines"]
        found: dict[str, dict[str, str]] = {}
        for variant_name, result in results["variants"].items():
            variant = question.variants[variant_name]
            assert as_json(spec.training_options(task, variant_name, variant)) == result["options"]
            paths = [store.run_file(folder, task, variant_name, variant, run["seed"]) for run in result["runs"]]
            seeds = [str(run["seed"]) for run in result["runs"]]
            found[variant_name] = dict(zip(seeds, [path.stem for path in paths], strict=True))
        assert found == digests["runs"], task_name


def as_json(settings: Any) -> Any:
    """As a result's file holds them: sequences are lists."""
    return json.loads(json.dumps(settings))


def test_every_class_that_a_question_names_has_a_name_for_digests() -> None:
    """Otherwise the digest would change with the next move of the class."""
    variants = [variant for question in QUESTIONS.values() for variant in question.variants.values()]
    assert {name for variant in variants for name in (variant.config, variant.trainer)} <= store.RECORDED_NAMES.keys()


def test_the_papers_scale_needs_a_model_and_has_its_settings() -> None:
    question = filtering.QUESTION
    with pytest.raises(SystemExit, match="2"):
        runner.parse(question, ["--paper"])
    options = runner.parse(question, ["--paper", "--model", "a/model"])
    asked = question.scaled(options.smoke, options.model)
    given = spec.training_options(asked.tasks["frozenlake"], "group_50", asked.variants["group_50"])
    assert (given["max_steps"], given["num_generations"], given["filter_ratio"]) == (200, 16, 0.5)


def test_at_the_papers_scale_games_are_the_papers_and_rates_are_no_tiny_models() -> None:
    for name, asked in QUESTIONS.items():
        question = asked.at_paper_scale("a/model")
        for task, variant in of_question(question):
            options = spec.training_options(task, variant, question.variants[variant])
            assert options["learning_rate"] <= 1e-5, (name, variant)
            assert options["critic_learning_rate"] == 1e-5
            for given in (task.env_kwargs, *(one.env_kwargs for one in task.evaluations.values())):
                assert not {"is_slippery", "frozen_prob", "dim_room"} & set(given), name
    vanilla = QUESTIONS["starpo_s"].at_paper_scale("a/model")
    options = spec.training_options(vanilla.tasks["sokoban"], "vanilla", vanilla.variants["vanilla"])
    assert options["max_steps"] == 200 * 16  # four passes over a rollout in four mini-batches each
    generalised = QUESTIONS["generalisation"].at_paper_scale("a/model").tasks["sokoban"].evaluations
    assert set(generalised["other symbols"].env_kwargs) == {"symbols"}
    assert generalised["FrozenLake"].env_kwargs == {}  # RAGEN's Table 4 is about the lake that slips
    assert list(QUESTIONS["reasoning"].at_paper_scale("a/model").tasks) == ["without", "with notes"]


def test_a_json_with_more_runs_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    question = filtering.QUESTION
    kept = json.dumps({"tasks": {"frozenlake": {"variants": {"group_25": {"runs": [{"seed": 0}]}}}}})
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "filtering.json").write_text(kept)
    folders = ["--folder", str(tmp_path / "runs"), "--output", str(tmp_path / "out")]
    runner.ask(question, [*folders, "--budget-minutes", "0"])
    assert (tmp_path / "out" / "filtering.json").read_text() == kept
    assert "holds more runs than there are here" in capsys.readouterr().err
    assert json.loads((tmp_path / "runs" / "filtering.json").read_text())["tasks"] == {}


def test_variants_of_a_task_differ_in_their_algorithm_alone() -> None:
    names = ("learning_rate", "max_turns", "max_actions", "max_reply_length", "env_kwargs", "think", "adam_beta2")
    for task in tasks.TASKS.values():
        first, *others = [spec.training_options(task, name, tasks.VARIANTS[name]) for name in task.variants]
        assert all(other.get(name) == first.get(name) for other in others for name in names)


def test_a_run_ends_with_its_curve_its_evaluations_and_the_settings_it_was_made_with(tmp_path: Path) -> None:
    question = learning_curves.QUESTION.small()
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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    question = learning_curves.QUESTION
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
