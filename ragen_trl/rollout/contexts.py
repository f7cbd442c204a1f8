"""What the policy reads when it does not read the whole episode: the last turns, or what a function writes. No torch.

A rule decides before each turn after the first. If it returns ``None``, the context grows by the environment's message.
Otherwise the context is built again: a row of its own in training (``batching/segments.py``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, Protocol

from ragen_trl.config.checks import context_function
from ragen_trl.errors import UserError
from ragen_trl.trajectory import Turn

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat

Context = Callable[[Sequence[Turn], str], Sequence[Mapping[str, str]] | None]
"""Writes what the model reads before a reply: called with the turns so far and the opening, it returns messages.

The turns are those that were answered, at least one. The opening is the environment's last message as the beginning of
a conversation: the rules and the present page. The messages are the user's and the assistant's in turn, the user's
first and last. ``None``: the context grows instead. It is called before each later reply, and once more where a limit
ended the episode: a critic values what the model would have read next.
"""


class ContextError(UserError, ValueError):
    """A context function fails, or returns something else than it should."""


class ContextRule(Protocol):
    """When and how a context is built again."""

    def rebuilt(
        self, chat: "Chat", turns: Sequence[Turn], openings: Sequence[str], observation: str
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The context before the next reply: `Turn.context_ids` and `Turn.prompt_ids`; ``None`` if it grows.

        Args:
            chat: The policy's chat.
            turns: The turns so far, at least one.
            openings: The message of each of them and of the next one, as the first message of a conversation.
            observation: The user message to answer.
        """


@dataclass(frozen=True)
class SlidingWindow:
    """The model sees the rules and the last ``turns``, the one to answer included."""

    turns: int

    def rebuilt(
        self, chat: "Chat", turns: Sequence[Turn], openings: Sequence[str], observation: str
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """See `ContextRule`. If no earlier turn is kept, the message is the opening, and before it is nothing."""
        if len(turns) < self.turns:
            return None
        first = len(turns) - self.turns + 1
        kept, ids = turns[first:], list(chat.start(openings[first]))
        if not kept:
            return (), tuple(ids)
        for turn, following in zip(kept, kept[1:], strict=False):
            ids += turn.reply_ids
            ids += chat.extend(ids[-1], following.observation)
        ids += kept[-1].reply_ids
        return tuple(ids), tuple(chat.extend(ids[-1], observation))


@dataclass(frozen=True)
class WrittenContext:
    """The model sees what the function ``write`` writes."""

    write: Context

    def rebuilt(
        self, chat: "Chat", turns: Sequence[Turn], openings: Sequence[str], observation: str
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """See `ContextRule`.

        Raises:
            ContextError: If the function fails or returns something else than messages, or an assistant's message does
                not begin as the model's replies do.
        """
        messages = self._written(turns, openings[-1])
        if messages is None:
            return None
        texts = _checked(messages, self.write)
        ids = list(chat.start(texts[0]))
        for reply, answered in zip(texts[1::2], texts[2::2], strict=True):
            if not reply.startswith(chat.reply_prefix):
                raise ContextError(
                    f"{_called(self.write)} wrote the reply {reply[:40]!r}, but the model's begin with "
                    f"{chat.reply_prefix!r}; take a turn's own `reply`"
                )
            ids += chat.encode_reply(reply)
            ids += chat.extend(ids[-1], answered)
        return (), tuple(ids)

    def _written(self, turns: Sequence[Turn], opening: str) -> Sequence[Mapping[str, str]] | None:
        try:
            return self.write(tuple(turns), opening)
        except Exception as error:
            at = extract_tb(error.__traceback__)[:2][-1]  # in the function, not in what it calls
            raise ContextError(
                f"{_called(self.write)} failed after turn {len(turns)} ({type(error).__name__}: {error}; "
                f"{at.filename}, line {at.lineno}); it is given the turns so far, at least one, and the opening"
            ) from error


def actions_so_far(turns: Sequence[Turn], opening: str) -> list[dict[str, str]]:
    r"""A context: the rules, the present page, and all actions that were taken.

    Example:
        >>> turn = Turn((), (), (), "", "", 0.0, info={"actions": ("search[mug]",)})
        >>> actions_so_far([turn], "Buy a mug.")
        [{'role': 'user', 'content': 'Buy a mug.\nActions so far: search[mug]'}]
    """
    taken = [str(action) for turn in turns for action in turn.info.get("actions", ())]
    return [{"role": "user", "content": f"{opening}\nActions so far: {', '.join(taken) or 'none'}"}]


def context_rule(window: int | None, context: Context | None) -> ContextRule | None:
    """The rule that these options ask for; ``None``: the context only grows."""
    if context is not None:
        return WrittenContext(context)
    return None if window is None else SlidingWindow(window)


def context_named(name: str) -> Context:
    """The function that the option ``context`` names, see `context_function`."""
    written: Context = context_function(name)
    return written


def _called(write: Context) -> str:
    """What errors call a context function; an object that can be called has no name."""
    name = getattr(write, "__qualname__", None)
    return f"the option context: {repr(write) if name is None else f'{write.__module__}:{name}'}"


def _checked(messages: Any, write: Context) -> list[str]:
    is_list = isinstance(messages, Sequence) and all(isinstance(message, Mapping) for message in messages)
    roles = [message.get("role") for message in messages] if is_list else []
    expected = [("user", "assistant")[place % 2] for place in range(len(roles))]
    if len(roles) % 2 == 0 or roles != expected or not all(isinstance(one.get("content"), str) for one in messages):
        raise ContextError(
            f"{_called(write)} returned {messages!r:.200}; return None, or messages {{'role': ..., 'content': ...}} of "
            "user and assistant in turn, the user's first and last (a system message is the option system_prompt)"
        )
    return [message["content"] for message in messages]
