"""Where a verdict says more than its interval: means over games, effects that could not have shown, collapses."""

from dataclasses import replace
from typing import Any

import claims
from findings import measures, verdicts
from findings.claims import Claim, Pair

from tests.support.finished_runs import ending, falling, finals, question, run

PLAIN = Claim("it", "Paper", "Figure 1", "It is more.", (Pair("GRPO", "q", "a", "b", ("game",)),))


def test_a_mean_over_games_is_judged_for_each_form() -> None:
    """Regression: one game in which one form ends at 0 hid the figures of both forms."""
    both = question(a=ending(0.6, 0.6), b=ending(0.4, 0.4), c=ending(0.9, 0.9), d=ending(0.0, 0.0))
    pairs = (Pair("GRPO", "q", "a", "b", ("game",)), Pair("PPO", "q", "c", "d", ("game",)))
    found = verdicts.examined(replace(PLAIN, pooled=True, effect=0.2, pairs=pairs), {"q": both})
    assert [place["verdict"] for place in found["places"]] == ["agrees", "cannot be told"]
    assert found["places"][1]["difference"] is None
    # A game that is not run yet is named, and may change the verdict.
    wider = (replace(pairs[0], games=("game", "later")),)
    found = verdicts.examined(replace(PLAIN, pooled=True, effect=0.2, pairs=wider), {"q": both}, lambda pair, game: 2)
    assert [(place["why"], place["lacks"]) for place in found["places"]] == [("not run yet: later", True)]


def test_what_could_not_have_shown_is_no_disagreement() -> None:
    """Regression: with the bandit solved on both sides, "better by 0.05" counted as refuted."""

    def place(ours: float, theirs: float, kind: Any = "more", baseline: str = "b") -> tuple[str, str]:
        results = {"q": question(a=ending(*[ours] * 3), b=ending(*[theirs] * 3))}
        pairs = (replace(PLAIN.pairs[0], theirs=baseline),)
        (found,) = verdicts.examined(replace(PLAIN, kind=kind, pairs=pairs, effect=0.1), results)["places"]
        return found["verdict"], found["why"]

    assert place(0.99, 0.98) == ("cannot be told", "no room: they have 0.98")
    assert place(0.99, 0.85) == ("agrees", "")
    assert place(0.32, 0.31) == ("cannot be told", "neither moved from its warm start")  # 0.3
    assert place(0.6, 0.6) == place(0.1, 0.1) == ("disagrees", "")
    assert place(0.31, 0.31, kind="alike") == ("cannot be told", "neither moved from its warm start")
    assert place(0.6, 0.6, kind="alike") == ("agrees", "")
    assert place(0.3, 0.0, baseline="warm_start") == ("disagrees", "")  # that it does not move is the answer


def test_what_moved_is_told_by_what_lasts_and_not_by_the_best_of_many() -> None:
    """Regression: the best of 20 evaluations stood 0.07 above the warm start where nothing was learnt."""
    flat = [0.3, 0.3, 0.4, 0.3, 0.3, 0.4, 0.3, 0.3, 0.3]
    runs = [{**run(flat, list(range(9)), seed=seed), "final": finals(0.3)} for seed in range(3)]
    claim = replace(PLAIN, measure=measures.BEST)
    (place,) = verdicts.examined(claim, {"q": question(a=runs, b=runs)})["places"]
    assert (place["verdict"], place["why"]) == ("cannot be told", "neither moved from its warm start")


def test_what_was_watched_too_shortly_has_no_order() -> None:
    """Regression: two forms that both never drop were said to drop at the same time."""
    steady = [{**run([0.8] * 9, list(range(9)), seed=seed), "final": finals(0.8)} for seed in range(3)]
    claim = replace(PLAIN, measure=measures.LASTED)
    (place,) = verdicts.examined(claim, {"q": question(a=steady, b=steady)})["places"]
    assert (place["verdict"], place["why"]) == ("cannot be told", "no run of either side drops")


def test_a_verdict_waits_for_the_seeds_that_are_planned_and_not_for_those_that_lack_the_measure() -> None:
    """Regression: "2 of 5" stood where five runs were there, of which two had dropped."""
    results = {"q": question(a=ending(0.7, 0.7, 0.7), b=ending(0.4, 0.4, 0.4))}
    for wanted, lacks in ((3, False), (5, True)):
        (place,) = verdicts.examined(PLAIN, results, lambda pair, game, wanted=wanted: wanted)["places"]
        assert (place["planned"], place["lacks"]) == (wanted, lacks)
    without = replace(PLAIN, measure=measures.elsewhere("nowhere"))
    (place,) = verdicts.examined(without, results, lambda pair, game: 3)["places"]
    assert (place["why"], place["lacks"]) == ("fewer than two seeds have it", False)
    assert claims.planned(Pair("PPO", "collapse", "ppo_four", "starpo_s_gae"), "sokoban_200") == 5
    assert claims.planned(Pair("GRPO", "collapse", "grpo"), "sokoban") == 3
    assert claims.planned(Pair("GRPO", "collapse", "grpo_four"), "a game of later") == 0


