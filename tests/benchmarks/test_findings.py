"""Claims and verdicts: verdicts from made-up runs, claims against the questions they name."""

import importlib
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import claims
import pytest
from findings import intervals, matched, measures, pictures, published, series_pictures, sign_pictures, signs, verdicts
from findings.claims import GAMES, Claim, Pair
from findings.intervals import Interval
from learning.tasks import game_of
from pages.claims import figure_tables, is_early, verdict_tables

from tests.support.finished_runs import ending, falling, finals, question, run
from tests.support.project import ROOT

RESULTS = claims.read_results(ROOT / "benchmarks" / "results")
PLAIN = Claim("it", "Paper", "Figure 1", "It is more.", (Pair("GRPO", "q", "a", "b", ("game",)),))


@pytest.mark.parametrize(
    ("low", "high", "more", "no_less", "alike"),
    [
        (0.1, 0.3, "agrees", "agrees", "disagrees"),
        (0.01, 0.3, "agrees", "agrees", "disagrees"),
        (-0.01, 0.3, "cannot be told", "agrees", "cannot be told"),
        (0.01, 0.04, "disagrees", "agrees", "agrees"),  # a difference, and too small to count
        (-0.04, 0.04, "disagrees", "agrees", "agrees"),
        (-0.1, 0.1, "cannot be told", "cannot be told", "cannot be told"),
        (-0.1, 0.01, "disagrees", "cannot be told", "cannot be told"),
        (-0.3, -0.01, "disagrees", "disagrees", "disagrees"),
    ],
)
def test_a_verdict_depends_on_where_the_interval_lies(
    low: float, high: float, more: str, no_less: str, alike: str
) -> None:
    found = Interval((low + high) / 2, low, high, 3)
    kinds = {"more": more, "no less": no_less, "alike": alike}
    assert {kind: verdicts.judge(replace(PLAIN, kind=kind), found) for kind in kinds} == kinds
    assert verdicts.judge(PLAIN, None) == "not run yet"


def test_one_verdict_of_several_leaves_out_what_was_not_run() -> None:
    later = "not run yet"
    assert verdicts.overall([later, "agrees", later]) == "agrees"
    assert verdicts.overall(["disagrees", "agrees", "cannot be told"]) == "agrees in part"
    assert verdicts.overall(["cannot be told", "disagrees"]) == "disagrees in part"
    assert verdicts.overall(["cannot be told", "agrees"]) == "agrees in part"
    assert verdicts.overall([later]) == verdicts.overall([]) == later


def test_differences_are_paired_by_seed() -> None:
    ours, theirs = ending(0.5, 0.6, 0.7), ending(0.4, 0.5, 0.6, 0.9)  # the fourth seed has no partner
    found = verdicts.difference(PLAIN.pairs[0], "game", measures.SUCCESS, {"q": question(a=ours, b=theirs)})
    assert found is not None
    assert (found.mean, found.n) == (pytest.approx(0.1), 3)
    rates = [[a["curve"][-1]["success"], b["curve"][-1]["success"]] for a, b in zip(ours, theirs[:3], strict=True)]
    assert found.high - found.mean == pytest.approx(intervals.evaluation_arm(rates, 256))
    shuffled = question(a=list(reversed(ours)), b=theirs)
    assert verdicts.difference(PLAIN.pairs[0], "game", measures.SUCCESS, {"q": shuffled}) == found


def test_differences_are_paired_by_start_state_where_every_episode_is_recorded() -> None:
    def recorded(outcomes: str) -> list[Any]:
        rate = outcomes.count("1") / len(outcomes)
        return [{**each, "final": finals(rate, outcomes=outcomes)} for each in ending(rate, rate)]

    results = {"q": question(a=recorded("1110" * 64), b=recorded("1100" * 64))}
    found = verdicts.difference(PLAIN.pairs[0], "game", measures.SUCCESS, results)
    assert found is not None and found.mean == pytest.approx(0.25)
    # A quarter of the start states differ by 1, the same in both seeds; one more does, by half and half.
    assert found.high - found.mean == pytest.approx(1.96 * (65 - 64**2 / 258) ** 0.5 / 258, abs=1e-4)


