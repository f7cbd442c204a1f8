"""What the policy reads when it does not read the whole episode: the last turns, or what a function writes. No torch.

A rule decides before each turn after the first. If it returns ``None``, the context grows by the environment's message.
Otherwise the context is built again: a row of its own in training (``batching/batch.py``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragen_trl.config.checks import context_function
from ragen_trl.errors import OptionError
from ragen_trl.trajectory import Turn

if TYPE_CHECKING:
    from ragen_trl.config.starpo import StarPOConfig
    from ragen_trl.rollout.chat import Chat

Context = Callable[[Sequence[Turn], str], Sequence[Mapping[str, str]] | None]
"""Writes what the model reads before a reply: called with the turns so far and the opening, it returns messages.

The turns are those that were answered, at least one. The opening is the environment's last message as the beginning of
a conversation: the rules and the present page. The messages are the user's and the assistant's in turn, the user's
first and last. ``None``: the context grows instead. It is called before each later reply, and once more where a limit
ended the episode: a critic values what the model would have read next.
"""


@dataclass(frozen=True)
class ContextRule:
    """When and how a context is built again: to a ``window`` of turns, or as the function ``write`` says."""

    window: int | None = None
    write: Context | None = None

    def rebuilt(
        self, chat: "Chat", turns: Sequence[Turn], opening: str, observation: str
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The context before the next reply: `Turn.context_ids` and `Turn.prompt_ids`; ``None`` if it grows.

        ``turns`` is at least one turn, with its `Turn.opening`; ``opening`` is that of ``observation``, the message to
        answer. A window keeps replies as they were sampled. `OptionError` for messages in another order.
        """
        if self.write is not None:
            texts = _written(self.write, chat, turns, opening)
            replies = [chat.encode_reply(reply) for reply in texts[1::2]]
        elif self.window is not None and len(turns) >= self.window:
            first = len(turns) - self.window + 1
            kept = turns[first:]
            texts = [text for turn in kept for text in (turn.observation, turn.reply)] + [observation]
            texts[0] = kept[0].opening if kept else opening
            replies = [list(turn.reply_ids) for turn in kept]
        else:
            texts = []
        if not texts:
            return None
        context, ids = list[int](), chat.start(texts[0])
        for reply, answered in zip(replies, texts[2::2], strict=True):
            context += ids + reply
            ids = chat.extend(context[-1], answered)
        return tuple(context), tuple(ids)


def _written(write: Context, chat: "Chat", turns: Sequence[Turn], opening: str) -> list[str]:
    """The texts of a function's messages, of the user and of the assistant in turn; none if the context grows."""
    messages = write(tuple(turns), opening)
    if messages is None:
        return []
    texts, roles = [message["content"] for message in messages], [message["role"] for message in messages]
    in_turn = len(roles) % 2 == 1 and roles == [("user", "assistant")[place % 2] for place in range(len(roles))]
    if not in_turn or not all(reply.startswith(chat.reply_prefix) for reply in texts[1::2]):
        raise OptionError(
            f"the option context: {write!r} returned {messages!r:.200}; return None, or messages of user and assistant "
            "in turn, the user's first and last (a system message is the option system_prompt), where the assistant's "
            f"begin with {chat.reply_prefix!r}, as a turn's own `reply` does"
        )
    return texts


def actions_so_far(turns: Sequence[Turn], opening: str) -> list[dict[str, str]]:
    r"""A context: the rules, the present page, and all actions that were taken.

    Example:
        >>> turn = Turn((), (), (), "", "", 0.0, info={"actions": ("search[mug]",)})
        >>> actions_so_far([turn], "Buy a mug.")
        [{'role': 'user', 'content': 'Buy a mug.\nActions so far: search[mug]'}]
    """
    taken = [str(action) for turn in turns for action in turn.info.get("actions", ())]
    return [{"role": "user", "content": f"{opening}\nActions so far: {', '.join(taken) or 'none'}"}]


def context_rule(args: "StarPOConfig") -> ContextRule | None:
    """The rule that the options ask for; ``None``: the context only grows."""
    if args.context is not None:
        return ContextRule(write=context_function(args.context))
    return None if args.window_turns is None else ContextRule(args.window_turns)
