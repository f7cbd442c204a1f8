"""ToolTurns: a model calls functions in its chat template's own form, and their results come back.

It is `AgentTurns` with calls instead of tagged actions: limits, penalty, rewards and info are the same. The caller
renders the chat template, which shows the tools (`ToolTurns.tools`) and writes results as messages of the role "tool"
(`info["tool_results"]`).
"""

from collections.abc import Sequence
from typing import Any

import gymnasium

from ragen_envs.arguments import check_choice
from ragen_envs.calling.env import ToolEnv
from ragen_envs.calling.formats import CALL_FORMATS, CallFormat
from ragen_envs.calling.schema import Schema
from ragen_envs.calling.tool import Call, read_action
from ragen_envs.turns import AgentTurns, TurnRecord

UNREADABLE = "Error: the reply has no thought before its calls"


class ToolTurns(AgentTurns):
    """Lets a language model play an environment with tools by calling them.

    A reply holds any number of calls (`calling.formats`), of which the first `max_actions_per_turn` are made, in order.
    Each has a result: what the tool returned, or what was wrong with the call. Calls past a limit have one result
    together, so that the message has its bound. A reply without a call is an answer in words; it ends the episode. A
    turn is bad, and gets `format_penalty` once, if one of its calls is not readable, names no tool, or has wrong
    arguments. A tool that raises an exception makes no turn bad.

    The first message is the purpose and the task; later ones are the results of the turn, one after the other. The info
    dict has the keys of `AgentTurns` (an action is a call as JSON) and:

    | key | meaning |
    |---|---|
    | `tool_results` | the results of this turn's calls, in order; () at reset and after an answer |

    Args:
        env: The environment; the unwrapped one is a `ToolEnv`.
        max_turns: Replies per episode, at least 1.
        max_actions_per_turn: Calls made for one reply, at least 1.
        max_actions: Valid calls per episode, at least 1.
        think: Whether a reply has a thought in ``<think>`` tags before its calls.
        format_penalty: Reward added to a bad turn, at most 0.
        call_format: The form that `format_reply` writes, one of `calling.formats.CALL_FORMATS`.

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
    ) -> None:
        """Wraps `env`; the arguments are described in the class docstring."""
        if not isinstance(env, gymnasium.Env) or not isinstance(env.unwrapped, ToolEnv):
            raise ValueError(f"{env!r} has no tools; wrap a ToolEnv, or use AgentTurns")
        shared: dict[str, Any] = {
            "max_turns": max_turns,
            "max_actions_per_turn": max_actions_per_turn,
            "max_actions": max_actions,
            "think": think,
            "format_penalty": format_penalty,
        }
        # First, so that these arguments are recorded and not those of `AgentTurns`.
        gymnasium.utils.RecordConstructorArgs.__init__(
            self, _disable_deepcopy=False, **shared, call_format=call_format
        )
        super().__init__(env, **shared)
        self.call_format = call_format

    def format_reply(self, actions: Sequence[str], thought: str = "") -> str:
        """Writes the reply with these calls; see `CallFormat.write`.

        An answer that follows calls, as in a plan, is left out: it would be a reply of its own.
        """
        calls = [action for action in actions if isinstance(read_action(action), Call)]
        return super().format_reply(calls or actions[:1], thought)

    def _message_space(self, action_separator: str) -> gymnasium.spaces.Text:
        space = super()._message_space(action_separator)
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

    @property
    def call_format(self) -> str:
        """The form that `format_reply` writes: that of the model which learns from its replies."""
        assert isinstance(self.reply_format, CallFormat)
        return self.reply_format.form

    @call_format.setter
    def call_format(self, form: str) -> None:
        check_choice("call_format", form, CALL_FORMATS)
        self.reply_format = CallFormat(self.reply_format.think, form)

    def _play(self, reply: str) -> TurnRecord:
        turn = super()._play(reply)
        if not turn.is_readable:
            turn.results.append(UNREADABLE)
        if turn.surplus and not (self._terminated or self._env_truncated):
            turn.results.append(f"Error: {self._not_made(len(turn.surplus))}")
        return turn

    def _not_made(self, number: int) -> str:
        """What is said of the calls past a limit. A reply may have hundreds of them, so they have one result."""
        calls = "the last call was" if number == 1 else f"the last {number} calls were"
        is_last = self.actions_left == 0
        whole, most = ("an episode", self.max_actions) if is_last else ("a turn", self.max_actions_per_turn)
        return f"{calls} not made: {whole} may have at most {most} call{'' if most == 1 else 's'}"

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
        return f"{self.game.purpose}\n{self._observation}"

    def _info(self, turn: TurnRecord) -> dict[str, Any]:
        return {**super()._info(turn), "tool_results": tuple(turn.results)}
