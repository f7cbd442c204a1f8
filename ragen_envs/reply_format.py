"""The grammar of a model's reply: what writes it, what reads it, and the tags both share.

``<think>…</think><answer>Left || Down</answer>``, or the answer alone. The first match counts, text around it is
ignored, and blanks may stand between thought and answer. Left out: repairing a reply that is nearly right, because
a trainer must score what was sampled.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
THINK, END_THINK, ANSWER, END_ANSWER = TAGS
# It starts with a literal and repeats only blanks, so a search takes linear time whatever the reply.
_THOUGHT_TO_ANSWER = re.compile(rf"{END_THINK}\s*{ANSWER}")


def _has_tag(text: str) -> bool:
    return any(tag in text for tag in TAGS)


@dataclass(frozen=True)
class ReplyFormat:
    """How a reply carries a list of actions; `read` inverts `write`.

    Attributes:
        think: Whether a thought precedes the answer.
        separator: Text between two actions.
    """

    think: bool
    separator: str

    def __post_init__(self) -> None:
        """Refuses a separator that would make replies ambiguous.

        Raises:
            ValueError: If the separator is empty or has blanks or a tag in it.
        """
        if not self.separator or re.search(r"\s", self.separator) or _has_tag(self.separator):
            raise ValueError(f"action separator {self.separator!r} must be text without blanks and tags")

    @property
    def prefix(self) -> str:
        """What every reply starts with."""
        return THINK if self.think else ANSWER

    def write(self, actions: Sequence[str], thought: str = "") -> str:
        """Writes the reply that `read` reads back as `actions`.

        Args:
            actions: At least one action, none blank or with blanks at its ends.
            thought: Put before the answer, or left out if `think` is off.

        Returns:
            The text of the reply.

        Raises:
            ValueError: If there is no action, or a text that the grammar cannot carry.
        """
        if isinstance(actions, str) or not actions:
            raise ValueError(f"a reply needs a sequence of at least one action; got {actions!r}")
        for action in actions:
            if not action or action != action.strip() or self.separator in action or _has_tag(action):
                raise ValueError(f"action {action!r} is blank, padded, or has a tag or {self.separator!r} in it")
        if _has_tag(thought):
            raise ValueError(f"thought {thought!r} has one of {TAGS} in it; take it out")
        answer = ANSWER + f" {self.separator} ".join(actions) + END_ANSWER
        return f"{THINK}{thought}{END_THINK}{answer}" if self.think else answer

    def read(self, reply: str) -> tuple[str, ...] | None:
        """Finds the actions in a reply, in time linear in its length.

        Args:
            reply: Any string.

        Returns:
            The stripped, non-empty actions as written, valid or not; None if the tags are not readable.
        """
        start = reply.find(self.prefix)
        if start < 0:
            return None
        start += len(self.prefix)
        if self.think:
            bridge = _THOUGHT_TO_ANSWER.search(reply, start)
            if bridge is None:
                return None
            start = bridge.end()
        end = reply.find(END_ANSWER, start)
        if end < 0:
            return None
        texts = (text.strip() for text in reply[start:end].split(self.separator))
        return tuple(text for text in texts if text)
