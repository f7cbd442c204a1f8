"""Demonstrations with thoughts: what is said is the oracle's, what is done stays the same, and what does not fit."""

from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from ragen_envs import TextEnv, best_action
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


def test_thoughts_are_learnt_and_change_no_action(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    silent, spoken = (played(tiny_tokenizer, think) for think in (False, True))
    moves = [[[turn.info["actions"] for turn in one.turns] for one in told] for told in (silent, spoken)]
    assert moves[0] == moves[1]
    first = to_examples(spoken)[0]
    learnt = tiny_tokenizer.decode([label for label in first["labels"] if label != -100])
    assert thought_of(spoken[0].turns[0].reply) in learnt
    texts = [thought_of(turn.reply) for one in spoken for turn in one.turns]
    assert len(set(texts)) > 0.7 * len(texts)


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
