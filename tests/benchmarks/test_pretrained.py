"""The runs of a pretrained model: their settings, what is kept of them, and the page."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import model_sizes
import pretrained
import pytest
from agents import command, results, runs
from agents.games import BF16, GAMES
from agents.names import DEMONSTRATED, OTHER_PAIRS
from pages import pretrained as pretrained_page
from pages.pretrained import pretrained_tables

from ragen_envs.bandit.env import NAME_SETS
from ragen_trl.cli.eval_plan import read_plan
from ragen_trl.cli.options import parse
from ragen_trl.cli.training_run import check
from ragen_trl.config.commands import ModelArguments, RunArguments
from ragen_trl.imitation.fine_tuning import WarmStartConfig

MODEL = "models/SmolLM2-135M-Instruct"
EVERY = [*runs.all_runs(MODEL), *runs.paper_runs(MODEL)]
BY_NAME = {run.name: run for run in runs.all_runs(MODEL)}


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
        assert {options["episodes"] for options in evaluated} == {256}
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


def stored(folder: Path, policy: str, env: str, rows: Sequence[dict[str, Any]]) -> None:
    """Episodes as an evaluation stores them."""
    (folder / "episodes").mkdir(exist_ok=True)
    lines = [json.dumps({"policy": policy, "env": env, **row}) for row in rows]
    (folder / "episodes" / f"{policy}-on-{env}.jsonl").write_text("\n".join(lines) + "\n")


def test_success_at_many_bandits_has_an_interval_over_bandits() -> None:
    # Each is always right or always wrong; of the wrong ones one never names an arm.
    played = {f"low {at}, high {at}": [4 * (at % 2), 4 * (at > 0), 4] for at in range(8)}
    text, _ = page(finished("bandit_other_pairs/warm_start", 0.5, by_arms={"64 other pairs": played}))
    assert "| bandit_other_pairs/warm_start | 64 other pairs | 0.50 [0.22, 0.78] | 0.57 [0.25, 0.84] | 4 of 8 |" in text


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


def test_a_table_has_a_column_for_every_difficulty_and_an_interval_only_of_replies_that_count() -> None:
    """Regression: shares stood below other difficulties where a run had not all of them; no reply divided by zero."""
    both = {"game": "frozenlake", "stage": "any", "by_arms": {"held out": {f"a{n}": [0, 0, 4] for n in range(8)}}}
    shares = {"first": {"1": [0.5, 4], "2": [0.25, 4]}, "second": {"2": [0.75, 4], "3": [1.0, 2]}}
    runs_of = {f"frozenlake/{name}": {"by_difficulty": {"held out": each}} for name, each in shares.items()}
    content = {"runs": {name: {"name": name, **both, **each} for name, each in runs_of.items()}}
    lines = [line.replace(" ", "") for line in pretrained_page._by_difficulty(content, ["frozenlake"])]
    assert lines[0] == "|frozenlake:successbydifficulty|1(n=4)|2(n=4)|3(n=2)|"
    assert lines[2:4] == ["|first|0.50|0.25||", "|second||0.75|1.00|"]
    (line,) = [line for line in pretrained_page._by_arms(content) if "frozenlake/first" in line]
    assert "| – | 0 of 8 |" in line


def test_the_list_counts_what_the_json_holds_as_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs_there = ["--list", "--only", "countdown", "--folder", str(tmp_path), "--output", str(tmp_path)]
    assert pretrained.main(runs_there) == 0
    (tmp_path / "pretrained.json").write_text(json.dumps({"runs": {"x": finished("countdown/downloaded", 0.3)}}))
    assert pretrained.main(runs_there) == 0
    before, after = capsys.readouterr().out.split("for what is not finished\n")[:2]
    assert "in the JSON" not in before
    (line,) = (line for line in after.splitlines() if line.endswith("in the JSON"))
    assert "--only countdown/downloaded  #" in line


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


def rate(success: float) -> dict[str, Any]:
    low, high = max(0.0, success - 0.05), min(1.0, success + 0.05)
    return {"n": 256, "success": success, "success_low": low, "success_high": high, "format_valid": 0.9}


MORNING, NOON = "2026-11-22T08:00:00+00:00", "2026-11-22T12:00:00+00:00"


def finished(name: str, success: float, created: str = MORNING, **more: Any) -> dict[str, Any]:
    run = BY_NAME[name]
    found = {"random": rate(0.2), "model": rate(success), "oracle": rate(1.0)}
    known = {"name": name, "game": run.game, "stage": run.stage, "seed": run.seed, "digest": run.digest}
    known |= {"commit": "abcdef0123456", "created": created, "settings": run.settings}
    return {**known, "evaluations": {"sampled": {"held out": found}}, **more}


TRAINED: dict[str, Any] = {
    "curve": [
        {"step": 0, "success": 0.2, "trajectories": 0, "reference_trajectories": 0},
        {"step": 60, "success": 0.7, "trajectories": 3840, "reference_trajectories": 0},
    ],
    "training": {"seconds": {"training": 1800.0}},
    "examples": {
        when: [{"success": True, "step": step, "turns": [{"observation": "P_G", "reply": "<answer>Right</answer>"}]}]
        for when, step in (("before", 1), ("after", 60))
    },
}


def page(*found: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    every = list(BY_NAME.values())
    content = results.collect(every, results.known(every, found), "command", "SmolLM2-135M-Instruct")
    content = json.loads(json.dumps(content))
    return pretrained_tables(content), content


def test_a_page_shows_what_is_finished_and_names_what_is_not() -> None:
    stage = "starpo_s_falling_rate"
    name = f"frozenlake_640/{stage}-seed1"
    text, content = page(finished("frozenlake_640/warm_start", 0.3), finished(name, 0.6, began_with=MORNING, **TRAINED))
    what = "from `warm_start`: 80 updates, 8 · 8 a rollout, rate 0.0003 falling to 0"
    assert "| frozenlake_640 | what it is | held out |" in text and "| random play |  | 0.20 [0.15, 0.25] |" in text
    assert "| `warm_start` | 640 demonstrations | 0.30 [0.25, 0.35] |" in text
    assert f"| `{stage}-seed1` | {what} | 0.60 [0.55, 0.65] |" in text
    assert f"| {name} | 0.30 [0.25, 0.35] | 0.60 [0.55, 0.65] | above, by 0.30 | 0.70 | 0.90 | 60 |" in text
    assert "> <answer>Right</answer>" in text
    left = text.partition("Not finished")[2].partition("\n")[0]
    assert f"`frozenlake_640/{stage}-seed0`" in left and f"`{name}`" not in left
    assert set(content["unfinished"]) == BY_NAME.keys() - {"frozenlake_640/warm_start", name}
    assert "n = 256" in text and "sokoban |" not in text


def test_a_difference_is_paired_where_the_episodes_are_kept(tmp_path: Path) -> None:
    """64 start states that both solve, 64 that training adds, 128 that neither does."""
    step = runs.Step("sampled", "eval", {"env": ["ragen/FrozenLake-v0:{}"]}, evaluations=("held out",))
    told = []
    for count in (64, 128):
        rows = [{"seed": seed, "success": float(seed < count), "limit": ""} for seed in range(256)]
        rows[5]["limit"] = "crash"
        stored(tmp_path, "model", "FrozenLake-v0", rows)
        (tmp_path / "summary.json").write_text(json.dumps({"environments": {"FrozenLake-v0": {}}}))
        told.append(results.outcomes(step, tmp_path))
    assert told[0]["held out"] == "1" * 5 + "-" + "1" * 58 + "0" * 192
    name = "frozenlake_640/starpo_s_falling_rate-seed1"
    began = finished("frozenlake_640/warm_start", 0.25, outcomes=told[0])
    text, _ = page(began, finished(name, 0.5, began_with=MORNING, **TRAINED, outcomes=told[1]))
    assert f"| {name} | 0.25 [0.20, 0.30] | 0.50 [0.45, 0.55] | +0.25 [+0.20, +0.30] | 0.70 |" in text


def test_measures_of_thoughts_are_compared_from_the_first_to_the_last_updates() -> None:
    updates = [{"step": step, "entropy": 2.0, "collapse/thought_tokens": 60.0 - step} for step in range(1, 21)]
    text, _ = page(finished("bandit_thoughts/starpo_s-seed0", 0.6, **{**TRAINED, "updates": updates}))
    assert "| bandit_thoughts/starpo_s-seed0 | 57.00 → 42.00 | – → – |" in text
    assert "2.00 → 2.00 |" in text


def test_a_page_without_a_finished_run_has_no_figures() -> None:
    text, content = page()
    assert "No run of a game is finished." in text and "No training run is finished." in text
    assert content["runs"] == {}


def test_a_result_with_other_settings_is_no_result() -> None:
    old = {**finished("frozenlake/warm_start", 0.3), "digest": "0" * 16}
    text, content = page(old)
    assert content["runs"] == {} and "frozenlake/warm_start" in content["unfinished"] and "0.30" not in text


def test_a_run_is_compared_with_the_warm_start_that_it_began_with() -> None:
    again, first = (finished("frozenlake/warm_start", *made) for made in ((0.4, NOON), (0.3, MORNING)))
    began = {0: MORNING, 1: NOON}
    trained = [
        finished(f"frozenlake/starpo_s_half_as_long-seed{seed}", 0.6, "2026-11-23", began_with=with_, **TRAINED)
        for seed, with_ in began.items()
    ]
    text, content = page(again, first, *trained)
    assert list(content["runs"])[:2] == ["frozenlake/warm_start", "frozenlake/warm_start (2)"]
    for seed, (start, at) in enumerate({"": "0.30 [0.25, 0.35]", " (2)": "0.40 [0.35, 0.45]"}.items()):
        assert f"| `warm_start{start}` | 768 demonstrations | {at} |" in text
        assert f"| `starpo_s_half_as_long-seed{seed}` | from `warm_start{start}`: 60 updates" in text
        assert f"| frozenlake/starpo_s_half_as_long-seed{seed} | {at} | 0.60 [0.55, 0.65] | above" in text


def test_a_row_says_what_a_run_was() -> None:
    """Regression: columns were named otherwise than runs, and the page said nothing of what differed between them."""
    played = finished("bandit_other_pairs/starpo_s-seed1", 0.5, "2026-11-23", began_with=NOON)
    trained = finished("bandit/starpo_s-seed1", 0.9, NOON, began_with=MORNING, **TRAINED)
    half = {**TRAINED, "training": {"bf16": True}}
    lake = finished("frozenlake/starpo_s_falling_rate-seed0", 0.7, "2026-11-24", **half)
    text, _ = page(finished("bandit/warm_start", 0.4), trained, played, lake, finished("frozenlake/downloaded", 0.01))
    assert "| `warm_start` | 512 demonstrations, LoRA, bfloat16 |" in text
    assert "100 updates, 16 · 32 a rollout, rate 5e-05 falling to 0, all groups, entropy bonus 0.01, bfloat16 |" in text
    assert "| `starpo_s-seed1` | `bandit/starpo_s-seed1`, played here | 0.50" in text
    assert "rate 0.0003 falling to 0, 0.5 of the groups, entropy bonus 0.003, bfloat16 | 0.70" in text
    assert "| `downloaded` | as downloaded | 0.01" in text


def test_of_a_run_that_was_made_again_the_last_one_counts() -> None:
    text, _ = page(*(finished("sokoban/starpo_s-seed0", *made) for made in ((0.4, NOON), (0.3, MORNING))))
    assert "0.40 [0.35, 0.45]" in text and "0.30 [0.25, 0.35]" not in text


def test_a_result_has_the_name_that_its_settings_have_now() -> None:
    old = {**finished("frozenlake/warm_start", 0.3), "name": "lake/former", "game": "lake", "stage": "former"}
    text, content = page(old)
    (run,) = content["runs"].values()
    assert (run["name"], run["game"], run["stage"]) == ("frozenlake/warm_start", "frozenlake", "warm_start")
    assert "0.30" in text


def test_the_peaks_of_lora_and_of_all_weights_are_compared() -> None:
    peaks = {"lora": (1500.0, 500.0), "all_weights": (3000.0, 500.0)}
    found = [
        {**finished(f"memory/{kind}", 0.0), "evaluations": {}, "training": {},
         "memory": {"peak_mib": peak, "libraries_mib": libraries}}
        for kind, (peak, libraries) in peaks.items()
    ]  # fmt: skip
    text, _ = page(*found)
    assert "| LoRA | 1,500 | 500 |" in text
    assert "LoRA takes 0.50 of what all weights take, 0.40 without the libraries." in text


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
    monkeypatch.setattr(runs, "SMALL_WARM_START", {"demonstrations": 16})
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


def test_success_is_told_by_difficulty(tmp_path: Path) -> None:
    env = 'ragen/FrozenLake-v0:{"is_slippery": false, "frozen_prob": 0.9}'
    step = runs.Step("sampled", "eval", {"env": [env, "ragen/Bandit-v0:{}"]}, evaluations=("held out", "Bandit"))
    (tmp_path / "summary.json").write_text(json.dumps({"environments": {"Lake": {}, "Bandit-v0": {}}}))
    for policy, success in (("model", 1.0), ("random", 0.0), ("oracle", 0.0)):
        played = [{"seed": seed, "success": success * (seed % 2)} for seed in range(8)]
        stored(tmp_path, policy, "Lake", played)
        stored(tmp_path, policy, "Bandit-v0", played)
    found = results.by_difficulty(step, tmp_path)
    assert list(found) == ["held out"]  # all bandits are equally hard
    assert sum(n for _, n in found["held out"].values()) == 8
    assert sum(share * n for share, n in found["held out"].values()) == 4
    text, _ = page(finished("frozenlake/warm_start", 0.3, by_difficulty=found))
    assert "| frozenlake: success by difficulty | " in text
