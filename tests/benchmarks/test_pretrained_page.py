"""The page of a pretrained model's runs: what a table says of which run."""

import json
from pathlib import Path

from agents import results, runs
from agents.shops import SHOPS
from pages import pretrained as pretrained_page
from pages.pretrained import games_table
from pages.transcripts import transcripts

from tests.support.pretrained_runs import BY_NAME, MORNING, NOON, TRAINED, finished, page, rate, stored

OFFICIAL = ("webshop_official/warm_start", "webshop_official/starpo_s-seed0")


def test_success_at_many_bandits_has_an_interval_over_bandits() -> None:
    # Each is always right or always wrong; of the wrong ones one never names an arm.
    played = {f"low {at}, high {at}": [4 * (at % 2), 4 * (at > 0), 4] for at in range(8)}
    text, _ = page(finished("bandit_other_pairs/warm_start", 0.5, by_arms={"64 other pairs": played}))
    assert "| bandit_other_pairs/warm_start | 64 other pairs | 0.50 [0.22, 0.78] | 0.57 [0.25, 0.84] | 4 of 8 |" in text


def test_a_table_has_a_column_for_every_difficulty_and_an_interval_only_of_replies_that_count() -> None:
    """Regression: shares stood below other difficulties where a run had not all of them; no reply divided by zero."""
    both = {"game": "frozenlake", "stage": "any", "by_arms": {"held out": {f"a{n}": [0, 0, 4] for n in range(8)}}}
    shares = {"first": {"1": [0.5, 4], "2": [0.25, 4]}, "second": {"2": [0.75, 4], "3": [1.0, 2]}}
    runs_of = {f"frozenlake/{name}": {"by_difficulty": {"held out": each}} for name, each in shares.items()}
    content = {"runs": {name: {"name": name, "evaluations": {}, **both, **each} for name, each in runs_of.items()}}
    content["games"] = {"frozenlake": {"env": "ragen/FrozenLake-v0", "env_kwargs": {}, "play": {}}}
    lines = [line.replace(" ", "") for line in pretrained_page._by_difficulty(content, ["frozenlake"])]
    assert lines[0] == "|frozenlake:successbydifficulty|1(n=4)|2(n=4)|3(n=2)|"
    assert lines[2:4] == ["|first|0.50|0.25||", "|second||0.75|1.00|"]
    (line,) = [line for line in pretrained_page._by_arms(content) if "frozenlake/first" in line]
    assert "| – | 0 of 8 |" in line


def test_a_page_shows_what_is_finished_and_names_what_is_not() -> None:
    stage = "starpo_s_falling_rate"
    name = f"frozenlake_640/{stage}-seed1"
    text, content = page(finished("frozenlake_640/warm_start", 0.3), finished(name, 0.6, began_with=MORNING, **TRAINED))
    what = "from `warm_start`: 80 updates, 8 · 8 a rollout, rate 0.0003 falling to 0"
    assert "| frozenlake_640 | what it is | held out |" in text and "| random play |  | 0.20 [0.15, 0.25] |" in text
    assert "| `warm_start` | 640 demonstrations | 0.30 [0.25, 0.35] |" in text
    assert f"| `{stage}-seed1` | {what} | 0.60 [0.55, 0.65] |" in text
    assert f"| {name} | 0.30 [0.25, 0.35] | 0.60 [0.55, 0.65] | above, by 0.30 | 0.90 |  |  |  |  | 60 |" in text
    assert "> <answer>Right</answer>" in transcripts(content) and "<answer>" not in text
    left = text.partition("Not finished")[2].partition("\n")[0]
    assert f"`frozenlake_640/{stage}-seed0`" in left and f"`{name}`" not in left
    assert set(content["unfinished"]) == BY_NAME.keys() - {"frozenlake_640/warm_start", name}
    assert "n = 256" in text and "sokoban |" not in text


def test_a_page_shows_scores_turns_tokens_and_kl_where_they_are_kept() -> None:
    name = "frozenlake/astar_po-seed0"
    before = finished("frozenlake/warm_start", 0.3)
    after = finished(name, 0.6, began_with=MORNING, **TRAINED, updates=[{"kl": 0.0}, *[{"kl": 0.02}] * 5])
    for run, values in ((before, (5.94, 63.4, 0.654)), (after, (4.61, 52.1, 0.76))):
        model = run["evaluations"]["sampled"]["held out"]["model"]
        model |= dict(zip(("turns", "reply_tokens", "score"), values, strict=True))
    text, _ = page(before, after)
    assert "| above, by 0.30 | 0.90 | 5.9 → 4.6 | 63 → 52 | 0.020 |  | 60 |" in text
    assert "| `warm_start` | 768 demonstrations | 0.30 [0.25, 0.35] | 0.65 |" in text
    assert "| random play |  | 0.20 [0.15, 0.25] |  |" in text


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
    assert f"| {name} | 0.25 [0.20, 0.30] | 0.50 [0.45, 0.55] | +0.25 [+0.20, +0.30] | 0.90 |" in text