def test_a_variant_can_be_compared_with_its_warm_start() -> None:
    results = {"q": question(a=ending(0.5, 0.6))}
    pair = Pair("GRPO", "q", "a", "warm_start", ("game",))
    elsewhere = verdicts.difference(pair, "game", measures.elsewhere("held out"), results)
    assert elsewhere == verdicts.difference(pair, "game", measures.SUCCESS, results)
    assert elsewhere == intervals.above_one([0.5, 0.6], 256, 0.3, 256)
    assert verdicts.difference(pair, "game", measures.elsewhere("nowhere"), results) is None
    assert verdicts.difference(replace(pair, theirs="b"), "game", measures.SUCCESS, results) is None


def test_runs_of_other_warm_starts_are_not_compared() -> None:
    """Regression: a warm start that another commit made moved the ends of all its runs by more than their seeds did."""
    ours, theirs = ending(0.6, 0.7, 0.8), ending(0.5, 0.5, 0.5)
    for each in theirs[:2]:
        each["curve"][0]["success"] = 0.35
    results, pair = {"q": question(a=ours, b=theirs)}, PLAIN.pairs[0]
    assert verdicts.difference(pair, "game", measures.SUCCESS, results) is None
    assert verdicts.relative_difference([pair], results)[0] is None
    (place,) = verdicts.examined(PLAIN, results)["places"]
    assert (place["verdict"], place["why"]) == ("cannot be told", "runs of other warm starts")
    row = "| `it` | game | GRPO | 1 of 100 | – | 0.05 | – | cannot be told: runs of other warm starts |"
    assert row in claims_page(PLAIN, results)
    (place,) = verdicts.examined(PLAIN, {"q": question(a=ours, b=ours)})["places"]
    assert not place["why"]
    assert verdicts.difference(replace(pair, other_task="game"), "game", measures.SUCCESS, results) is not None
    begun = replace(pair, ours="b", theirs="warm_start")
    assert verdicts.difference(begun, "game", measures.SUCCESS, results) is None
    assert verdicts.difference(replace(begun, theirs="random"), "game", measures.SUCCESS, results) is not None


def test_a_reply_is_as_long_as_its_tokens_in_however_many_turns() -> None:
    """Regression: tokens an episode were taken for it, which fall as episodes end sooner."""

    def playing(tokens: float, turns: float) -> list[Any]:
        return [{**one, "final": finals(0.5, reply_tokens=tokens, turns=turns)} for one in ending(0.5, 0.5)]

    pair = Pair("GRPO", "q", "a", "warm_start", ("game",))

    def ratio(tokens: float, turns: float) -> float:
        found = question(a=playing(tokens, turns))
        begun = found["tasks"]["game"]["prepared"]["results"]["held out"]["warm_start"]
        begun |= {"reply_tokens": 40.0, "turns": 4.0}
        interval = verdicts.difference(pair, "game", measures.SHORTER, {"q": found})
        assert interval is not None
        return math.exp(interval.mean)

    assert ratio(20.0, 2.0) == pytest.approx(1.0)
    assert ratio(20.0, 4.0) == pytest.approx(2.0)


def test_costs_are_compared_as_ratios() -> None:
    cheap = [{**each, "final": {**each["final"], "cpu_seconds": 4.0}} for each in ending(0.5, 0.5)]
    claim = replace(PLAIN, measure=measures.CPU, effect=1.5, pairs=(Pair("GRPO", "q", "b", "a", ("game",)),))
    found = verdicts.examined(claim, {"q": question(a=cheap, b=ending(0.5, 0.5))})
    assert found["places"][0]["difference"]["mean"] == pytest.approx(0.6931, abs=1e-4)  # log 2
    assert found["verdict"] == "agrees"


def test_costs_of_other_commits_or_machines_are_not_compared() -> None:
    """Regression: the package became twice as fast between two commits, which was taken for what a filter saves."""
    claim = replace(PLAIN, measure=measures.CPU, effect=1.5, pairs=(Pair("GRPO", "q", "a", "b", ("game",)),))
    for other in ({"commit": "later"}, {"machine": {"cpus": 64}}):
        later = [{**each, **other, "final": finals(0.5) | {"cpu_seconds": 4.0}} for each in ending(0.5, 0.5, 0.5)]
        results = {"q": question(a=ending(0.5, 0.5, 0.5), b=later)}
        (place,) = verdicts.examined(claim, results)["places"]
        assert (place["verdict"], place["difference"]) == ("cannot be told", None)
        assert place["why"] == "runs of other commits or machines"
        # Success is compared all the same.
        assert verdicts.difference(claim.pairs[0], "game", measures.SUCCESS, results) is not None
        mixed = {"q": question(a=ending(0.5, 0.5, 0.5), b=[later[0], *ending(0.5, 0.5, 0.5)[1:]])}
        found = verdicts.difference(claim.pairs[0], "game", measures.CPU, mixed)
        assert found is not None and (found.mean, found.n) == (0.0, 2)  # of the two seeds that compare
        row = next(line for line in claims_page(claim, results).splitlines() if line.startswith("| `it` | "))
        why = "cannot be told: runs of other commits or machines"
        assert row == f"| `it` | game | GRPO | 1 of 100 | – | × 1.5 | – | {why} |"


