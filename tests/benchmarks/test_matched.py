"""Rankings at equal cost: what is compared, over which seeds, and the aggregate over games."""

import pytest
from findings import matched

from tests.support.finished_runs import ending, question, run


def test_success_is_compared_at_equal_cost() -> None:
    quick, slow = ending(0.5, 0.5, 0.5), ending(0.7, 0.7, 0.7)
    for each in slow:
        each["curve"][-1] |= {"cpu_seconds": 4.0, "step": 2}
    found = matched.matched({"quick": quick, "slow": slow}, 256)
    (by_trajectories,), (by_cpu,), (by_step,) = (found[axis] for axis in ("trajectories", "cpu_seconds", "step"))
    assert [each["label"] for each in by_trajectories["ranking"]] == ["slow", "quick"]
    assert by_trajectories["ranking"][1]["worse"]
    # After a second the slow one has made a quarter of its way, from 0.3 to 0.7.
    assert by_cpu["budget"] == 1.0
    rates = {each["label"]: each["success"] for each in by_cpu["ranking"]}
    assert rates == {"quick": pytest.approx(0.5), "slow": pytest.approx(0.4)}
    assert {each["label"]: each["success"] for each in by_step["ranking"]} == {
        "slow": pytest.approx(0.5),
        "quick": pytest.approx(0.5),
    }


def test_success_at_equal_cpu_seconds_is_ranked_among_runs_of_the_same_commits_only() -> None:
    old, new = ending(0.5, 0.5, 0.5), [{**each, "commit": "later"} for each in ending(0.7, 0.7, 0.7)]
    found = matched.matched({"a": old, "b": new, "c": old, "d": new, "e": [old[0], *new[1:]]}, 256)
    assert [len(each["ranking"]) for each in found["trajectories"]] == [5]
    ranked = [sorted(row["label"] for row in each["ranking"]) for each in found["cpu_seconds"]]
    assert ranked == [["a", "c"], ["b", "d"]]
    assert matched.matched({"a": old, "b": new}, 256)["cpu_seconds"] == []


def test_variants_are_ranked_over_the_seeds_that_all_have() -> None:
    """Regression: a variant of one commit that lacked a seed was ranked apart, as one of other commits."""
    both, lacks = ending(0.5, 0.5, 0.9), ending(0.6, 0.6)
    found = matched.matched({"both": both, "lacks": lacks}, 256)
    for axis in matched.AXES:
        (each,) = found[axis]
        assert (each["seeds"], each["missing"]) == ([0, 1], {"lacks": [2]})
        # Over its three seeds the other would have 0.63.
        assert [(row["label"], row["success"]) for row in each["ranking"]] == [("lacks", 0.6), ("both", 0.5)]


def test_seeds_that_only_some_have_may_be_of_other_commits() -> None:
    old, five = ending(0.5, 0.5, 0.5), ending(0.6, 0.6, 0.6, 0.6, 0.6)
    other = [{**each, "commit": each["commit"] if each["seed"] < 3 else "later"} for each in five]
    (each,) = matched.matched({"five": five, "other": other, "old": old}, 256)["cpu_seconds"]
    assert each["seeds"] == [0, 1, 2] and len(each["ranking"]) == 3
    assert each["missing"] == {"old": [3, 4]}


def test_a_variant_of_one_seed_leaves_the_others_theirs() -> None:
    variants = {"a": ending(0.5, 0.5), "one": ending(0.5), "b": ending(0.6, 0.6)}
    assert [list(each) for each in matched.comparable(variants, False)] == [["one"], ["a", "b"]]
    assert [list(each) for each in matched.comparable({"one": ending(0.5), "other": ending(0.6)}, True)] == [
        ["one", "other"]
    ]


def test_a_question_compares_its_variants_or_its_tasks_and_leaves_out_short_runs() -> None:
    short = [run([0.3, 0.3], [0, 10])]
    content = question(a=ending(0.5), b=ending(0.6), c=short)
    assert {name: list(group) for name, group in matched.groups(content).items()} == {"game": ["A", "B"]}
    single = question(a=ending(0.5))
    single["tasks"]["other"] = single["tasks"]["game"]
    assert {name: list(group) for name, group in matched.groups(single).items()} == {"E": ["game", "other"]}
    # Regression: of two sets of tasks in one environment, evaluated in different ways, the first was lost.
    slippery = question(a=ending(0.5))["tasks"]["game"]
    slippery["prepared"]["settings"]["evaluations"] = {"held out": {"env_kwargs": {"is_slippery": True}}}
    single["tasks"] |= {"slippery": slippery, "slippery, too": slippery}
    assert {name: list(group) for name, group in matched.groups(single).items()} == {
        "E": ["game", "other"],
        "E, as in slippery": ["slippery", "slippery, too"],
    }


def test_a_question_about_its_tasks_compares_each_variant_between_them() -> None:
    """Regression: with and without thoughts were not compared at equal cost once there were two variants of each."""
    both = question(a=ending(0.5), b=ending(0.6))
    both["tasks"]["other"] = question(a=ending(0.7), b=ending(0.8))["tasks"]["game"]
    found = matched.groups(both, across=True)
    assert {name: sorted(each) for name, each in found.items()} == {
        **{"game": ["A", "B"], "other": ["A", "B"], "E, A": ["game", "other"], "E, B": ["game", "other"]}
    }
    assert list(matched.groups(both)) == ["game", "other"]


def test_a_question_compares_the_runs_of_each_warm_start_by_themselves() -> None:
    first, second = ending(0.5, 0.5), ending(0.6, 0.6)
    second[1]["curve"][0]["success"] = 0.35
    later = [{**each, "curve": [{**each["curve"][0], "success": 0.35}, *each["curve"][1:]]} for each in first]
    found = matched.groups(question(a=first, b=second, c=later))
    assert {name: {label: len(runs) for label, runs in group.items()} for name, group in found.items()} == {
        "game, warm start 1": {"A": 2, "B": 1},
        "game, warm start 2": {"B": 1, "C": 2},
    }


def test_aggregates_are_normalised_by_random_play_and_the_oracle() -> None:
    (row,) = matched.aggregate(question(a=ending(0.2, 0.6, 0.6, 1.0)), ["game"])
    assert row["scores"] == [[pytest.approx(0.0), pytest.approx(0.5), pytest.approx(0.5), pytest.approx(1.0)]]
    assert row["iqm"] == pytest.approx(0.5)
