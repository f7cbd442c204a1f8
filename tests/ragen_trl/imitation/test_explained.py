"""Demonstrations with thoughts: what is said is the oracle's, what is done stays the same, and what does not fit."""

import logging
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from ragen_envs import AgentTurns, TextEnv, best_action
from ragen_trl import StarPOConfig
from ragen_trl.imitation.fine_tuning import WarmStartConfig, demonstrate, to_examples
from ragen_trl.rollout.chat import Chat
from ragen_trl.trajectory import Trajectory

LAKE = "ragen/FrozenLake-v0"


def played(tokenizer: PreTrainedTokenizerFast, think: bool, env: Any = LAKE, **values: Any) -> list[Trajectory]:
    args = StarPOConfig(output_dir="unused", think=think, bf16=False, use_cpu=True, report_to="none", **values)
    chat = Chat(tokenizer, reply_prefix="<think>" if think else "<answer>")
    return demonstrate(env, args, chat, WarmStartConfig(24, 0.5))


def thought_of(reply: str) -> str:
    return reply.removeprefix("<think>").partition("</think>")[0]


def test_a_thought_names_the_first_action_of_its_answer(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    """Before, every demonstrated thought was empty, so that a warm start taught to think nothing."""
    for trajectory in played(tiny_tokenizer, think=True):
        for turn in trajectory.turns:
            assert thought_of(turn.reply).endswith(f" {turn.info['actions'][0]}.")
            assert turn.info["action_is_valid"]


def test_thoughts_are_learnt_and_change_no_action(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    silent, spoken = (played(tiny_tokenizer, think) for think in (False, True))
    moves = [[[turn.info["actions"] for turn in one.turns] for one in told] for told in (silent, spoken)]
    assert moves[0] == moves[1]
    first = to_examples(spoken)[0]
    learnt = tiny_tokenizer.decode([label for label in first["labels"] if label != -100])
    assert thought_of(spoken[0].turns[0].reply) in learnt
    texts = [thought_of(turn.reply) for one in spoken for turn in one.turns]
    assert len(set(texts)) > 0.7 * len(texts)


def test_thoughts_that_do_not_fit_into_a_reply_are_left_empty(
    tiny_tokenizer: PreTrainedTokenizerFast, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        turns = [turn for one in played(tiny_tokenizer, True, max_reply_length=24) for turn in one.turns]
    assert max(len(turn.reply_ids) for turn in turns) <= 24
    empty = [turn.reply for turn in turns if turn.reply.startswith("<think></think><answer>")]
    assert len(turns) > len(empty) > len(turns) / 2
    (record,) = [one for one in caplog.records if "max_reply_length" in one.message]
    assert record.message.startswith("a demonstration leaves its thought empty where its reply would be over "
                                     "max_reply_length=24 tokens")  # fmt: skip


def test_answers_that_are_too_long_to_be_played_are_named(
    tiny_tokenizer: PreTrainedTokenizerFast, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        played(tiny_tokenizer, False, max_reply_length=2)
    (record,) = [one for one in caplog.records if "max_reply_length" in one.message]
    assert "more than max_reply_length=2: the model would learn replies that are cut" in record.message


class Unexplained(TextEnv):
    """One step; it has an oracle, and nothing that explains it."""

    instruction = "Say yes."
    actions = ("yes", "no")

    def _start(self, options: Any) -> str:
        return "?"

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        return "", 1.0, True, {"success": True, "action_is_effective": True}

    def _picture(self) -> Any:
        return np.zeros((1, 1, 3), np.uint8)


@best_action.register
def _(env: Unexplained, actions_left: int) -> str:
    return "yes"


def test_without_an_explanation_thoughts_are_empty_and_that_is_said_once(
    tiny_tokenizer: PreTrainedTokenizerFast, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = played(tiny_tokenizer, True, lambda: AgentTurns(Unexplained()))
    assert {thought_of(one.turns[0].reply) for one in found} == {""}
    assert [one.message for one in caplog.records if "empty thoughts" in one.message] == [
        "demonstrations have empty thoughts: explain knows no Unexplained; write one and register it with "
        "@explain.register(Unexplained)"
    ]
