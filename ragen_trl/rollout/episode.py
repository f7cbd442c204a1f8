"""An episode in progress. ``loop.py`` decides who is asked and when, and has the table of all endings."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ragen_envs import AgentTurns, ToolTurns
from ragen_trl.errors import OptionError
from ragen_trl.rollout.contexts import ContextRule
from ragen_trl.rollout.env_executor import FAILURES
from ragen_trl.rollout.interfaces import Policy, Reply, Request, Start, TurnEnv, tokens_read
from ragen_trl.trajectory import Picture, Trajectory, Turn

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat

POLICY_FAILED = "error"
"""`Trajectory.limit` if the policy had no reply."""
FAILED = (*FAILURES, POLICY_FAILED)
"""Endings for which no policy is to blame: the environment failed, or the server that the policy asks."""


@dataclass(frozen=True)
class Outcome:
    """An environment's answer to ``reset`` or ``step``.

    `ValueError` for half a character in a text, or for a reward or a score like NaN.
    """

    observation: str
    info: dict[str, Any]
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    pictures: tuple[Picture, ...] = ()

    @classmethod
    def of(cls, message: Any, info: Mapping[str, Any]) -> "Outcome":
        """An answer whose message is a text, or a dict of a "text" and an "image"."""
        pictures: tuple[Picture, ...] = ()
        if not isinstance(message, str):
            height, width, _ = message["image"].shape
            pictures, message = (Picture(height, width, message["image"].tobytes()),), message["text"]
        return cls(message, dict(info), pictures=pictures)

    def __post_init__(self) -> None:
        try:
            "".join({self.observation, self.state}).encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"the message is no text: {error}") from None
        for name, value in (("reward", self.reward), ("task_score", self.info.get("task_score", 0.0))):
            if not math.isfinite(value):
                raise ValueError(f"the {name} is {value}, which is not finite")

    @property
    def state(self) -> str:
        """The environment's own observation if ``AgentTurns`` reports it, otherwise the whole message."""
        return str(self.info.get("state", self.observation))


