"""Signs before a drop: when series turn, how long before success drops, and what is counted."""

import pytest
from findings import signs, verdicts
from findings.claims import Claim, Pair

from tests.support.finished_runs import falling, question, run


def test_a_sign_that_turns_before_the_drop_leads_it() -> None:
    early = falling([0.8] * 6 + [0.1] * 4, [2.0] * 3 + [0.5] * 7)
    late = falling([0.8] * 3 + [0.1] * 7, [2.0] * 6 + [0.5] * 4)
    never = falling([0.8] * 3 + [0.1] * 7, [2.0] * 10)
    assert [(signs.turn(one, signs.SPREAD), signs.dropped(one)) for one in (early, late, never)] == [
        (20, 50),  # both are smoothed over three evaluations
        (50, 20),
        (None, 20),
    ]
    measure = signs.lead(signs.SPREAD)
    assert [measure.of(one) for one in (early, late, never)] == pytest.approx([30 / 90, -30 / 90, -70 / 90])
    assert measure.of(falling([0.8] * 10, [0.5] * 10)) is None
    rising = signs.Sign("norm", ("in_group_std",), falls=False, rises=True)
    assert signs.turn(falling([0.5] * 5, [1.0, 1.0, 1.0, 3.0, 3.0]), rising) == 20  # smoothed over three


def test_turns_without_a_drop_are_false_and_runs_are_counted_once() -> None:
    dropping = falling([0.8] * 6 + [0.1] * 4, [2.0] * 3 + [0.5] * 7)
    healthy = [falling([0.5 + 0.001 * seed] * 10, [2.0] * 5 + [0.2] * 5) for seed in range(3)]
    content = question(a=[dropping], b=[*healthy, run([0.5, 0.5], [0, 9])])
    rows = signs.judged(signs.every_run({"q": content, "again": content}))
    assert len(rows) == 4  # the fifth was evaluated twice only
    count = next(each for each in signs.counts(rows) if each["sign"] == "std within groups" and each["share"] == 0.85)
    assert (count["before"]["count"], count["before"]["of"], count["leads"]) == (1, 1, [30])
    assert (count["false"]["count"], count["false"]["of"]) == (3, 3)
    assert count["false"]["low"] == pytest.approx(0.438, abs=1e-3)  # Wilson's interval of 3 of 3


def test_a_claim_about_a_lead_cannot_be_told_where_nothing_drops() -> None:
    steady = [{**each, "seed": place} for place, each in enumerate([falling([0.5] * 10, [1.0] * 10)] * 2)]
    pair = Pair("GRPO", "q", "a", games=("game", "other"))
    claim = Claim("it", "Paper", "Figure 6", "It comes first.", (pair,), measure=signs.lead(signs.SPREAD))
    places = verdicts.examined(claim, {"q": question(a=steady)})["places"]
    assert [place["verdict"] for place in places] == ["cannot be told", "not run yet"]
