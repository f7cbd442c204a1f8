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
    assert place(0.32, 0.31) == ("cannot be told", "neither ends as far above its warm start")  # 0.3
    assert place(0.0, 0.1) == place(0.32, 0.31)  # both fell: nothing was learnt
    assert place(0.6, 0.6) == ("disagrees", "")
    assert place(0.1, 0.1, kind="alike") == ("agrees", "")
    assert place(0.31, 0.31, kind="alike") == ("cannot be told", "neither moved from its warm start")
    assert place(0.6, 0.6, kind="alike") == ("agrees", "")
    assert place(0.3, 0.0, baseline="warm_start") == ("disagrees", "")  # that it does not move is the answer


def test_what_moved_is_told_by_what_lasts_and_not_by_the_best_of_many() -> None:
    """Regression: the best of 20 evaluations stood 0.07 above the warm start where nothing was learnt."""
    flat = [0.3, 0.3, 0.4, 0.3, 0.3, 0.4, 0.3, 0.3, 0.3]
    runs = [{**run(flat, list(range(9)), seed=seed), "final": finals(0.3)} for seed in range(3)]
    claim = replace(PLAIN, measure=measures.BEST)
    (place,) = verdicts.examined(claim, {"q": question(a=runs, b=runs)})["places"]
    assert (place["verdict"], place["why"]) == ("cannot be told", "neither ends as far above its warm start")


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


def _falling(*ends: float) -> list[Any]:
    """A run a seed that holds 0.8 and ends so."""
    return [
        {**falling([0.8, end, end], [1.0] * 3), "seed": seed, "final": finals(end)} for seed, end in enumerate(ends)
    ]


def test_a_filter_says_nothing_where_there_is_no_collapse_to_prevent() -> None:
    """Regression: a quarter of the groups ended no higher than all of them, which had not collapsed."""
    claim = replace(PLAIN, pairs=(replace(PLAIN.pairs[0], collapses="b"),))

    def told(ours: list[Any], theirs: list[Any], kind: Any = "more") -> tuple[str, str]:
        (place,) = verdicts.examined(replace(claim, kind=kind), {"q": question(a=ours, b=theirs)})["places"]
        return place["verdict"], place["why"]

    steady = _falling(0.7, 0.7, 0.7)
    assert told(_falling(0.6, 0.6, 0.6), steady) == ("cannot be told", "B does not collapse")
    assert told(_falling(0.8, 0.8, 0.8), steady) == ("cannot be told", "B does not collapse")
    assert told(steady, _falling(0.3, 0.3, 0.3)) == ("agrees", "")
    # It falls as far as what it should rescue, to the floor, too.
    assert told(_falling(0.2, 0.2, 0.2), _falling(0.2, 0.2, 0.2)) == ("disagrees", "")
    assert told(_falling(0.0, 0.0, 0.0), _falling(0.0, 0.0, 0.0)) == ("disagrees", "")
    spread = _falling(0.8, 0.75, 0.2)
    assert told(steady, spread) == ("cannot be told", "whether B collapses cannot be told")
    # That nothing is lost is refuted whatever the other does, and shown only where there is something to lose.
    assert told(steady, steady, "no less") == ("cannot be told", "B does not collapse")
    assert told(_falling(0.3, 0.3, 0.3), steady, "no less") == ("disagrees", "")


def test_a_collapse_that_is_not_run_yet_is_no_collapse() -> None:
    claim = replace(PLAIN, pairs=(replace(PLAIN.pairs[0], collapses="c"),))
    results = {"q": question(a=_falling(0.6, 0.6), b=_falling(0.8, 0.8))}
    (place,) = verdicts.examined(claim, results)["places"]
    assert (place["verdict"], place["why"]) == ("cannot be told", "c is not run yet")