def test_nothing_fails_to_prevent_a_collapse_that_is_not_there() -> None:
    steady, fallen = (
        [{**falling([0.8, end, end], [1.0] * 3), "seed": seed, "final": finals(end)} for seed in range(3)]
        for end in (0.8, 0.1)
    )
    claim = replace(PLAIN, measure=measures.FALL, effect=0.25, pairs=(Pair("", "q", "a", games=("game",)),))
    expecting = replace(claim, pairs=(replace(claim.pairs[0], collapses="b"),))
    both_fall = {"q": question(a=fallen, b=fallen)}
    assert {verdicts.examined(each, both_fall)["verdict"] for each in (claim, expecting)} == {"agrees"}
    for ours in (steady, fallen):
        (place,) = verdicts.examined(expecting, {"q": question(a=ours, b=steady)})["places"]
        assert (place["verdict"], place["why"]) == ("cannot be told", "B does not collapse")
    (place,) = verdicts.examined(expecting, {"q": question(b=steady)})["places"]
    assert (place["verdict"], place["why"]) == ("not run yet", "")


def test_a_filter_is_not_refuted_where_there_is_no_collapse_to_prevent() -> None:
    """Regression: a quarter of the groups ended no higher than all of them, which had not collapsed."""
    claim = replace(PLAIN, pairs=(replace(PLAIN.pairs[0], collapses="b"),))

    def told(ours: float, theirs: float, first: float = 0.8) -> tuple[str, str]:
        a, b = (
            [{**falling([first, end, end], [1.0] * 3), "seed": seed, "final": finals(end)} for seed in range(3)]
            for end in (ours, theirs)
        )
        (place,) = verdicts.examined(claim, {"q": question(a=a, b=b)})["places"]
        return place["verdict"], place["why"]

    assert told(0.6, 0.7) == ("cannot be told", "B does not collapse")
    assert told(0.7, 0.62) == ("agrees", "")  # higher, whatever it prevents
    assert told(0.2, 0.3) == ("disagrees", "")  # all fall, and it does not help


def test_both_at_the_floor_say_nothing() -> None:
    results = {"q": question(a=ending(0.0, 0.01, 0.0), b=ending(0.01, 0.0, 0.0))}
    (place,) = verdicts.examined(PLAIN, results)["places"]
    assert (place["verdict"], place["why"]) == ("cannot be told", "both are at the floor: they have 0.00")


def test_what_was_there_before_training_is_no_agreement() -> None:
    """Regression: six actions a turn ended higher than one, and lower than before training."""
    both = question(a=ending(0.5, 0.5, 0.5))
    both["tasks"]["one"] = question(b=ending(0.2, 0.2, 0.2))["tasks"]["game"]
    claim = replace(PLAIN, pairs=(replace(PLAIN.pairs[0], other_task="one"),))

    def place(began: float) -> tuple[str, str]:
        for run_ in both["tasks"]["game"]["variants"]["a"]["runs"]:
            run_["curve"][0]["success"] = began
        (found,) = verdicts.examined(claim, {"q": both})["places"]
        return found["verdict"], found["why"]

    assert place(0.4) == ("agrees", "")
    assert place(0.7) == ("cannot be told", "it ends 0.20 below its own warm start")


def test_a_mean_over_games_says_what_it_is_where_the_effect_could_have_shown() -> None:
    """Regression: games with no room, or nothing learnt, made the mean small and its interval short."""
    both = question(a=ending(0.6, 0.6, 0.6), b=ending(0.8, 0.8, 0.8))
    both["tasks"]["full"] = question(a=ending(1.0, 1.0, 1.0), b=ending(0.99, 1.0, 1.0))["tasks"]["game"]
    both["tasks"]["still"] = question(a=ending(0.3, 0.3, 0.31), b=ending(0.3, 0.3, 0.3))["tasks"]["game"]
    pair = Pair("GRPO", "q", "a", "b", ("game", "full", "still"))
    claim = replace(PLAIN, pooled=True, effect=0.2, pairs=(pair,))
    (place,) = verdicts.examined(claim, {"q": both})["places"]
    assert place["verdict"] == "disagrees" and -0.1 < place["difference"]["mean"] < -0.07
    assert place["why"].startswith("it could not have shown in full, still; without them -0.250 [")
    # Where the games that could show it say something else, it cannot be told.
    both["tasks"]["game"] = question(a=ending(0.6, 0.9, 0.6), b=ending(0.5, 0.8, 0.8))["tasks"]["game"]
    (place,) = verdicts.examined(claim, {"q": both})["places"]
    assert place["verdict"] == "cannot be told"
