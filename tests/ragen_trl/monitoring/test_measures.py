"""Thoughts, and likeness of replies, by hand."""

import pytest

from ragen_trl.monitoring.collapse_monitor import rollout_measures
from ragen_trl.monitoring.mutual_information import ThoughtPair, thought_pair
from ragen_trl.trajectory import Trajectory, Turn
from tests.support.ragen_trl.trainers import TOKENIZER, rollout_of


def turn(reply: str, *actions: str) -> Turn:
    return Turn((1,), tuple(TOKENIZER.encode(reply)), (), "?", reply, 0.0, {"actions": actions})


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
        ([], True, (0, 0)),
    ],
)
def test_a_thought_is_what_stands_between_its_tags(
    pieces: list[str], opened: bool, span: tuple[int, int] | None
) -> None:
    texts = [*pieces, "Go. <think>\n" if opened else "Go."]  # the last token is the prompt
    reply = tuple(range(len(pieces)))
    first, last = span or (0, len(pieces))
    expected = ThoughtPair((len(pieces), *reply[:first]), reply[first:last])
    assert thought_pair((len(pieces),), reply, texts.__getitem__) == expected


def test_the_thought_of_a_reply_that_a_template_opened_ends_at_its_tag() -> None:
    prompt, reply = TOKENIZER.encode("Up"), TOKENIZER.encode("é é</think><answer>Up</answer>")
    pair = thought_pair(prompt, reply, lambda token: str(TOKENIZER.decode([token])))
    assert pair == ThoughtPair(tuple(prompt), tuple(TOKENIZER.encode("é é")))


def test_the_echo_is_within_groups() -> None:
    up, down, words = turn("a", "Up"), turn("b", "Down"), turn("c", "Up")
    alike = [up, up, up, words]  # 3 of 6 pairs say the same
    unlike = [up, down, up, down]  # 2 of 6
    played = [Trajectory((one,), seed=0) for one in alike + unlike]
    found = rollout_measures(rollout_of(played, 4))
    assert found["actions_per_turn"] == 1.0
    assert found["identical_replies"] == pytest.approx((3 / 6 + 2 / 6) / 2)
    assert "identical_replies" not in rollout_measures(rollout_of(played, 1))
