"""A model calls functions in its chat template's own form, and their results come back.

How a reply carries calls, as the chat templates of common models write them:

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
from typing import Any

import gymnasium

from ragen_envs.arguments import check_choice
from ragen_envs.calling.env import ToolEnv
from ragen_envs.calling.tool import Call, Schema, read_action, write_answer, write_call
from ragen_envs.reply_format import END_THINK, THINK
from ragen_envs.turns import AgentTurns, TurnRecord

CALL_FORMATS = ("tags", "json")
CALL, END_CALL = "<tool_call>", "</tool_call>"
_PYTHON = "<|python_tag|>"  # may stand before Llama 3's calls


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
        """Writes the reply that `read` reads back as `actions`: calls, at least one, or a single answer.

        Raises:
            ValueError: If there is no action, or one of them cannot be written in this form.
        """
        said = [read_action(action) for action in actions]
        calls = [one for one in said if isinstance(one, Call)]
        if said and isinstance(said[0], str):
            body = said[0]
        elif self.form == "json":
            found = ({"name": one.name, "parameters": one.arguments} for one in calls)
            body = "; ".join(json.dumps(one, ensure_ascii=False) for one in found)
        else:
            body = "\n".join(f"{CALL}\n{write_call(one.name, one.arguments)}\n{END_CALL}" for one in calls)
        written = f"{THINK}{thought}{END_THINK}{body}" if self.think else body
        if self.read(written) != tuple(map(_canonical, actions)):
            raise ValueError(
                f"actions {actions!r:.200} are neither calls nor one answer, or hold what would be read in another way"
            )
        return written

    def read(self, reply: str) -> tuple[str, ...] | None:
        """Finds the calls of a reply, any string, in time linear in its length.

        Returns:
            Calls in one spelling, or as the model wrote them where they cannot be read; the answer, if there is no
            call. None if a thought is asked for and missing.
        """
        if self.think:
            begin = reply.find(THINK)
            end = reply.find(END_THINK, begin) if begin >= 0 else -1
            if end < 0:
                return None
            reply = reply[end + len(END_THINK) :]
        if CALL in reply:
            pieces = (piece.partition(END_CALL) for piece in reply.split(CALL)[1:])
            # A call that is not closed keeps its tag, so that it is no call.
            return tuple(_canonical(inner.strip()) if closed else CALL + inner for inner, closed, _ in pieces)
        text = reply.strip().removeprefix(_PYTHON).strip()
        return tuple(_bare(text)) if text.startswith("{") else (write_answer(text),)


def _bare(text: str) -> Iterator[str]:
    """Objects with ``;`` or blanks between them. What follows something else is one action, which is no call."""
    while text:
        try:
            end = json.JSONDecoder().raw_decode(text)[1] if text.startswith("{") else len(text)
        except (ValueError, RecursionError):
            end = len(text)
        yield _canonical(text[:end])
        text = text[end:].lstrip("; \n\t\r")


def _canonical(text: str) -> str:
    """The call in the spelling of `write_call`; the text itself if it is none."""
    found = read_action(text)
    return write_call(found.name, found.arguments) if isinstance(found, Call) else text


class ToolTurns(AgentTurns):
    """Lets a language model play an environment with tools by calling them.

    It is `AgentTurns` with calls instead of tagged actions: limits, penalty, rewards and info are the same. The caller
    renders the chat template, which shows the tools and writes results as messages of the role "tool".

    A reply holds any number of calls, of which the first `max_actions_per_turn` are made, in order. Each has a result:
    what the tool returned, or what was wrong with the call. Calls past a limit have one result together. A reply
    without a call is an answer in words; it ends the episode. A turn is bad, and gets `format_penalty` once, if one of
    its calls is not readable, names no tool, or has wrong arguments. A tool that raises an exception makes no turn bad.

    The first message is the purpose and the task; later ones are the results of the turn, one after the other. They are
    also in `info["tool_results"]`, in order; () at reset and after an answer.

    Args:
        env: The environment; the unwrapped one is a `ToolEnv`.
        max_turns, max_actions_per_turn, max_actions, format_penalty, success_return: As of `AgentTurns`, for calls.
        think: Whether a reply has a thought in ``<think>`` tags before its calls.
        call_format: The form that `format_reply` writes, one of `CALL_FORMATS`; it may be set later.

    Raises:
        ValueError: If a number is out of range, the form is unknown, or `env` has no tools.
    """

    def __init__(
        self,
        env: gymnasium.Env[str, str],
        *,
        max_turns: int = 10,
        max_actions_per_turn: int = 5,
        max_actions: int = 10,
        think: bool = False,
        format_penalty: float = -0.1,
        call_format: str = "tags",
        success_return: float | None = None,
    ) -> None:
        """Wraps `env`; the arguments are described in the class docstring."""
        if not isinstance(env, gymnasium.Env) or not isinstance(env.unwrapped, ToolEnv):
            raise ValueError(f"{env!r} has no tools; wrap a ToolEnv, or use AgentTurns")
        check_choice("call_format", call_format, CALL_FORMATS)
        limits = {"max_turns": max_turns, "max_actions_per_turn": max_actions_per_turn, "max_actions": max_actions}
        shared: dict[str, Any] = {**limits, "think": think, "format_penalty": format_penalty}
        shared["success_return"] = success_return
        # First, so that these arguments are recorded and not those of `AgentTurns`.
        gymnasium.utils.RecordConstructorArgs.__init__(self, _disable_deepcopy=False, **shared, call_format=call_format)
        super().__init__(env, **shared)
        self.reply_format, self.call_format = CallFormat(think), call_format

    def format_reply(self, actions: Sequence[str], thought: str = "") -> str:
        """Writes the reply with these calls; see `CallFormat.write`.

        An answer that follows calls, as in a plan, is left out: it would be a reply of its own.
        """
        calls = [action for action in actions if isinstance(read_action(action), Call)]
        return CallFormat(self.reply_format.think, self.call_format).write(calls or actions[:1], thought)

    def _message_space(self) -> gymnasium.spaces.Text:
        space = super()._message_space()
        room = self.max_actions_per_turn * self.game.max_result_length
        return type(space)(space.max_length + room, min_length=0, charset=space.character_set)

    @property
    def game(self) -> ToolEnv:
        """The unwrapped environment."""
        assert isinstance(self.unwrapped, ToolEnv)
        return self.unwrapped

    @property
    def tools(self) -> tuple[Schema, ...]:
        """Descriptions of this episode's tools, for the chat template's `tools`."""
        return self.game.schemas

    def _play(self, reply: str) -> TurnRecord:
        turn = super()._play(reply)
        if not turn.is_readable:
            turn.results.append("Error: the reply has no thought before its calls")
        # A reply may have hundreds of calls past a limit, so they have one result.
        if turn.surplus and not (self._terminated or self._env_truncated):
            number, is_last = len(turn.surplus), self.actions_left == 0
            calls = "the last call was" if number == 1 else f"the last {number} calls were"
            whole, most = ("an episode", self.max_actions) if is_last else ("a turn", self.max_actions_per_turn)
            limit = f"{whole} may have at most {most} call{'' if most == 1 else 's'}"
            turn.results.append(f"Error: {calls} not made: {limit}")
        return turn

    def _act(self, name: str, text: str, turn: TurnRecord) -> None:
        fault = self.game.fault(name)
        super()._act(name, text, turn)
        if fault is not None:
            turn.results.append(f"Error: {fault}")
        elif self._env_info["tool"]:
            turn.results.append(self._observation)

    def _is_told(self) -> bool:
        return False  # results count nothing down

    def _told(self, turn: TurnRecord) -> str:
        return "\n".join(turn.results) or self._observation

    def _opening(self) -> str:
        return f"{self.game.purpose}\n{self._observation}".lstrip("\n")

    def _info(self, turn: TurnRecord) -> dict[str, Any]:
        return {**super()._info(turn), "tool_results": tuple(turn.results)}
