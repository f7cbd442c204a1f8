"""How a reply carries calls: the forms in which the chat templates of common models write them.

| name | models | a call |
|---|---|---|
| ``tags`` | Qwen2.5, Qwen3, Hermes, the embedded model | ``<tool_call>{"name": …, "arguments": {…}}</tool_call>`` |
| ``json`` | Llama 3.1 and 3.2 | ``{"name": …, "parameters": {…}}``, several with ``;`` between them |

A reply without a call is an answer in words. Reading takes either form, because a model must not be penalised for what
another one is asked to write; only writing needs to know which one. Text around tagged calls is ignored.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ragen_envs.calling.tool import Call, call_in, read_action, read_object, write_answer, write_call
from ragen_envs.reply_format import END_THINK, THINK

CALL_FORMATS = ("tags", "json")
CALL, END_CALL = "<tool_call>", "</tool_call>"
_PYTHON = "<|python_tag|>"  # may stand before Llama 3's calls
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class CallFormat:
    """How a reply carries calls. It stands where `ReplyFormat` stands for actions in tags.

    Attributes:
        think: Whether a thought in ``<think>`` tags comes first.
        form: One of `CALL_FORMATS`; the form that `write` writes.
    """

    think: bool = False
    form: str = "tags"

    @property
    def prefix(self) -> str:
        """The start of every well-formed reply."""
        return THINK if self.think else ""

    def write(self, actions: Sequence[str], thought: str = "") -> str:
        """Writes the reply that `read` reads back as `actions`.

        Args:
            actions: Calls, at least one, or a single answer; in the form of `tool.write_call` and `tool.write_answer`.
            thought: Comes first; left out if `think` is False.

        Raises:
            ValueError: If there is no action, or one of them cannot be written in this form.
        """
        if isinstance(actions, str) or not actions:
            raise ValueError(f"a reply needs a sequence of at least one call; got {actions!r}")
        said = [read_action(action) for action in actions]
        calls = [one for one in said if isinstance(one, Call)]
        words = [one for one in said if isinstance(one, str)]
        if len(calls) < len(said) and (len(said) > 1 or not words):
            raise ValueError(f"actions {actions!r} are neither calls nor a single answer")
        body = words[0] if words else self._calls(calls)
        written = f"{THINK}{thought}{END_THINK}{body}" if self.think else body
        expected = tuple(write_call(one.name, one.arguments) for one in calls) or (write_answer(words[0]),)
        if self.read(written) != expected:
            raise ValueError(f"actions {actions!r:.200} have a tag or a brace that would be read in another way")
        return written

    def read(self, reply: str) -> tuple[str, ...] | None:
        """Finds the calls of a reply, in time linear in its length.

        Args:
            reply: Any string.

        Returns:
            Actions: calls in one spelling, or as the model wrote them where they cannot be read; the answer, if there
            is no call. None if a thought is asked for and missing.
        """
        if self.think:
            begin = reply.find(THINK)
            end = reply.find(END_THINK, begin) if begin >= 0 else -1
            if end < 0:
                return None
            reply = reply[end + len(END_THINK) :]
        if CALL in reply:
            return tuple(_tagged(reply))
        text = reply.strip().removeprefix(_PYTHON).strip()
        return tuple(_bare(text)) if text.startswith("{") else (write_answer(text),)

    def _calls(self, calls: Sequence[Call]) -> str:
        if self.form == "json":
            return "; ".join(_dump({"name": one.name, "parameters": one.arguments}) for one in calls)
        objects = (_dump({"name": one.name, "arguments": one.arguments}) for one in calls)
        return "\n".join(f"{CALL}\n{text}\n{END_CALL}" for text in objects)


def _dump(found: object) -> str:
    return json.dumps(found, ensure_ascii=False)


def _tagged(reply: str) -> Iterator[str]:
    """What stands in each pair of tags. A call that is not closed keeps its tag, so that it is no call."""
    for piece in reply.split(CALL)[1:]:
        inner, closed, _ = piece.partition(END_CALL)
        yield _canonical(inner.strip()) if closed else CALL + inner


def _bare(text: str) -> Iterator[str]:
    """Objects with ``;`` or blanks between them. What follows something else is one action, which is no call."""
    while text:
        try:
            _, end = _DECODER.raw_decode(text)
        except (ValueError, RecursionError):
            yield text
            return
        yield _canonical(text[:end])
        text = text[end:].lstrip("; \n\t\r")
        if text and not text.startswith("{"):
            yield text
            return


def _canonical(text: str) -> str:
    """The call in the spelling of `write_call`; the text itself if it is none."""
    found = read_object(text)
    call = None if found is None else call_in(found)
    return text if call is None else write_call(call.name, call.arguments)
