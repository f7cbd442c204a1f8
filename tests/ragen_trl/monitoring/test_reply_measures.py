"""Thoughts, repetition and likeness of replies, by hand and against slow loops."""

import random
from typing import Any

import pytest

from ragen_trl.monitoring.reply_measures import (
    Sketch,
    digest,
    distinct_ngrams,
    echo_measures,
    episode_measures,
    named_action,
    ngram_codes,
    sketch,
    thought_span,
)
from ragen_trl.trajectory import Trajectory, Turn


def turn(reply: str, *actions: str, effective: bool = True, names: tuple[str, ...] = ()) -> Turn:
    info: dict[str, Any] = {"actions": actions, "action_is_effective": effective, "action_names": names}
    return Turn((1,), tuple(range(len(reply))), (), "?", reply, 0.0, info)


def sketched(*turns: Turn) -> Sketch:
    return sketch(Trajectory(turns, seed=0), [None] * len(turns))


@pytest.mark.parametrize(
    ("pieces", "opened", "span"),
    [
        (["<think>", "a", "b", "</think>", "<answer>"], False, (1, 3)),
        (["a", "b", "</think>", "<answer>"], True, (0, 2)),
        (["a", "b"], True, (0, 2)),  # cut
        (["<think>", "a"], False, (1, 2)),
        (["<th", "ink>", "a", "</", "think>"], False, (2, 3)),
        (["<think>a", "b", "c</think>"], False, (1, 2)),  # tokens with a part of a tag are not of the thought
        (["<think>", "</think>", "a"], False, (0, 0)),
        (["a", "<answer>"], False, None),
        (["", "a", "", "</think>"], True, (1, 2)),
        ([], True, (0, 0)),
    ],
)
def test_a_thought_is_what_stands_between_its_tags(
    pieces: list[str], opened: bool, span: tuple[int, int] | None
) -> None:
    assert thought_span(pieces, opened) == span


@pytest.mark.parametrize("n", [1, 2, 3])
def test_distinct_ngrams_agree_with_a_set_of_tuples(n: int) -> None:
    rng = random.Random(n)
    replies = [[rng.choice([0, 1, 2**21 - 1]) for _ in range(rng.randint(0, 7))] for _ in range(40)]
    grams = [tuple(reply[i : i + n]) for reply in replies for i in range(len(reply) - n + 1)]
    assert distinct_ngrams(replies, n) == len(set(grams)) / len(grams)
    assert len(ngram_codes(replies, n)[0]) == len(set(grams))


def test_a_sketch_holds_what_an_episode_did() -> None:
    found = sketch(Trajectory((turn("one", effective=False), turn("three", "Up", "Up")), seed=0), [2, None])
    assert (found.turns, found.actions, found.effective) == (2, 2, 1)
    assert (found.reply_tokens, found.thoughts, found.thought_tokens) == (8, 1, 2)
    assert (found.first_reply, found.first_action) == (digest("one"), digest("Up"))


@pytest.mark.parametrize(
    ("thought", "named"),
    [
        ("The goal is right below, so I go Down.", "Down"),  # the last one counts
        ("First up, then left", "Left"),  # in any case
        ("UP!", "Up"),
        ("Upwards, leftmost", None),  # whole words only
        ("I take the real estate agent", "RealEstateAgent"),
        ("I take the RealEstateAgent, not the agent", "Agent"),
        ("", None),
    ],
)
def test_the_last_action_that_a_thought_names(thought: str, named: str | None) -> None:
    assert named_action(thought, ("Up", "Down", "Left", "Agent", "RealEstateAgent")) == named


def test_thoughts_and_answers_agree_or_not_by_hand() -> None:
    """Six turns: one without a thought, one that names nothing; of four that name an action two are followed."""
    compass = ("Up", "Down")
    turns = (
        turn("<think>A hole: Down.</think><answer>Down || Up</answer>", "Down", "Up", names=compass),
        turn("<think>down or up</think><answer>Up</answer>", "Up", names=compass),
        turn("<think>So Up.</think><answer>Down</answer>", "Down", names=compass),
        turn("<think>So Up.</think><answer>Jump</answer>", names=compass),  # nothing was done
        turn("<think>Well.</think><answer>Up</answer>", "Up", names=compass),
        turn("<answer>Up</answer>", "Up", names=compass),
    )
    free = turn("<think>Up it is</think><answer>1 + 1</answer>", "1 + 1")  # actions without names
    found = [sketch(Trajectory(turns, seed=0), [3, 3, 2, 2, 1, None]), sketch(Trajectory((free,), seed=0), [3])]
    assert (found[0].chosen, found[0].named, found[0].followed) == (5, 4, 2)
    measured = episode_measures(found)
    assert (measured["thought_names"], measured["thought_followed"]) == (0.8, 0.5)
    assert measured["thought_tokens"] == pytest.approx(14 / 6)
    assert not {"thought_names", "thought_followed"} & set(episode_measures(found[1:]))


def test_the_echo_is_within_groups() -> None:
    up, down, words = sketched(turn("a", "Up")), sketched(turn("b", "Down")), sketched(turn("c", "Up"))
    alike = [up, up, up, words]  # 3 of 6 pairs say the same, all do the same
    unlike = [up, down, up, down]  # 2 of 6
    assert echo_measures(alike + unlike, 4) == pytest.approx(
        {"identical_replies": (3 / 6 + 2 / 6) / 2, "identical_episodes": (1 + 2 / 6) / 2, "first_actions": 1.5}
    )
    assert echo_measures(alike, 1) == {}
