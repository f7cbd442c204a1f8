"""The questions in benchmarks/: their settings, what they share, and how long they take."""

import importlib
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import everything
import filtering
import learning_curves
import pytest
from learning import collect, runner, spec, store, tasks
from learning import run as learning_run
from learning.spec import Question, Task
from records.committed import read
from tables import UNANSWERED

from ragen_trl.policies.tiny_model import save_tiny_model
from tests.support.project import ROOT

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
    # Regression: tasks that differed in these only shared a warm start.
    for options in ({"observation": "image"}, {"system_prompt": "Win."}, {"stop_at_answer": True}):
        played = replace(lake, options={**lake.options, **options})
        assert store.model_folder(Path("here"), played) != store.model_folder(Path("here"), lake)
        assert store.baselines_file(Path("here"), played) != store.baselines_file(Path("here"), lake)
    plain = replace(lake, options={**lake.options, "observation": "text"})
    assert store.model_folder(Path("here"), plain) == store.model_folder(Path("here"), lake)


@pytest.mark.parametrize("name", sorted(QUESTIONS.keys() - UNANSWERED))
def test_every_committed_run_is_found_by_the_digest_that_it_was_made_with(name: str) -> None:
    """Classes and modules have moved since; a digest that changes would lose the run."""
    question, folder = QUESTIONS[name], Path("here")
    committed = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    assert collect.dropped(question, committed) == []
    for task_name, results in committed["tasks"].items():
        task = question.tasks[task_name]
        assert as_json(store.prepare_settings(task)) == results["prepared"]["settings"]
        assert store.model_folder(folder, task).name == results["prepared"]["model"]
        assert store.baselines_file(folder, task).stem == results["prepared"]["digest"]
        for variant_name, result in results["variants"].items():
            variant = question.variants[variant_name]
            assert as_json(spec.training_options(task, variant_name, variant)) == result["options"]


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
            asked_for = [one.env_kwargs for name, one in task.evaluations.items() if name != "the other lake"]
            for given in (task.env_kwargs, *asked_for):
                assert not {"is_slippery", "frozen_prob", "dim_room"} & set(given), name
    vanilla = QUESTIONS["starpo_s"].at_paper_scale("a/model")
    options = spec.training_options(vanilla.tasks["sokoban"], "vanilla", vanilla.variants["vanilla"])
    assert options["max_steps"] == 200 * 16  # four passes over a rollout in four mini-batches each
    generalised = QUESTIONS["generalisation"].at_paper_scale("a/model").tasks["sokoban"].evaluations
    assert set(generalised["other symbols"].env_kwargs) == {"symbols"}
    assert generalised["FrozenLake"].env_kwargs == {}  # RAGEN's Table 4 is about the lake that slips
    thought = list(QUESTIONS["reasoning"].at_paper_scale("a/model").tasks)
    games = ("bandit", "frozenlake", "sokoban")  # at that scale there is one lake
    assert thought == [f"{game}, {kind}" for game in games for kind in ("without", "with notes")]


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
    assert result["final"]["peak_mib"] > 0
    assert [row["step"] for row in result["history"] if "loss" in row] == [1, 2]
    json.dumps(result)


def test_a_question_finds_the_runs_that_another_questions_json_holds() -> None:
    results = read(ROOT / "benchmarks" / "results")
    curves = learning_curves.QUESTION
    asked = (curves.tasks["frozenlake"], "starpo_s", curves.variants["starpo_s"], 0)
    shared = filtering.QUESTION
    there = store.Finished(Path("nowhere"), results)
    assert there.run(*asked) == there.run(shared.tasks["frozenlake"], "group_25", shared.variants["group_25"], 0)
    assert there.run(*asked) is not None and there.run(*asked[:3], seed=99) is None
    assert there.prepared(asked[0]) is not None


def test_the_list_names_what_is_there_and_what_is_missing_with_its_minutes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--list", "--tasks", "sokoban_200", "--variants", "gae_25", "gae_100", "--folder", str(tmp_path)]
    assert runner.ask(filtering.QUESTION, words) == 0
    lines = capsys.readouterr().out.splitlines()
    shared, own, total = (re.sub(r"\d+\.\d", "_", line) for line in lines)
    assert re.fullmatch(r"filtering: sokoban_200, gae_25: [23] of 3 runs, _ CPU min each", shared)  # of collapse.json
    assert re.fullmatch(r"filtering: sokoban_200, gae_100: [03] of 3 runs, _ CPU min each", own)
    assert re.fullmatch(r"filtering: [0-4] runs are missing, about \d+ CPU min in all", total)
    assert list(tmp_path.iterdir()) == []


