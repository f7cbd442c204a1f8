"""AgentTurns: one model reply in, the next user message out. Every message is written here."""

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded

from ragen_envs.arguments import check_choice, check_flags, check_integer
from ragen_envs.render import on_square
from ragen_envs.reply_format import ReplyFormat
from ragen_envs.text_env import TEXT_CHARSET, TextEnv, allowed_actions

if TYPE_CHECKING:
    from ragen_envs.calling.turns import CallFormat

MAX_REPLY_LENGTH = 8192  # of action_space; step accepts longer replies
MESSAGE_ROOM = 2048  # characters of a message, not counting instruction, action names and observation


@dataclass
class TurnRecord:
    """What happened to one reply: the notes that `AgentTurns` takes during a turn."""

    actions: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    surplus: list[str] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    env_reward: float = 0.0
    is_readable: bool = False
    is_effective: bool = False
    penalty: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether the turn has no penalty: the reply is readable, with a valid action and no invalid one."""
        return self.is_readable and bool(self.actions) and not self.invalid


class AgentTurns(gymnasium.Wrapper[Any, str, str, str], gymnasium.utils.RecordConstructorArgs):
    """Lets a language model play a text environment in turns of several primitive actions.

    A reply is ``<think>…</think><answer>Left || Down</answer>``, or only the answer (see `reply_format`). Of its first
    `max_actions_per_turn` actions the valid ones are executed in order until the environment ends or `max_actions` are
    used up. A turn is bad, and gets `format_penalty` once, if the reply is not readable, has no valid action, or has an
    invalid one. Valid actions that were not executed because of a limit or the end are surplus, without penalty.

    ``terminated`` comes from the environment; ``truncated`` too or, unless terminated, from a limit of turns or
    actions. After the end, `step` repeats the last message with reward 0 and changes nothing.

    The info dict has the same keys from `reset` (where no turn was taken: empty, zero, False) and `step`:

    | key | meaning |
    |---|---|
    | `success` | from the environment, or by `success_return`; False, with a warning, if neither says it |
    | `turn` | number of turns taken |
    | `actions` | executed actions of this turn, as the environment spells them |
    | `invalid_actions` | actions that are unknown or that the environment called invalid, as written |
    | `surplus_actions` | actions past a limit or past the end, as written |
    | `num_actions` | length of `actions` |
    | `action_names` | names of the valid actions; () for free text |
    | `actions_left` | number of actions that the episode still allows |
    | `format_is_valid` | the tags were readable |
    | `action_is_valid` | format valid, at least one action executed, none invalid |
    | `action_is_effective` | an action changed the state (or the observation, if the environment does not say) |
    | `env_reward` | sum of the environment's rewards in this turn, without penalty |
    | `format_penalty` | 0.0, or the penalty; the turn's reward is the sum of the two |
    | `action_rewards` | the environment's reward of each of `actions` |
    | `limit` | what truncated the episode: "turns", "actions", "env", or "" |
    | `limit_is_told` | the messages counted down to that limit, so that it was no surprise |
    | `state` | only the environment's observation, as the message shows it |
    | others | from the environment's last info |

    A message is text. With ``observation="image"`` it is a dict: ``"image"``, a picture of the state, uint8 of shape
    (image_size, image_size, 3), and ``"text"``, the message without the state.

    Args:
        env: The environment; its observations and actions are text. For pictures it is made with
            ``render_mode="rgb_array"``.
        max_turns: Replies per episode, at least 1.
        max_actions_per_turn: Actions read from one reply, at least 1.
        max_actions: Actions executed per episode, at least 1; fewer where a limit of the environment is smaller.
        think: Whether a reply has a thought before its answer.
        format_penalty: Reward added to a bad turn, at most 0.
        instruction: Task shown in the first message; by default the environment's own, else its class's docstring up to
            a section like ``Args:``.
        actions: Names of the valid actions, or ``()`` for free text; by default the environment's own, else free text.
        observation: "text", or "image" for a picture of the state in every message.
        image_size: Side of that picture in pixels, at least 28. Larger pictures are scaled down (`render.on_square`).
        success_return: The environment's return from which an episode counts as a success, instead of what it reports.

    Raises:
        ValueError: If a number is out of range, a space is not text, nothing says the task, a picture is wanted of an
            environment that draws none, or an `AgentTurns` is inside.
    """

    def __init__(
        self,
        env: gymnasium.Env[str, str],
        *,
        max_turns: int = 5,
        max_actions_per_turn: int = 5,
        max_actions: int = 10,
        think: bool = True,
        format_penalty: float = -0.1,
        instruction: str | None = None,
        actions: Sequence[str] | None = None,
        observation: str = "text",
        image_size: int = 168,
        success_return: float | None = None,
    ) -> None:
        limits = {"max_turns": max_turns, "max_actions_per_turn": max_actions_per_turn, "max_actions": max_actions}
        for limit, number in limits.items():
            check_integer(limit, number, 1, "leaves nothing to play")
        check_flags(think=think)
        if not format_penalty <= 0:
            raise ValueError(f"format_penalty={format_penalty} would not penalise; use 0 or less")
        if env.has_wrapper_attr("reply_format"):
            raise ValueError(f"{env} takes whole replies already; make the environment without AgentTurns inside")
        if not isinstance(env.unwrapped, TextEnv):
            instruction, actions = instruction or _docstring(env.unwrapped), actions or ()
        check_choice("observation", observation, ("text", "image"))
        check_integer("image_size", image_size, 28, "leaves nothing to see")
        if observation == "image" and not getattr(env.unwrapped, "draws_pictures", True):
            raise ValueError(f"{env.unwrapped} draws no pictures, it shows only text; use observation='text'")
        if observation == "image" and env.render_mode != "rgb_array":
            wanted = "an environment that draws itself, made with render_mode='rgb_array'"
            raise ValueError(f"observation='image' needs {wanted}; {env.unwrapped} has {env.render_mode!r}")
        words = {"think": think, "format_penalty": format_penalty, "instruction": instruction, "actions": actions}
        pictures = {"observation": observation, "image_size": image_size, "success_return": success_return}
        gymnasium.utils.RecordConstructorArgs.__init__(self, _disable_deepcopy=False, **limits, **words, **pictures)
        gymnasium.Wrapper.__init__(self, env)
        self.max_turns, self.max_actions_per_turn, self.max_actions = limits.values()
        self.format_penalty = float(format_penalty)
        self.reply_format: ReplyFormat | CallFormat = ReplyFormat(think)
        self.observation, self.image_size, self._instruction = observation, image_size, instruction
        self.success_return = success_return
        self._actions = None if actions is None else tuple(actions)
        messages = self._message_space()
        self.observation_space = messages
        if observation == "image":
            picture = gymnasium.spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
            self.observation_space = gymnasium.spaces.Dict({"image": picture, "text": messages})
        self.action_space = type(messages)(MAX_REPLY_LENGTH, min_length=0, charset=TEXT_CHARSET)
        self._message: str | None = None
        self._actions_used, self._most, self._return = 0, max_actions, 0.0

    def _message_space(self) -> gymnasium.spaces.Text:
        space, taken = self.env.observation_space, self.env.action_space
        if not isinstance(space, gymnasium.spaces.Text) or not isinstance(taken, gymnasium.spaces.Text):
            wanted = f"write a TextEnv that owns {self.unwrapped} and speaks for it"
            raise ValueError(f"observations are {space} and actions {taken}, but both have to be text; {wanted}")
        names = ", ".join(self.actions or ())
        charset = space.character_set.union(TEXT_CHARSET, self.instruction, names)
        # The names are listed once and may be shown in examples. Those of another episode may be longer: an environment
        # that changes them, as Bandit does, has them in its observations.
        room = MESSAGE_ROOM + len(self.instruction) + (4 * max(len(names), space.max_length) if names else 0)
        return type(space)(space.max_length + room, min_length=0, charset=charset)  # an `AnyText` stays an `AnyText`

    @property
    def instruction(self) -> str:
        """The task, shown in the first message; the environment's own may differ from one episode to the next."""
        if self._instruction is not None:
            return self._instruction
        assert isinstance(self.unwrapped, TextEnv)
        return self.unwrapped.picture_instruction if self.observation == "image" else self.unwrapped.instruction

    @property
    def actions(self) -> tuple[str, ...] | None:
        """Names of the valid actions; None for free text."""
        if self._actions is not None:
            return self._actions or None
        assert isinstance(self.unwrapped, TextEnv)
        return self.unwrapped.actions

    @property
    def actions_left(self) -> int:
        """Number of actions that the episode still allows."""
        return allowed_actions(self.env, self.max_actions - self._actions_used)

    @property
    def reply_prefix(self) -> str:
        """The start of every well-formed reply; a rollout may force it."""
        return self.reply_format.prefix

    @property
    def opening(self) -> str:
        """The rules, `TextEnv.task` and the last message, to begin a context here; `ResetNeeded` before `reset`."""
        if self._message is None:
            raise ResetNeeded("AgentTurns.opening was read before reset; call reset first")
        return self._opening()

    def format_reply(self, actions: Sequence[str], thought: str = "") -> str:
        """Writes the canonical reply with these actions; see `ReplyFormat.write`."""
        return self.reply_format.write(actions, thought)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode with the environment's `seed` and `options`; returns the first user message and info."""
        self._observation, self._env_info = self.env.reset(seed=seed, options=options)
        self._turns_taken, self._actions_used, self._return = 0, 0, 0.0
        self._most = self.actions_left  # in all: `max_actions`, or a smaller limit of the environment
        self._terminated = self._env_truncated = self._truncated = False
        self._limit = ""
        self._latest = "\n".join([f"Turn 1 of {self.max_turns}", *self._state()])
        self._message = self._opening()
        return self._shown(), self._info(TurnRecord())

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes one turn; `action` is the model's reply, any string. `ResetNeeded` before the first `reset`.

        Returns:
            Next user message, reward (the environment's, plus the penalty of a bad turn), terminated, truncated, info.
        """
        if self._message is None:
            raise ResetNeeded("AgentTurns.step was called before reset; call reset first")
        if self._terminated or self._truncated:
            return self._shown(), 0.0, self._terminated, self._truncated, self._info(TurnRecord())
        turn = self._play(action)
        turn.penalty = 0.0 if turn.is_good else self.format_penalty
        self._turns_taken += 1
        self._limit = "" if self._terminated else self._reached_limit()
        self._truncated = self._env_truncated or self._limit != ""
        self._message = self._latest = self._told(turn)
        reward = turn.env_reward + turn.penalty
        return self._shown(), reward, self._terminated, self._truncated, self._info(turn)

    def _shown(self) -> Any:
        if self.observation == "text":
            return self._message
        picture: Any = self.env.render()
        return {"image": on_square(picture, self.image_size), "text": self._message}

    def _play(self, reply: str) -> TurnRecord:
        turn = TurnRecord()
        texts = self.reply_format.read(reply)
        if texts is None:
            return turn
        turn.is_readable = True
        for text in texts[: self.max_actions_per_turn]:
            name = self._match(text)
            if name is None:
                turn.invalid.append(text)
            elif self._terminated or self._env_truncated or self.actions_left == 0:
                turn.surplus.append(text)
            else:
                self._act(name, text, turn)
        turn.surplus.extend(texts[self.max_actions_per_turn :])
        return turn

    def _match(self, text: str) -> str | None:
        """The action as the environment spells it; None if it is unknown, so that it costs no step of a `TimeLimit`."""
        if self.actions is None:
            return text
        wanted = text.casefold()
        return next((name for name in self.actions if name.casefold() == wanted), None)

    def _act(self, name: str, text: str, turn: TurnRecord) -> None:
        before = self._observation
        self._observation, reward, self._terminated, self._env_truncated, self._env_info = self.env.step(name)
        turn.env_reward += float(reward)
        self._return += float(reward)
        if not self._env_info.get("action_is_valid", True):
            turn.invalid.append(text)
            return
        if self._terminated and self.success_return is None and "success" not in self._env_info:
            told = f"{type(self.unwrapped).__name__} ended without 'success' in its info, which counts as a failure"
            gymnasium.logger.warn(f"{told}; put it there, or give the return of a solved episode as success_return")
        self._actions_used += 1
        turn.actions.append(name)
        turn.rewards.append(float(reward))
        turn.is_effective |= bool(self._env_info.get("action_is_effective", self._observation != before))

    @property
    def _is_success(self) -> bool:
        if self.success_return is None:
            reported = self._env_info.get("success", False)
            if reported != reported:
                raise ValueError("info['success'] is NaN, which would count as true")
            return bool(reported)
        return self._turns_taken > 0 and self._return >= self.success_return

    def _reached_limit(self) -> str:
        if self._env_truncated or self.actions_left == 0:
            return "env" if self._env_truncated else "actions"
        return "turns" if self._turns_taken == self.max_turns else ""

    def _is_told(self) -> bool:
        """Whether the messages counted down to the limit; "Actions left" counts down to one of the environment, too."""
        return self._limit != "" and (self._turns_taken == self.max_turns or self.actions_left == 0)

    def _told(self, turn: TurnRecord) -> str:
        """The message after a turn. After a limit that none has told of it reads as if the episode went on."""
        ended = self._terminated or self._is_told()
        title = "The end" if ended else f"Turn {self._turns_taken + 1} of {self.max_turns}"
        return "\n".join([title, *self._problem(turn), f"Reward: {turn.env_reward:g}", *self._state()])

    def _opening(self) -> str:
        lines = [self.instruction]
        if self.actions:
            self.format_reply(self.actions)  # raises an error for a name that cannot be written in a reply
            lines.append(f"Actions: {', '.join(self.actions)}")
        per_turn = min(self.max_actions_per_turn, self._most)
        lines.append(f"Limits: actions per turn {per_turn}, actions in all {self._most}, turns {self.max_turns}")
        lines.append(f"Reply format: {self._example()}")
        if self._turns_taken and isinstance(self.unwrapped, TextEnv) and self.unwrapped.task:
            lines.append(self.unwrapped.task)
        return "\n".join([*lines, "", self._latest])

    def _example(self) -> str:
        shown = min(2, self.max_actions_per_turn, self._most)
        names = self.actions or (("your answer",) if shown == 1 else ("first action", "second action"))
        return self.format_reply(names[:shown], "your thoughts")

    def _state(self) -> list[str]:
        left = f"Actions left: {self.actions_left}"
        if self.observation == "text":
            return ["State:", self._observation, left]
        unseen = self.unwrapped.text_beside_picture if isinstance(self.unwrapped, TextEnv) else ""
        return [*(["State: the picture and", unseen] if unseen else ["State: the picture"]), left]

    def _problem(self, turn: TurnRecord) -> list[str]:
        """One line that helps after a bad turn. It never repeats what the model wrote."""
        if turn.is_good:
            return []
        if not turn.is_readable:
            return [f"Unreadable reply. Use: {self._example()}"]
        fault = "Unknown action ignored." if turn.invalid else "No action found."
        return [f"{fault} Use: {', '.join(self.actions)}" if self.actions else fault]

    def _info(self, turn: TurnRecord) -> dict[str, Any]:
        return {
            **self._env_info,
            "success": self._is_success,
            "turn": self._turns_taken,
            "actions": tuple(turn.actions),
            "invalid_actions": tuple(turn.invalid),
            "surplus_actions": tuple(turn.surplus),
            "num_actions": len(turn.actions),
            "action_names": self.actions or (),
            "actions_left": self.actions_left,
            "format_is_valid": turn.is_readable,
            "action_is_valid": turn.is_good,
            "action_is_effective": turn.is_effective,
            "env_reward": turn.env_reward,
            "format_penalty": turn.penalty,
            "action_rewards": tuple(turn.rewards),
            "limit": self._limit,
            "limit_is_told": self._is_told(),
            "state": self._observation,
        }


def _docstring(env: gymnasium.Env[Any, Any]) -> str:
    """What the docstring of an environment's own class says before a section on its arguments or versions."""
    section = r"\n\s*(?:\w+:\s*\n|\w+\s*\n\s*---|#+ (?:Arguments|References|Version))"
    text = re.split(section, inspect.cleandoc(type(env).__doc__ or ""))[0].strip()
    if not text:
        raise ValueError(f"{env} says nowhere what its task is: its class has no docstring; pass instruction=")
    return text
