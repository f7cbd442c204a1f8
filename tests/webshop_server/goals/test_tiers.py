"""The tiered reward: its values, and that no sequence of events can farm it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webshop_server.goals.tiers import EVENT_KINDS, Progress, TierEvent, pay, tier

INVALID, IDLE = TierEvent("invalid"), TierEvent("idle")
SHARES = st.one_of(st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.floats(0, 1))
EVENTS = st.builds(TierEvent, kind=st.sampled_from(EVENT_KINDS), match=SHARES, options=SHARES, score=SHARES)
HONEST = (TierEvent("search", match=1), TierEvent("open", match=1))


def play(*events: TierEvent) -> tuple[Progress, list[float]]:
    """The end of an episode and what each of its steps was paid."""
    progress, credits = Progress(), []
    for event in events:
        progress, credit = pay(progress, event)
        credits.append(credit)
    return progress, credits


@pytest.mark.parametrize(
    ("events", "worth"),
    [
        ((), 0.0),
        ((INVALID, INVALID), 0.0),
        ((INVALID, IDLE), 0.1),
        ((TierEvent("search", match=0.0),), 0.1),
        ((TierEvent("search", match=0.5),), 0.2),
        ((TierEvent("open", match=0.5), TierEvent("choose", match=0.5, options=1)), 0.2),
        ((TierEvent("search", match=1),), 0.3),
        (HONEST, 0.4),
        ((*HONEST, TierEvent("choose", match=1, options=0.5)), 0.45),
        ((*HONEST, TierEvent("choose", match=1, options=1)), 0.5),
        ((*HONEST, TierEvent("buy", match=1, score=0.0)), 0.5),
        ((*HONEST, TierEvent("buy", match=1, score=0.5)), 0.65),
        ((*HONEST, TierEvent("buy", match=1, score=0.999)), 0.7997),
        ((*HONEST, TierEvent("buy", match=1, score=1)), 1.0),
        ((TierEvent("search", match=1), TierEvent("buy", match=0.5, score=0.4)), 0.3),
        ((TierEvent("search", match=0.5), TierEvent("buy", match=0.5, score=0.4)), 0.2),
        ((TierEvent("buy", match=0.0),), 0.1),
        ((TierEvent("buy", match=0.5, score=0.5),), 0.15),
        ((TierEvent("buy", match=1, score=0.9),), 0.2),  # blind
        ((TierEvent("buy", match=1, score=1),), 1.0),
    ],
)
def test_worth_of_an_episode(events: tuple[TierEvent, ...], worth: float) -> None:
    progress, credits = play(*events)
    assert progress.best == pytest.approx(worth)
    assert sum(credits) == pytest.approx(worth)


def test_each_step_is_paid_what_it_adds() -> None:
    _, credits = play(IDLE, *HONEST, HONEST[1], INVALID, HONEST[0], TierEvent("buy", match=1, score=1), *HONEST)
    assert credits == pytest.approx([0.1, 0.2, 0.1, 0, 0, 0, 0.6, 0, 0])


@given(st.lists(EVENTS, max_size=30))
def test_credits_add_up_to_the_best_tier(events: list[TierEvent]) -> None:
    progress, credits = play(*events)
    assert min(credits, default=0) >= 0
    assert sum(credits) == pytest.approx(progress.best)
    bought = next((number for number, event in enumerate(events) if event.kind == "buy"), len(events))
    assert progress.best <= max((tier(event, found=True) for event in events[: bought + 1]), default=0)
    assert progress.done == (bought < len(events))
    assert 0 <= progress.best <= 1


@given(st.lists(EVENTS, max_size=10), EVENTS, st.integers(1, 20))
def test_a_thing_done_again_pays_nothing(before: list[TierEvent], event: TierEvent, times: int) -> None:
    _, credits = play(*before, event, *[event] * times)
    assert credits[len(before) + 1 :] == [0.0] * times


@given(st.lists(EVENTS, max_size=10), st.lists(EVENTS, max_size=10))
def test_more_steps_never_cost(events: list[TierEvent], more: list[TierEvent]) -> None:
    assert play(*events, *more)[0].best >= play(*events)[0].best


@given(SHARES, st.floats(0, 1, exclude_max=True), st.lists(st.sampled_from([INVALID, IDLE]), max_size=5))
def test_a_blind_purchase_never_beats_honest_search(match: float, score: float, before: list[TierEvent]) -> None:
    blind, _ = play(*before, TierEvent("buy", match=match, score=score))
    assert blind.best <= 0.2 < play(HONEST[0])[0].best < play(*HONEST)[0].best


def test_buying_any_of_the_toys_at_random_does_not_pay() -> None:
    # One of 96 is right and worth 1, and all others count as of the right kind.
    mean = (1 + 95 * tier(TierEvent("buy", match=1, score=0.9), found=False)) / 96
    assert mean < tier(HONEST[0], found=False)


@given(st.lists(EVENTS.filter(lambda event: event.kind != "buy"), max_size=20))
def test_without_a_purchase_there_is_at_most_half(events: list[TierEvent]) -> None:
    assert play(*events)[0].best <= 0.5


@given(EVENTS, SHARES, SHARES, SHARES, st.booleans())
def test_better_is_never_worth_less(event: TierEvent, match: float, options: float, score: float, found: bool) -> None:
    better = TierEvent(event.kind, max(event.match, match), max(event.options, options), max(event.score, score))
    assert tier(better, found) >= tier(event, found)
    assert tier(event, found=True) >= tier(event, found)


@given(SHARES, SHARES)
def test_each_stage_is_worth_at_least_the_one_before(match: float, options: float) -> None:
    stages = [
        INVALID,
        IDLE,
        TierEvent("search", match=match),
        TierEvent("open", match=match),
        TierEvent("choose", match=match, options=options),
    ]
    worth = [tier(event, found=False) for event in stages]
    assert worth == sorted(worth)
    if match == 1:
        assert tier(TierEvent("buy", match=1, score=0), found=True) >= worth[-1]


@given(st.floats(0, 1, exclude_max=True))
def test_an_imperfect_purchase_stays_below_eight_tenths(score: float) -> None:
    assert tier(TierEvent("buy", match=1, score=score), found=True) < 0.8 + 1e-12


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "bought"}, "event kind 'bought' is unknown; use one of invalid, idle"),
        ({"kind": "buy", "score": 1.01}, "score=1.01 of a 'buy' event must be from 0 to 1"),
        ({"kind": "open", "match": float("nan")}, "match=nan"),
    ],
)
def test_what_is_no_event_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TierEvent(**fields)  # type: ignore[arg-type]
