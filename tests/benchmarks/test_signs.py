"""Signs before a drop: when series turn, how long before success drops, and what is counted."""

import pytest
from findings import signs, verdicts
from findings.claims import Claim, Pair

from tests.support.finished_runs import falling, question, run


def test_a_sign_that_turns_before_the_drop_leads_it() -> None:
    early = falling([0.8] * 6 + [0.1] * 4, [2.0] * 3 + [0.5] * 7)
    late = falling([0.8] * 4 + [0.1] * 6, [2.0] * 6 + [0.5] * 4)
    never = falling([0.8] * 4 + [0.1] * 6, [2.0] * 10)
    assert [(signs.turn(one, signs.SPREAD), signs.dropped(one)) for one in (early, late, never)] == [
        (20, 50),  # both are smoothed over three evaluations
        (50, 30),
        (None, 30),
    ]
    measure = signs.lead(signs.SPREAD)
    assert [measure.of(one) for one in (early, late, never)] == pytest.approx([30 / 90, -20 / 90, -60 / 90])
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


@pytest.mark.parametrize(("falls_at", "counted"), [(1, False), (2, False), (3, True)])
def test_a_drop_that_no_sign_can_come_before_has_no_lead_and_is_not_counted(falls_at: int, counted: bool) -> None:
    """Regression: a sign that vanished at once had a lead of -0.05 there, which counted against it."""
    success = [0.8] * (falls_at + 1) + [0.0] * (9 - falls_at)
    vanishing = falling(success, [1.0, 1.0] + [1e-6] * 8)
    assert (signs.dropped(vanishing), signs.turn(vanishing, signs.SPREAD)) == (10 * falls_at, 20)
    lead = signs.lead(signs.SPREAD).of(vanishing)
    assert lead == (pytest.approx(10 / 90) if counted else None)
    (row,) = signs.judged([({"question": "q", "task": "t", "variant": "A"}, vanishing)])
    count = next(each for each in signs.counts([row]) if each["sign"] == "std within groups" and each["share"] == 0.85)
    assert (count["before"]["count"], count["before"]["of"]) == (counted, counted)


def test_a_claim_about_a_lead_cannot_be_told_where_nothing_drops() -> None:
    steady = [{**each, "seed": place} for place, each in enumerate([falling([0.5] * 10, [1.0] * 10)] * 2)]
    pair = Pair("GRPO", "q", "a", games=("game", "other"))
    claim = Claim("it", "Paper", "Figure 6", "It comes first.", (pair,), measure=signs.lead(signs.SPREAD))
    places = verdicts.examined(claim, {"q": question(a=steady)})["places"]
    assert [place["verdict"] for place in places] == ["cannot be told", "not run yet"]
