"""The runs of a pretrained model: their settings, what is kept of them, and the page."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import model_sizes
import pretrained
import pytest
from agents import command, results, runs, smoke
from agents.games import BF16, GAMES
from agents.names import DEMONSTRATED, OTHER_PAIRS
from pages.pretrained import pretrained_tables

from ragen_envs.bandit.env import NAME_SETS
from ragen_trl.cli.eval_plan import read_plan
from ragen_trl.cli.options import parse
from ragen_trl.cli.training_run import check
from ragen_trl.config.commands import ModelArguments, RunArguments
from ragen_trl.imitation.fine_tuning import WarmStartConfig
from tests.support.pretrained_runs import BY_NAME, MODEL, finished, stored

EVERY = [*runs.all_runs(MODEL), *runs.paper_runs(MODEL)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(command.tiny_model(tmp_path_factory.mktemp("model") / "tiny"))


def test_every_command_is_one_that_the_package_takes(tiny: str, tmp_path: Path) -> None:
    first = [run for run in EVERY if run.seed in (None, 0)]
    folders = {runs.MODEL: tiny, runs.HERE: str(tmp_path), runs.NEEDED: str(tmp_path), BF16: "false"}
    for run in first:
        for step in run.steps:
            asked = {**step.options, "model": tiny}
            words = runs.arguments(asked, folders)
            if step.command == "eval":
                plan = read_plan({}, words)
                assert len(plan.tasks) == len(step.evaluations) == len(asked["env"]), run.name
            elif step.command == "warm-start":
                parse("warm-start", {}, words, ModelArguments, WarmStartConfig)
            else:
                (wanted, _, args), _ = parse("train", {}, words, RunArguments, WarmStartConfig)
                check(wanted, args)
                assert args.max_steps == (200 if run.stage.startswith("paper") else asked["max_steps"])
                assert asked["output_dir"] == f"{runs.HERE}/train"


def test_a_game_plays_the_same_in_all_stages() -> None:
    for game_name, game in GAMES.items():
        steps = [step for run in BY_NAME.values() if run.game == game_name for step in run.steps]
        for step in steps:
            assert {name: step.options[name] for name in game.play} == game.play
        evaluated = [step.options for step in steps if step.command == "eval"]
        assert {options["episodes"] for options in evaluated} == {game.episodes}
        assert len({json.dumps(options["env"]) for options in evaluated}) == 1
        assert next(iter(game.evaluations.values()))[0] == game.env


def test_seeds_are_three_for_bandits_and_lakes() -> None:
    seeds = {name: len(game.seeds) for name, game in GAMES.items()}
    of_three = {name for name, count in seeds.items() if count == 3}
    bandits = ("bandit", "bandit_other_pairs", "bandit_thoughts")
    lakes = {name for name in seeds if name.startswith("frozenlake")}
    other_warm_starts = {f"frozenlake_{count}" for count in (256, 512, 640)}
    assert of_three == {*bandits, *lakes} - other_warm_starts
    assert {name for name, count in seeds.items() if count == 1} >= {"toyshop", "countdown", "sokoban"}


def test_other_pairs_are_played_by_the_models_that_the_bandit_trained() -> None:
    played = [run for run in BY_NAME.values() if run.game == "bandit_other_pairs"]
    trained = [f"starpo_s-seed{seed}" for seed in range(3)]
    assert [run.name.partition("/")[2] for run in played] == ["warm_start", *trained]
    for run in played:
        assert run.needs is not None and run.needs == BY_NAME[run.name.replace("_other_pairs", "")]
        (step,) = run.steps
        assert step.options["model"] == f"{runs.NEEDED}/{'model' if run.seed is None else 'train/model'}"
    names = [name for pair in OTHER_PAIRS for name in pair]
    known = [name for pairs in (*NAME_SETS.values(), DEMONSTRATED) for pair in pairs for name in pair]
    assert len(OTHER_PAIRS) == 64 and len(set(names)) == 128 and not {*names} & {*known}


def test_what_bandits_played_is_told_by_arms(tmp_path: Path) -> None:
    names = [["Nurse", "Poet"], ["Clerk", "Pirate"]]
    described = f"ragen/Bandit-v0:{json.dumps({'names': names})}"
    rows = [{"seed": seed, "success": float(seed < 20), "action_valid": float(seed < 30)} for seed in range(40)]
    (tmp_path / "summary.json").write_text(json.dumps({"environments": {"Bandit-v0": {}, "Bandit-v0(names)": {}}}))
    stored(tmp_path, "model", "Bandit-v0", rows[:4])
    stored(tmp_path, "model", "Bandit-v0(names)", rows)
    stored(tmp_path, "oracle", "Bandit-v0(names)", rows)
    step = runs.Step("sampled", "eval", {"env": ["ragen/Bandit-v0:{}", described]}, evaluations=("one", "two"))
    one, found = results.by_arms(step, tmp_path).values()
    assert one == {"Phoenix, Dragon": [4, 4, 4]}
    assert found.keys() == {"Nurse, Poet", "Clerk, Pirate"}
    assert [sum(each) for each in zip(*found.values(), strict=True)] == [20, 30, 40]


def test_paper_runs_have_the_papers_scale() -> None:
    trained = [run for run in runs.paper_runs("Qwen/Qwen2.5-0.5B-Instruct") if run.seed is not None]
    assert {run.game for run in trained} == {"bandit", "frozenlake_slippery", "sokoban"}
    assert {run.seed for run in trained} == {0, 1, 2}
    assert {run.steps[0].options["preset"] for run in trained} == {"starpo-s"}
    assert all("per_device_train_batch_size" not in run.steps[0].options for run in trained)  # the preset's 8 · 16
    assert all(run.steps[0].options["think"] for run in trained)


def test_a_changed_number_moves_the_runs_that_depend_on_it_and_no_other() -> None:
    def digests(**changes: Any) -> dict[str, str]:
        games = {**GAMES, "frozenlake": replace(GAMES["frozenlake"], **changes)}
        return {run.name: run.digest for run in runs.all_runs(MODEL, games)}

    def changed(**changes: Any) -> set[str]:
        return {name for name, one in digests(**changes).items() if one != BY_NAME[name].digest}

    warm = {**GAMES["frozenlake"].warm_start, "demonstrations": 300}
    trained = {name for name in BY_NAME if name.startswith("frozenlake/") and "-seed" in name}
    assert changed() == set()
    assert changed(warm_start=warm) == {"frozenlake/warm_start", *trained}
    assert changed(training={"eval_steps": 7}) == trained
    assert {run.digest for run in runs.all_runs("another/model")}.isdisjoint(run.digest for run in BY_NAME.values())


def test_two_models_with_folders_of_one_name_are_two(tmp_path: Path) -> None:
    """Regression: every model that is trained here lies in a folder ``model``, and the second counted as finished."""
    for folder, weights in (("a", b"1"), ("b", b"2")):
        (tmp_path / folder / "model").mkdir(parents=True)
        (tmp_path / folder / "model" / "model.safetensors").write_bytes(weights)
    first, second = (runs.all_runs(str(tmp_path / folder / "model")) for folder in ("a", "b"))
    assert {run.digest for run in first}.isdisjoint(run.digest for run in second)
    assert runs.name_of(MODEL) == "SmolLM2-135M-Instruct" and runs.name_of("owner/name") == "owner/name"


def test_the_list_counts_what_the_json_holds_as_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs_there = ["--list", "--only", "countdown", "--folder", str(tmp_path), "--output", str(tmp_path)]
    assert pretrained.main(runs_there) == 0
    (tmp_path / "pretrained.json").write_text(json.dumps({"runs": {"x": finished("countdown/downloaded", 0.3)}}))
    assert pretrained.main(runs_there) == 0
    before, after = capsys.readouterr().out.split("for what is not finished\n")[:2]
    assert "in the JSON" not in before
    (line,) = (line for line in after.splitlines() if line.endswith("in the JSON"))
    assert "--only countdown/downloaded  #" in line


def test_the_list_says_how_many_episodes_are_missing() -> None:
    run = BY_NAME["countdown/downloaded"]
    result = finished(run.name, 0.3)
    (by_name,) = result["evaluations"].values()
    assert command.in_json(run, result) == "in the JSON"
    next(iter(by_name.values()))["model"]["n"] = 100
    assert command.in_json(run, result) == "in the JSON with 100 of 256 episodes"


def test_names_choose_runs() -> None:
    every = list(BY_NAME.values())
    names = [run.name for run in runs.chosen(every, ["bandit/starpo_s", "frozenlake/warm_start"])]
    assert names == [*(f"bandit/starpo_s-seed{seed}" for seed in range(3)), "frozenlake/warm_start"]
    assert {run.game for run in runs.chosen(every, ["sokoban"])} == {"sokoban"}
    with pytest.raises(ValueError, match="there is no run 'sokobann'"):
        runs.chosen(every, ["sokobann"])


def test_a_curve_counts_the_trajectories_of_a_reference() -> None:
    summary = {
        "results": {"before": {"success": 0.2}, "trained": {"success": 0.6}},
        "trajectories": {"sampled": 40, "used": 10, "reference": 12},
    }
    history = [{"step": 2, "loss": 1.0}, {"step": 2, "eval_success": 0.4}, {"step": 4, "train_runtime": 1.0}]
    assert results.curve(summary, history) == [
        {"step": 0, "success": 0.2, "trajectories": 0, "reference_trajectories": 0},
        {"step": 2, "success": 0.4, "trajectories": 32, "reference_trajectories": 12},
        {"step": 4, "success": 0.6, "trajectories": 52, "reference_trajectories": 12},
    ]


def test_a_missing_model_is_named_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert pretrained.main(["--only", "frozenlake/warm_start"]) == 2
    assert "models/SmolLM2-135M-Instruct is not there; `make smollm2` makes it" in capsys.readouterr().err
    assert pretrained.main(["--only", "lake"]) == 2
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "here.gguf").touch()
    assert [command.missing_model(name) for name in ("here.gguf", "Qwen/Qwen2.5-0.5B-Instruct")] == [None, None]
    assert "./there holds no config.json" in str(command.missing_model("./there"))


def test_the_list_has_a_command_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrained.main(["--list", "--folder", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    wanted = [f"nice -n 19 python benchmarks/pretrained.py --folder {tmp_path} --only {name}" for name in BY_NAME]
    assert [line.partition("  #")[0] for line in lines[:-1]] == wanted
    assert wanted[0].endswith("frozenlake/warm_start")
    assert "hours in all" in lines[-1]


def test_a_smoke_run_trains_and_keeps_its_curve_and_its_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(smoke, "SMALL_WARM_START", {"demonstrations": 16})
    asked = ["--smoke", "--folder", str(tmp_path), "--only", "frozenlake/starpo_s"]
    assert pretrained.main(asked) == 0
    content = json.loads((tmp_path / "pretrained.json").read_text(encoding="utf-8"))
    assert list(content["runs"]) == ["frozenlake/starpo_s-seed0", "frozenlake/warm_start"][::-1]
    run = content["runs"]["frozenlake/starpo_s-seed0"]
    assert [point["step"] for point in run["curve"]] == [0, 1, 2]
    assert run["evaluations"]["sampled"]["held out"]["model"]["n"] == 4
    assert [run["examples"][when][0]["step"] for when in ("before", "after")] == [1, 2]
    assert (tmp_path / "pretrained_frozenlake.png").read_bytes().startswith(b"\x89PNG")
    assert "frozenlake/starpo_s-seed0" in pretrained_tables(content)
    capsys.readouterr()
    assert pretrained.main([*asked, "--keep"]) == 0
    assert "[1/" not in capsys.readouterr().out  # nothing is done again


def test_the_sizes_are_those_of_the_models() -> None:
    found = {size.name: model_sizes.estimated(size, rank=0) for size in model_sizes.SIZES}
    assert {name: row["parameters"] for name, row in found.items()} == {
        "SmolLM2-135M-Instruct": 134_515_008,
        "Qwen2.5-0.5B-Instruct": 494_032_768,
        "Qwen2.5-1.5B-Instruct": 1_543_714_304,
        "Qwen2.5-3B-Instruct": 3_085_938_688,
        "Qwen2.5-7B-Instruct": 7_615_616_512,
    }
    held = found["Qwen2.5-0.5B-Instruct"]["gib"]
    assert held["held"] == pytest.approx(494_032_768 * 12 / 2**30)  # weights and two moments in float32
    assert held["peak"] == pytest.approx(held["held"] + max(held["rollout"], held["update"]))


def test_a_list_whose_reader_has_enough_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: `--list | head` ended in a traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert command.say("a run\n" * 20_000) == 141