@dataclass
class Episode:
    """One row of a rollout, while it is played.

    The next message costs as many tokens of the trajectory's budget as in a context that only grows, so a rule does not
    change the length of an episode.
    """

    start: Start
    env: TurnEnv
    last: Outcome  # the environment's last answer; at first to ``reset``
    rule: ContextRule | None = None  # when the policy's context is built again
    turns: list[Turn] = field(default_factory=list)
    opening: str = ""  # `Turn.opening` of the message that is answered now; only with a rule
    length: int = 0  # tokens of the turns so far
    cost: int = 0  # tokens of the next message
    done: dict[str, Any] | None = None  # ``terminated``, ``truncated`` and ``limit`` once the episode has ended

    def request(self, row: int, policy: Policy, max_length: int | None) -> Request:
        """What the policy is asked now; its ``room`` is below 1 if no reply fits, see `loop.play`."""
        (context_ids, new_ids), last = self._next_ids(policy.chat), self.last
        request = Request(row, last.observation, new_ids, self.env, None, context_ids, last.pictures, tuple(self.turns))
        rooms = [] if policy.max_context is None else [policy.max_context - len(request.context)]
        if max_length is not None:
            first = len(self.turns[0].prompt_ids) if self.turns else len(new_ids)
            rooms.append(max_length - (self.length + self.cost - first))
        return replace(request, room=min(rooms, default=None))

    def answer(self, request: Request, reply: Reply, outcome: Outcome, penalty: float) -> None:
        """Record a turn that the environment answered; ``penalty`` is added to its reward."""
        info = {**outcome.info, "cut_penalty": penalty} if penalty else outcome.info
        self._record(request, reply, outcome.reward + penalty, info)
        self.last = outcome
        if outcome.terminated or outcome.truncated:
            self.finish(outcome.terminated, outcome.truncated, str(outcome.info.get("limit", "")))

    def fail(self, request: Request, reply: Reply, reward: float, limit: str, error: str) -> None:
        """Record a turn that no environment answered, and end the episode."""
        self._record(request, reply, reward, {"limit": limit, "error": error})
        self.finish(terminated=False, truncated=True, limit=limit)

    def finish(self, terminated: bool, truncated: bool, limit: str) -> None:
        """End the episode."""
        self.done = {"terminated": terminated, "truncated": truncated, "limit": limit}

    def trajectory(self, chat: "Chat | None", max_context: int | None) -> Trajectory:
        """The finished episode. ``next_prompt_ids`` is cut to the model's context."""
        assert self.done is not None
        goes_on = self.done["truncated"] and not self.done["terminated"]
        seen = self.done["limit"] not in FAILED  # otherwise there is no answer to show
        context_ids, new_ids = self._next_ids(chat) if goes_on and seen else (None, ())
        read = tokens_read(self.turns) if context_ids is None else context_ids
        room = None if max_context is None else max(0, max_context - len(read))
        return Trajectory(
            turns=tuple(self.turns),
            seed=self.start.seed,
            outcome_seed=self.start.outcome_seed,
            next_prompt_ids=new_ids[:room],
            next_context_ids=context_ids,
            **self.done,
        )

    def _next_ids(self, chat: "Chat | None") -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
        """The rebuilt context (``None`` if it only grows), and the tokens of the environment's last answer."""
        if chat is None:
            return None, ()
        if self.rule is not None:
            if isinstance(self.env, ToolTurns) or not isinstance(self.env, AgentTurns):
                raise OptionError(
                    f"contexts are built again ({self.rule}), which needs an environment in an AgentTurns without "
                    "tools: that can begin a conversation at a later turn, and a tool's result without its call says "
                    "little; leave window_turns and context unset"
                )
            self.opening = self.env.opening
        rebuilt, shown = None, self.last
        if not self.turns:
            message = tuple(chat.start(shown.observation, tools_of(self.env), shown.pictures))
        else:
            last_token = (self.turns[-1].reply_ids or self.turns[-1].prompt_ids)[-1]
            if results := shown.info.get("tool_results"):
                message = tuple(chat.extend_results(last_token, results))
            else:
                message = tuple(chat.extend(last_token, shown.observation, shown.pictures))
            if self.rule is not None:
                rebuilt = self.rule.rebuilt(chat, self.turns, self.opening, shown.observation)
        self.cost = len(message)
        return rebuilt or (None, message)

    def _record(self, request: Request, reply: Reply, reward: float, info: dict[str, Any]) -> None:
        turn = Turn(
            prompt_ids=request.new_ids,
            reply_ids=reply.ids,
            logprobs=reply.logprobs,
            observation=request.observation,
            reply=reply.text,
            reward=reward,
            info=info,
            cut=reply.cut,
            state=self.last.state,
            context_ids=request.context_ids,
            pictures=request.pictures,
            opening=self.opening,
            oracle_ids=reply.oracle_ids,
        )
        self.turns.append(turn)
        self.length += self.cost + len(reply.ids)


def tools_of(env: TurnEnv) -> tuple[dict[str, Any], ...]:
    """Descriptions of the tools that a policy may call in this episode, for the chat template; () if there are none."""
    return env.tools if isinstance(env, ToolTurns) else ()


def measure(trajectory: Trajectory) -> dict[str, float]:
    """The numbers that are averaged over trajectories; what a turn's ``info`` does not tell counts as valid."""
    infos = [turn.info for turn in trajectory.turns]
    return {
        "success": float(trajectory.success),
        "return": trajectory.episode_return,
        "format_valid": sum(bool(info.get("format_is_valid", True)) for info in infos) / len(infos),
        "action_valid": sum(bool(info.get("action_is_valid", True)) for info in infos) / len(infos),
        "turns": float(len(infos)),
        "actions": float(sum(info.get("num_actions", 0) for info in infos)),
        "reply_tokens": float(trajectory.num_reply_tokens),
        "truncated": float(trajectory.truncated),
    }