def claims_page(claim: Claim, results: Any, one: Any = None) -> str:
    """Both pages of a single claim."""
    content = {
        "commit": "c" * 40,
        "claims": [one or verdicts.examined(claim, results), verdicts.examined(replace(claim, pairs=()), results)],
        "asked": [{"question": "q", "games": {"sokoban": {"PPO": (5, 5), "GRPO": (3, 5)}, "bandit": {}}}],
        "matched": claims.at_equal_cost("q", results["q"]),
        "signs": {"games": ["game"], "runs": 0, "counts": signs.counts([]), "by_game": {}, "dropped": []},
        "aggregates": [{"question": "q", "games": ["game"], "variants": matched.aggregate(results["q"], ["game"])}],
    }
    return verdict_tables(content) + figure_tables(content)


def test_the_mean_over_games_is_relative_and_counts_each_game_once() -> None:
    both = question(a=ending(0.6, 0.6), b=ending(0.4, 0.4))
    both["tasks"]["other"] = question(a=ending(0.6, 0.6, 0.6), b=ending(0.6, 0.6, 0.6))["tasks"]["game"]
    claim = replace(PLAIN, pooled=True, effect=0.2, pairs=(Pair("GRPO", "q", "a", "b", ("game", "other", "none")),))
    found = verdicts.examined(claim, {"q": both})["places"]
    assert [(place["game"], place["form"]) for place in found] == [("game, other", "GRPO")]
    assert found[0]["difference"]["mean"] == pytest.approx(0.25)  # of 0.5 in one game and 0 in the other
    assert found[0]["difference"]["n"] == 2  # seeds, of the game that has fewest


def test_a_mean_of_shares_cannot_be_told_where_one_is_a_share_of_nothing() -> None:
    """The vanilla GRPO form ends at 0 on the bandit in every seed: that was a division by zero."""
    both = question(a=ending(0.6, 0.6), b=ending(0.4, 0.4))
    both["tasks"]["other"] = question(a=ending(0.9, 1.0), b=ending(0.0, 0.0))["tasks"]["game"]
    claim = replace(PLAIN, pooled=True, effect=0.2, pairs=(Pair("GRPO", "q", "a", "b", ("game", "other")),))
    (place,) = verdicts.examined(claim, {"q": both})["places"]
    assert (place["verdict"], place["game"]) == ("cannot be told", "game")
    assert place["why"] == "without other: their success ends at 0, so there is no ratio"
    assert place["difference"]["mean"] == pytest.approx(0.5)  # that of the other games is told


def test_a_steady_run_has_no_fall_and_a_collapse_has_one() -> None:
    steady = run([0.5, 0.53, 0.47, 0.5, 0.52, 0.48, 0.5, 0.51, 0.5], list(range(9)))
    collapsed = run([0.5, 0.8, 0.8, 0.8, 0.4, 0.1, 0.0, 0.0, 0.0], [100 * place for place in range(9)])
    assert 0 < measures.fall(steady) < measures.fall_by_chance(steady) < 0.05
    assert measures.fall(collapsed) == 1.0
    at_once = run([0.5, 0.1, 0.0, 0.0], [0, 1, 2, 3])  # the first evaluation counts by itself
    assert measures.lasting_best(at_once) == 0.5
    twice = {"q": question(a=[{**steady, "seed": seed, "final": finals(0.5)} for seed in (0, 1)])}
    found = verdicts.difference(Pair("", "q", "a"), "game", measures.FALL, twice)
    assert found is not None and found.mean - found.low > found.high - found.mean  # chance explains some of it
    assert measures.lasted(collapsed) == pytest.approx(0.375) and measures.lasted(steady) == 1.0