def test_a_game_has_a_row_with_the_setting_of_most_seeds_and_with_greedy_play() -> None:
    lake = "frozenlake/starpo_s"
    half = f"{lake}_half_as_long-seed"
    trained = [finished(f"{half}{seed}", 0.7 + 0.01 * seed, f"2026-11-2{seed}", **TRAINED) for seed in range(3)]
    a_star = finished("frozenlake/astar_po-seed0", 0.75, NOON, began_with=MORNING, **TRAINED)
    greedy = finished("frozenlake/astar_po_greedy-seed0", 0.8, "2026-11-23", began_with=NOON)
    greedy["evaluations"] = {"greedy": greedy["evaluations"].pop("sampled")}
    greedy["greedy_outcomes"] = {"held out": "1" * 8 + "0" * 2}
    warm = finished("frozenlake/warm_start", 0.5)
    warm["greedy_outcomes"] = {"held out": "1" * 6 + "0" * 4}
    warm["evaluations"]["greedy"] = {"held out": {"model": rate(0.6), "random": rate(0.2), "oracle": rate(1.0)}}
    alone = finished("frozenlake_256/warm_start", 0.2)  # nothing is trained from it
    text, content = page(warm, finished(f"{lake}-seed0", 0.9, "2026-11-19", **TRAINED), *trained, a_star, greedy, alone)
    cells = ["0.20 [0.15, 0.25]", "0.50 [0.45, 0.55]", "0.60 [0.55, 0.65]", "0.70, 0.71, 0.72", ""]
    cells += ["0.75 [0.70, 0.80]", "0.80 [0.75, 0.85]", "1.00 [0.95, 1.00]"]
    assert games_table(content).splitlines()[2:] == [f"| frozenlake | {' | '.join(cells)} |"]
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert [row.split(" | ")[0] for row in rows[-3:]] == [
        "| `astar_po-seed0`",
        "| `astar_po-seed0`, greedy",
        "| `frozenlake_256/warm_start`",  # played and evaluated alike: in the table of the first lake
    ]
    assert "frozenlake_256 | what it is" not in text
    difference = "+0.20 [-0.07, +0.47]"  # 2 of 10 start states: 1.96 · √(2 + 1 - 2² / 12) / 12 is 0.27
    assert f"| frozenlake/astar_po-seed0 | {cells[2]} | {cells[6]} | {difference} |" in text


def test_measures_of_thoughts_are_compared_from_the_first_to_the_last_updates() -> None:
    updates = [{"step": step, "entropy": 2.0, "collapse/thought_tokens": 60.0 - step} for step in range(1, 21)]
    text, _ = page(finished("bandit_thoughts/starpo_s-seed0", 0.6, **{**TRAINED, "updates": updates}))
    assert "| bandit_thoughts/starpo_s-seed0 | 57.00 → 42.00 | – |" in text
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


def test_a_run_from_the_warm_start_of_another_game_is_compared_with_that_model_played_in_its_own() -> None:
    results_of = {
        "shop/warm_start": {"game": "shop", "stage": "warm_start", "created": "1"},
        "official/warm_start": {"game": "official", "stage": "warm_start", "created": "2", "began_with": "1"},
        "official/starpo_s": {"game": "official", "stage": "starpo_s", "created": "3", "began_with": "1"},
        "official/greedy": {"game": "official", "stage": "starpo_s_greedy", "created": "4", "began_with": "3"},
    }
    shop, shown, trained, greedy = results_of.values()
    content = {"runs": results_of}
    assert results.beginnings(content, shop) == [] and results.beginnings(content, trained) == [shown]
    assert results.beginnings(content, greedy) == [trained]
    by_name = {run.name: run for run in runs.game_runs("models/SmolLM2-135M-Instruct", SHOPS)}
    warm, played, began = (by_name[name] for name in ("webshop/warm_start", *OFFICIAL))
    assert played.needs == began.needs == warm and [step.command for step in played.steps] == ["eval", "eval"]
    models = {step.options["model"] for step in (*played.steps, began.steps[0])}
    assert models == {f"{runs.NEEDED}/model"}


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


def test_of_a_run_that_played_more_episodes_later_on_all_of_them_count() -> None:
    few = finished("sokoban/starpo_s-seed0", 0.4)
    more = json.loads(json.dumps(few).replace('"n": 256', '"n": 500'))
    assert few["evaluations"] != more["evaluations"] and few["created"] == more["created"]
    for found in ([few, more], [more, few]):
        assert page(*found)[1]["runs"]["sokoban/starpo_s-seed0"]["evaluations"] == more["evaluations"]


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
