"""The context of a sliding window: what the policy reads if it sees only the last turns. No torch here.

Left out: summaries of the turns that were dropped.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragen_trl.trajectory import Turn

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat


def window_context(
    chat: "Chat", kept: Sequence[Turn], opening: str, observation: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Token ids of a context that holds only the last turns.

    Args:
        chat: The policy's chat.
        kept: The earlier turns that the policy still sees, at most k - 1, with their tokens.
        opening: The first message of the new context: the instruction and the observation of the first kept turn, or
            of the turn to answer if no earlier turn is kept.
        observation: The user message to answer.

    Returns:
        The tokens before the message (`Turn.context_ids`) and those of the message (`Turn.prompt_ids`). If no turn is
        kept, the message is the opening, and the context before it is empty.
    """
    ids = list(chat.start(opening))
    if not kept:
        return (), tuple(ids)
    for turn, following in zip(kept, kept[1:], strict=False):
        ids += turn.reply_ids
        ids += chat.extend(ids[-1], following.observation)
    ids += kept[-1].reply_ids
    return tuple(ids), tuple(chat.extend(ids[-1], observation))