def test_what_was_there_before_training_is_no_verdict() -> None:
    """Regression: six actions a turn ended higher than one, and lower than before training."""
    both = question(a=ending(0.5, 0.5, 0.5))
    both["tasks"]["one"] = question(b=ending(0.2, 0.2, 0.2))["tasks"]["game"]

    def place(ours: tuple[float, float], theirs: tuple[float, float], kind: Any = "more") -> tuple[str, str]:
        for task, variant, (began, ended) in (("game", "a", ours), ("one", "b", theirs)):
            for run_ in both["tasks"][task]["variants"][variant]["runs"]:
                run_["curve"][0]["success"], run_["curve"][-1]["success"] = began, ended
        claim = replace(PLAIN, kind=kind, pairs=(replace(PLAIN.pairs[0], other_task="one"),))
        (found,) = verdicts.examined(claim, {"q": both})["places"]
        return found["verdict"], found["why"]

    assert place((0.4, 0.6), (0.4, 0.4)) == ("agrees", "")
    why = "the warm starts differ by +0.40, and training adds -0.20"
    assert place((0.7, 0.6), (0.3, 0.4)) == ("cannot be told", why)
    assert place((0.4, 0.4), (0.4, 0.6)) == ("disagrees", "")
    why = "the warm starts differ by -0.40, and training adds +0.20"
    assert place((0.2, 0.5), (0.6, 0.7)) == ("cannot be told", why)
    assert place((0.4, 0.6), (0.4, 0.4), "alike") == ("disagrees", "")
    assert place((0.2, 0.4), (0.4, 0.6), "alike")[0] == "cannot be told"
    assert place((0.2, 0.6), (0.6, 0.6), "alike") == ("agrees", "")


def test_a_mean_over_games_says_what_it_is_where_something_could_have_shown() -> None:
    """Regression: games with no room, or nothing learnt, made the mean small and its interval short."""
    both = question(a=ending(0.6, 0.6, 0.6), b=ending(0.8, 0.8, 0.8))
    both["tasks"]["full"] = question(a=ending(1.0, 1.0, 1.0), b=ending(0.99, 1.0, 1.0))["tasks"]["game"]
    both["tasks"]["still"] = question(a=ending(0.3, 0.3, 0.31), b=ending(0.3, 0.3, 0.3))["tasks"]["game"]
    pair = Pair("GRPO", "q", "a", "b", ("game", "full", "still"))
    claim = replace(PLAIN, pooled=True, effect=0.2, pairs=(pair,))

    def place() -> Any:
        (found,) = verdicts.examined(claim, {"q": both})["places"]
        return found

    assert place()["verdict"] == "disagrees" and -0.1 < place()["difference"]["mean"] < -0.07
    assert place()["game"] == "game (and full, still)"
    assert place()["why"].startswith("nothing could have shown in full, still; without them -0.250 [")
    # Where the games that could show it say something else, it cannot be told, though the whole mean would.
    both["tasks"]["game"] = question(a=ending(0.6, 0.75, 0.6), b=ending(0.58, 0.6, 0.56))["tasks"]["game"]
    assert verdicts.judge(claim, verdicts.Interval(**place()["difference"])) == "disagrees"
    assert place()["verdict"] == "cannot be told"
    both["tasks"]["game"] = both["tasks"]["full"]
    assert (place()["verdict"], place()["why"]) == ("cannot be told", "nothing could have shown in game, full, still")


def test_a_pair_may_have_an_effect_of_its_own() -> None:
    results = {"q": question(a=ending(0.6, 0.6, 0.6), b=ending(0.58, 0.58, 0.58))}
    for effect, least in ((None, 0.05), (0.2, 0.2), (0.012, 0.012)):
        claim = replace(PLAIN, pairs=(replace(PLAIN.pairs[0], effect=effect),))
        (place,) = verdicts.examined(claim, results)["places"]
        assert (place["effect"], place["verdict"]) == (least, "disagrees" if least == 0.2 else "cannot be told")


def test_runs_of_another_warm_start_are_named_where_the_warm_start_is_compared() -> None:
    """Regression: "fewer than two seeds have it" stood where all three had it."""
    content = question(a=ending(0.6, 0.6, 0.6))
    for run_ in content["tasks"]["game"]["variants"]["a"]["runs"]:
        run_["curve"][0]["success"] += 0.1
    claim = replace(PLAIN, pairs=(replace(PLAIN.pairs[0], theirs="warm_start"),))
    (place,) = verdicts.examined(claim, {"q": content})["places"]
    assert (place["verdict"], place["why"]) == ("cannot be told", "runs of other warm starts")
