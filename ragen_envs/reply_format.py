"""The format of a model's reply, ``<think>…</think><answer>Left || Down</answer>`` or only the answer.

The first match counts. Text around it is ignored, and there may be whitespace between thought and answer.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
THINK, END_THINK, ANSWER, END_ANSWER = TAGS
SEPARATOR = "||"
# It starts with a literal and repeats only whitespace, so that a search takes linear time for any reply.
_THOUGHT_TO_ANSWER = re.compile(rf"{END_THINK}\s*{ANSWER}")


def _has_tag(text: str) -> bool:
    return any(tag in text for tag in TAGS)


@dataclass(frozen=True)
class ReplyFormat:
    """How a reply carries a list of actions, after a thought if `think` is true; `read` inverts `write`."""

    think: bool

    @property
    def prefix(self) -> str:
        """The tag that every reply starts with."""
        return THINK if self.think else ANSWER

    def write(self, actions: Sequence[str], thought: str = "") -> str:
        """Writes the reply that `read` reads back as `actions`; the thought is left out if `think` is False.

        `ValueError` if there is no action, or if a text cannot be written in this format.
        """
        if isinstance(actions, str) or not actions:
            raise ValueError(f"a reply needs a sequence of at least one action; got {actions!r}")
        for action in actions:
            if not action or action != action.strip() or SEPARATOR in action or _has_tag(action):
                raise ValueError(f"action {action!r} is blank, padded, or has a tag or {SEPARATOR!r} in it")
        if _has_tag(thought):
            raise ValueError(f"thought {thought!r} has one of {TAGS} in it; take it out")
        answer = ANSWER + f" {SEPARATOR} ".join(actions) + END_ANSWER
        return f"{THINK}{thought}{END_THINK}{answer}" if self.think else answer

    def read(self, reply: str) -> tuple[str, ...] | None:
        """Finds the actions in any string, in time linear in its length.

        Returns:
            The stripped, non-empty actions as the model wrote them, valid or not; None if the tags cannot be read.
        """
        start = reply.find(self.prefix)
        if start < 0:
            return None
        start += len(self.prefix)
        if self.think:
            if (bridge := _THOUGHT_TO_ANSWER.search(reply, start)) is None:
                return None
            start = bridge.end()
        end = reply.find(END_ANSWER, start)
        if end < 0:
            return None
        texts = (text.strip() for text in reply[start:end].split(SEPARATOR))
        return tuple(text for text in texts if text)
