"""The context of a sliding window: what a policy reads that sees the last turns only. No torch here.

Left out: summaries of what slid out.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragen_trl.trajectory import Turn

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat


def window_context(
    chat: "Chat", kept: Sequence[Turn], opening: str, observation: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Token ids of a context that holds the last turns only.

    Args:
        chat: Of the policy.
        kept: The turns before the one to be answered that are still seen, k - 1 at most, with their tokens.
        opening: The first message of the new context: instruction and the observation of the first kept turn, or of
            the turn to be answered where no other is kept.
        observation: The user message to answer.

    Returns:
        What comes before the message, `Turn.context_ids`, and the message itself, `Turn.prompt_ids`. With no turn kept
        the message is in the opening, and the context before it empty.
    """
    ids = list(chat.start(opening))
    if not kept:
        return (), tuple(ids)
    for turn, following in zip(kept, kept[1:], strict=False):
        ids += turn.reply_ids
        ids += chat.extend(ids[-1], following.observation)
    ids += kept[-1].reply_ids
    return tuple(ids), tuple(chat.extend(ids[-1], observation))