def test_claims_have_names_of_their_own_and_name_what_their_question_has() -> None:
    names = [claim.name for claim in claims.CLAIMS]
    assert len(set(names)) == len(names) and sum(claim.headline for claim in claims.CLAIMS) == 5
    asked = {pair.question for claim in claims.CLAIMS for pair in claim.pairs}
    there = sorted(name for name in asked if (ROOT / "benchmarks" / f"{name}.py").exists())
    known = {name: importlib.import_module(name).QUESTION for name in there}
    unknown: set[Any] = set(asked) - set(known)
    for pair in (pair for claim in claims.CLAIMS for pair in claim.pairs if pair.question in known):
        variants = {pair.ours, pair.theirs} - {"", *verdicts.BASELINES}
        tasks = {task for game in pair.games for task in (game, pair.other_task.format(game))}
        unknown |= {(pair.question, name) for name in variants - known[pair.question].variants.keys()}
        unknown |= {(pair.question, name) for name in tasks - known[pair.question].tasks.keys() - set(GAMES)}
    assert unknown == set()


def test_no_place_of_a_claim_compares_two_variants_whose_runs_are_the_same() -> None:
    """Regression: on the bandit, of one turn, bi-level GAE is GAE, and their equality counted against VAGEN."""
    costs = {"seconds", "cpu_seconds"}

    def curves(pair: Pair, task: str, variant: str) -> dict[int, Any]:
        found = verdicts.runs_of(RESULTS, pair.question, task, variant)
        return {seed: [{k: row[k] for k in row.keys() - costs} for row in one["curve"]] for seed, one in found.items()}

    same = []
    for claim in claims.CLAIMS:
        for pair, game in [(each, game) for each in claim.pairs for game in each.games]:
            ours, theirs = curves(pair, game, pair.ours), curves(pair, pair.other_task.format(game), pair.theirs)
            shared = ours.keys() & theirs.keys()
            if shared and all(ours[seed] == theirs[seed] for seed in shared):
                same.append((claim.name, pair.form, game))
    assert same == []


def test_every_claim_says_what_would_refute_it() -> None:
    assert PLAIN.refuted == "success at the end, difference: the 95 % interval lies below 0.05"
    alone = replace(PLAIN, pairs=(Pair("GRPO", "q", "a"),), measure=measures.FALL)
    assert alone.refuted.startswith("share of the best success that is lost at the end: ")
    for claim in claims.CLAIMS:
        assert "interval" in claim.refuted and re.search(r"\d", claim.says + claim.refuted)


