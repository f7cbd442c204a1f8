"""A conversation may begin at any turn: the last message with the rules before it."""

import pytest
from gymnasium.error import ResetNeeded

from ragen_envs import AgentTurns, FrozenLake


def test_the_first_message_is_its_own_opening() -> None:
    turns = AgentTurns(FrozenLake())
    message, _ = turns.reset(seed=3)
    assert turns.opening == message
    turns.step(turns.format_reply(["Up"]))
    message, _ = turns.reset(seed=4)
    assert turns.opening == message


def test_a_later_opening_is_the_rules_and_the_last_message() -> None:
    turns = AgentTurns(FrozenLake(), max_turns=3)
    first, _ = turns.reset(seed=3)
    rules = first[: first.index("Turn 1 of 3")]
    for reply in ("nonsense", turns.format_reply(["Up"], "hm"), turns.format_reply(["Up"], "hm")):
        message, *_ = turns.step(reply)
        assert turns.opening == rules + message
        assert message not in first and turns.opening in turns.observation_space
    assert message.startswith("The end")


def test_no_opening_before_reset() -> None:
    with pytest.raises(ResetNeeded, match="call reset first"):
        _ = AgentTurns(FrozenLake()).opening