def test_more_trajectories_updates_turns_and_a_critic_are_expected_to_take_longer() -> None:
    task, variants = tasks.TASKS["sokoban"], tasks.VARIANTS

    def minutes(task: Task, name: str = "starpo") -> float:
        return spec.expected_minutes(task, name, variants[name])

    longer = [
        *(replace(task, trajectories=2 * task.trajectories), replace(task, evaluations_per_run=20)),
        replace(task, options={**task.options, "max_turns": 10}),
    ]
    assert all(minutes(each) > minutes(task) for each in longer)
    assert minutes(task, "starpo_s") < minutes(task, "starpo") < minutes(task, "starpo_gae") < minutes(task, "vanilla")


def test_the_expected_minutes_are_within_a_factor_of_two_of_what_committed_runs_took() -> None:
    committed = json.loads((ROOT / "benchmarks" / "results" / "starpo_s.json").read_text(encoding="utf-8"))["tasks"]
    question = QUESTIONS["starpo_s"]
    for name in ("frozenlake", "sokoban"):
        for variant, found in committed[name]["variants"].items():
            expected = spec.expected_minutes(question.tasks[name], variant, question.variants[variant])
            assert 0.5 < expected / (found["summary"]["cpu_seconds"]["mean"] / 60 + 0.4) < 2, (name, variant)


def test_the_papers_questions_take_eleven_cpu_hours_in_all_and_fill_every_game() -> None:
    total, seen = 0.0, set()
    for name in everything.PAPERS:
        question = QUESTIONS[name]
        for task in question.tasks.values():
            for variant in task.variants:
                for seed in task.seeds_of(variant):
                    made = store.digest(store.run_settings(task, variant, question.variants[variant], seed))
                    total += 0.0 if made in seen else spec.expected_minutes(task, variant, question.variants[variant])
                    seen.add(made)
        slips = [task.env_kwargs.get("is_slippery", True) for task in question.tasks.values() if "Lake" in task.env]
        played = {task.env for task in question.tasks.values()}
        if name == "step_credit":
            assert played == {"ragen/Sokoban-v0", "ragen/ToyShop-v0"}
            continue
        assert set(slips) == {True, False} and "ragen/Sokoban-v0" in played, name
        assert ("ragen/Bandit-v0" in played) != (name == "actions_per_turn")  # it has one action
    assert total < 672


def test_the_headline_claims_have_five_seeds() -> None:
    collapse, stable = QUESTIONS["collapse"].tasks, QUESTIONS["starpo_s"].tasks
    for game in ("bandit", "frozenlake", "frozenlake_slippery", "sokoban"):
        for form in ("grpo_four", "ppo_four", "starpo_s", "starpo_s_gae"):
            assert collapse[f"{game}_200"].seeds_of(form) == (11, 12, 13, 14, 15)
        assert all(stable[game].seeds_of(name) == (0, 1, 2, 3, 4) for name in ("starpo", "starpo_s", "starpo_s_gae"))


def test_the_collapse_is_asked_with_ragens_own_schedule(tmp_path: Path) -> None:
    question = QUESTIONS["collapse"]
    task = question.tasks["sokoban_200"]
    made = {}
    for name in task.variants:
        variant = question.variants[name]
        options = spec.training_options(task, name, variant)
        made[name] = learning_run.resolve(variant.config)(output_dir=str(tmp_path), **options, use_cpu=True)
    assert {name: args.num_rollouts for name, args in made.items()} == dict.fromkeys(made, 200)
    updates = {name: args.steps_per_rollout for name, args in made.items()}
    assert updates == {"grpo_four": 4, "ppo_four": 4, "starpo_s": 1, "starpo_s_gae": 1}
    assert {args.groups_per_generation for args in made.values()} == {8}


def test_the_papers_questions_share_a_budget_and_come_in_order_of_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, called = iter(range(0, 10_000, 60)), []
    monkeypatch.setattr(everything.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(everything, "succeeds", lambda path, words: called.append((path.stem, words)) or True)
    assert everything.main(["--papers", "--jobs", "1", "--budget-minutes", "3"]) == 0
    assert [name for name, _ in called] == list(everything.PAPERS)
    assert called[0] == ("collapse", ["--jobs", "1", "--budget-minutes", "2.0"])
    assert called[3][1][-1] == called[-1][1][-1] == "0.0"


def test_the_list_of_the_papers_questions_has_what_is_missing_and_the_sum(tmp_path: Path) -> None:
    lists = {
        "one": ("one: game, a: 3 of 3 runs, 1.0 CPU min each", "one: 0 runs are missing, about 0 CPU min in all"),
        "two": ("two: game, a: 13 of 3 runs, 1.0 CPU min each", "two: 2 runs are missing, about 7 CPU min in all"),
    }
    for name, lines in lists.items():
        (tmp_path / f"{name}.py").write_text("\n".join(f"print({line!r})" for line in lines))
    (tmp_path / "bad.py").write_text("raise SystemExit(3)")
    said = everything.lacking([tmp_path / f"{name}.py" for name in ("one", "two", "bad")])
    assert said[:-1] == [lists["one"][1], *lists["two"], "failed: bad.py"]
    assert said[-1] == "of all: 2 runs are missing, about 7 CPU min; runs that questions share count in each"