def test_the_committed_verdicts_are_those_of_the_committed_results() -> None:
    committed = json.loads((ROOT / "benchmarks" / "results" / "claims.json").read_text(encoding="utf-8"))
    fresh = json.loads(json.dumps(claims.judged(RESULTS)))
    assert {name: committed[name] for name in fresh} == fresh, "run python benchmarks/claims.py"
    counts = {name: sum(claim["verdict"] == name for claim in fresh["claims"]) for name in verdicts.VERDICTS}
    said = (
        "Of {} claims {agrees} agree, {agrees in part} in part, {disagrees} disagree, {disagrees in part} in part, "
        "{cannot be told} cannot be told, {not run yet} not run yet"
    ).format(len(claims.CLAIMS), **counts)
    early = f"{sum(map(is_early, fresh['claims']))} of the verdicts wait for more places or seeds"
    said += f", and {early}" * any(map(is_early, fresh["claims"]))
    assert f"{said} |" in (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")


def test_a_question_is_asked_in_the_games_and_forms_that_have_runs() -> None:
    """A lake is another game where it slips, which it does unless a task says otherwise."""

    def task(env: str, env_kwargs: Any, **seeds: int) -> Any:
        evaluations = {"held out": {"env": env, "env_kwargs": env_kwargs}}
        forms = {"ppo": {"advantage": "gae"}, "bi_level": {"advantage": "bi_level_gae"}}
        variants = {name: {"options": forms.get(name, {}), "runs": [{}] * n} for name, n in seeds.items()}
        return {"prepared": {"settings": {"env": env, "evaluations": evaluations}}, "variants": variants}

    lake = "ragen/FrozenLake-v0"
    tasks = {
        "one": task(lake, {}, starpo=3, gigpo=5, ppo=2),
        "two": task(lake, {"is_slippery": False}, bi_level=1),
        "three": task(lake, {"is_slippery": False}, ppo=3),
    }
    assert claims.asked("q", {"tasks": tasks}) == {
        "question": "q",
        "games": {"frozenlake_slippery": {"GRPO": (3, 5), "PPO": (2, 2)}, "frozenlake": {"PPO": (1, 3)}},
    }
    assert game_of(task("ragen/Sokoban-v0", {}, ppo=1)["prepared"]["settings"]) == "sokoban"
    lines = claims_page(PLAIN, {"q": question(a=ending(0.7), b=ending(0.4))}).splitlines()
    assert {"| question | bandit | sokoban |", "| [q](q.md) | – | GRPO 3 to 5, PPO 5 |"} <= set(lines)


def test_the_page_has_verdicts_figures_rankings_and_aggregates() -> None:
    results = {"q": question(a=ending(0.7, 0.7, 0.7), b=ending(0.4, 0.4, 0.4))}
    page = claims_page(PLAIN, results)
    counts = "1 agree, 0 agree in part, 0 disagree in part, 0 disagree, 0 cannot be told, 1 not run yet"
    assert page.startswith(f"2 claims: {counts}.\n")
    assert "| **agrees** | +0.30 | agrees: game (GRPO) |" in page and "| no question asks it yet |" in page
    assert "| `it` | game | GRPO | 1 of 100 | +0.300 [0.253, 0.347] | 0.05 | 3 | agrees |" in page
    assert "| `q` | game | at 100 trajectories: A 0.70; (B 0.40) |" in page
    (row,) = (line for line in page.splitlines() if line.startswith("| `q` | A | 0.625 ["))
    low, high = map(float, re.findall(r"\d\.\d+", row)[1:])
    assert 0.03 < high - low < 0.12 and row.endswith("] | 3 |")  # the evaluations' error; the runs are equal
    later = [{**each, "commit": "later"} for each in ending(0.7, 0.7, 0.7)]
    page = claims_page(PLAIN, {"q": question(a=ending(0.5, 0.5, 0.5), b=later)})
    assert "(A 0.50) | cannot be told: runs of other commits or seeds |" in page
    shared = {"q": question(a=ending(0.5, 0.5, 0.5), b=ending(0.7, 0.7))}
    assert "| at 100 trajectories (seeds 0, 1; without 2: B): B 0.70; (A 0.50) |" in claims_page(PLAIN, shared)


def test_a_verdict_is_so_far_where_a_place_is_not_run_yet() -> None:
    """Regression: "disagrees" stood beside five places that were not run, the paper's own among them."""
    (pair,) = PLAIN.pairs
    wider = replace(PLAIN, pairs=(replace(pair, games=("game", "another")),))
    page = claims_page(wider, {"q": question(a=ending(0.7, 0.7, 0.7), b=ending(0.4, 0.4, 0.4))})
    assert "| **agrees**, so far | +0.30 | agrees: game (GRPO); not run yet in 1 |" in page
    assert "1 verdict is *so far*" in page
    more = {"q": question(a=ending(0.7, 0.7, 0.7), b=ending(0.4, 0.4, 0.4))}
    found = verdicts.examined(PLAIN, more, planned=lambda pair, game: 5)
    page = claims_page(PLAIN, more, found)
    assert "| **agrees**, so far |" in page and "| 0.05 | 3 of 5 | agrees |" in page
    in_part = {**found, "verdict": "agrees in part"}  # seeds may change that, too
    assert "| **agrees in part** (1 of 1), so far |" in claims_page(PLAIN, more, in_part)
    places = [{**found["places"][0], "verdict": each} for each in ("agrees", "disagrees", "disagrees", "not run yet")]
    mixed = claims_page(PLAIN, more, {**in_part, "places": places})
    assert "| **agrees in part** (1 of 3, 2 disagree), so far | +0.30 |" in mixed


def test_a_series_is_read_from_history_from_kept_logs_or_from_evaluations() -> None:
    rows = falling([0.5, 0.5], [2.0, 1.0])
    history = [{"step": 5, "filter/in_group_std": 3.0, "loss": math.nan}, {"step": 6, "train_runtime": 9.0}]
    kept = [{"steps": [1, 2], "values": {"entropy": [0.5, 0.25]}}]
    assert measures.logged(rows)["in_group_std"] == [(0.0, 2.0), (10.0, 1.0)]
    found = measures.logged({**rows, "history": history, "series": kept})
    assert found["filter/in_group_std"] == [(5.0, 3.0)] and "in_group_std" not in found and "loss" not in found
    assert found["entropy"] == [(1.0, 0.5), (2.0, 0.25)] and found["held_out"] == [(0.0, 0.5), (10.0, 0.5)]
    assert series_pictures.find(found, "in_group_std") == [(5.0, 3.0)]


def test_published_values_fit_their_categories_and_claims_their_questions() -> None:
    for comparison in published.COMPARISONS:
        rows = [*comparison.published.values(), *comparison.here.values()]
        assert {len(row) for row in rows} == {len(comparison.categories)}, comparison.question
    # Regression: RAGEN-2's main table is of peaks, and was compared with the ends of runs.
    peaks = published.BY_QUESTION["variance_filter"].here
    assert {each.measure for row in peaks.values() for each in row} == {measures.BEST}
    assert next(claim for claim in claims.CLAIMS if claim.name == "variance_filter_helps").measure is measures.BEST


def test_gradients_by_spread_and_information_are_read_from_kept_logs() -> None:
    values = {"signal/task_1": [0.5, 0.5], "signal/task_4": [2.0, 2.0], "signal/entropy_1": [1.0, 1.0]}
    run_ = falling([0.1, 0.2, 0.4, 0.3], [1.0] * 4, series=[{"steps": [1, 2], "values": values}])
    assert measures.TASK_GRADIENT.of(run_) == pytest.approx(math.log(4))
    assert measures.ENTROPY_GRADIENT.of(run_) is None and measures.INFORMATION.of(run_) is None
    logs = [{"steps": [0, 10, 20, 30], "values": {"collapse/mi": [1.0, 2.0, 3.0, 4.0]}}]
    # Ranks 1 to 4 against 1, 2, 4, 3: two of six pairs' ranks differ by one.
    assert measures.INFORMATION.of({**run_, "series": logs}) == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert measures.INFORMATION.of({**falling([0.5] * 4, [1.0] * 4), "series": logs}) is None


def test_pictures_have_the_values_here_and_are_drawn(tmp_path: Path) -> None:
    filtering = next(each for each in published.COMPARISONS if each.question == "filtering")
    found = pictures.measured(filtering, RESULTS)
    ends = RESULTS["filtering"]["tasks"]["frozenlake"]["variants"]["gae_25"]["summary"]["success"]["mean"]
    drawn = found["frozenlake (PPO)"][0]
    assert drawn is not None and drawn.mean == pytest.approx(ends) and drawn.low < ends < drawn.high
    assert pictures.draw_comparison(filtering, RESULTS, tmp_path / "a.png")
    assert not pictures.draw_comparison(filtering, {}, tmp_path / "none.png")
    sign_pictures.draw_signs("game", {"A": [falling([0.8, 0.1], [2.0, 1.0])]}, tmp_path / "b.png")
    profiled = {"games": ["game"], "variants": [{"label": "A", "scores": [[-1.1, 0.5]]}]}
    pictures.draw_profiles([profiled, profiled], tmp_path / "c.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.png", "c.png"]


def test_a_published_game_that_a_question_is_asked_in_has_values_here_beside_it() -> None:
    """Regression: Sokoban over 200 rollouts could not appear in the figure of the filter."""
    seen = 0
    for comparison in published.COMPARISONS:
        tasks = set(importlib.import_module(comparison.question).QUESTION.tasks)
        drawn = {
            ours.task.format(game)
            for row in comparison.here.values()
            for ours in row
            for game in comparison.games
            if ours.question in ("", comparison.question)
        }
        for game in {name.partition(" (")[0].partition(",")[0] for name in comparison.published} & set(GAMES):
            asked = {task for task in tasks if task.partition(", ")[0] in {game, f"{game}_200"}}
            if asked and comparison.question != "starpo_s":  # whose PPO form is that of collapse
                assert asked & {game, f"{game}_200"} <= drawn and asked & drawn, comparison.picture
                seen += 1
    assert seen > 10


def test_series_of_one_game_share_a_colour_and_differ_in_line_and_marker() -> None:
    first, second, third = pictures.looks(["bandit (PPO)", "bandit (GRPO)", "sokoban"], by_game=True).values()
    assert first.colour == second.colour != third.colour
    assert len({each.dashes for each in (first, second, third)} | {each.marker for each in (first, second)}) == 5
