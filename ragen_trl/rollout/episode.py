"""An episode in progress: what the environment said last, the turns so far, and how it ended. No torch here.

Who is asked when is the business of ``loop.py``, whose docstring has the table of all endings.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ragen_envs import AgentTurns
from ragen_trl.rollout.env_executor import FAILURES
from ragen_trl.rollout.sliding_window import window_context
from ragen_trl.trajectory import Trajectory, Turn

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat
    from ragen_trl.rollout.interfaces import Reply, Request, Start, TurnEnv

POLICY_FAILED = "error"
"""`Trajectory.limit` where the policy had no reply."""
FAILED = (*FAILURES, POLICY_FAILED)
"""How an episode ends that no policy is to blame for: its environment failed, or the API behind the policy."""

# Of the keys of ``AgentTurns``, those that speak of one turn. Nobody read the reply, so no fault of it is known.
_NOTHING_DONE: dict[str, Any] = {
    "success": False,
    "actions": (),
    "invalid_actions": (),
    "surplus_actions": (),
    "num_actions": 0,
    "format_is_valid": True,
    "action_is_valid": True,
    "action_is_effective": False,
    "env_reward": 0.0,
    "format_penalty": 0.0,
    "action_rewards": (),
}


@dataclass(frozen=True)
class Outcome:
    """What an environment answered to ``reset`` or ``step``."""

    observation: str
    info: dict[str, Any]
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False

    @property
    def state(self) -> str:
        """The environment's own observation, as ``AgentTurns`` reports it, or all that was shown."""
        return str(self.info.get("state", self.observation))


@dataclass
class Episode:
    """One row of a rollout, while it is played.

    Attributes:
        start: How it began.
        env: What it is played in.
        last: The environment's last answer, at first to ``reset``.
        window: Turns that the policy sees at most; ``None``: all.
        turns: The turns so far.
        openings: For each of them, and for the next one, its message as a conversation would begin with it; only kept
            for a window.
        length: Tokens of those turns.
        context: Tokens that the policy has read or written, of those that its context still holds.
        cost: Tokens that the next message takes of the trajectory's budget: those it would have in a context that only
            grows, so that a window changes no episode's length.
        done: The last three fields of `Trajectory` that say how it ended, or ``None`` while it goes on.
    """

    start: "Start"
    env: "TurnEnv"
    last: Outcome
    window: int | None = None
    turns: list[Turn] = field(default_factory=list)
    openings: list[str] = field(default_factory=list)
    length: int = 0
    context: int = 0
    cost: int = 0
    done: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self._keep_opening()

    def next_ids(self, chat: "Chat | None") -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
        """A context that is built anew, if that is due, and the tokens of the environment's last answer behind it."""
        if chat is None:
            return None, ()
        if not self.turns:
            opening = tuple(chat.start(self.last.observation))
            self.cost = len(opening)
            return None, opening
        last = self.turns[-1]
        message = tuple(chat.extend((last.reply_ids or last.prompt_ids)[-1], self.last.observation))
        self.cost = len(message)
        if self.window is None or len(self.turns) < self.window:
            return None, message
        first = len(self.turns) - self.window + 1
        return window_context(chat, self.turns[first:], self.openings[first], self.last.observation)

    def answer(self, request: "Request", reply: "Reply", outcome: Outcome, penalty: float) -> None:
        """Record a turn that the environment answered; ``penalty`` is added to what it paid."""
        info = {**outcome.info, "cut_penalty": penalty} if penalty else outcome.info
        self._record(request, reply, outcome.reward + penalty, info)
        self.last = outcome
        self._keep_opening()
        if outcome.terminated or outcome.truncated:
            self.finish(outcome.terminated, outcome.truncated, str(outcome.info.get("limit", "")))

    def fail(self, request: "Request", reply: "Reply", reward: float, limit: str, error: str) -> None:
        """Record a turn that no environment answered, as the last one."""
        info = {**self.last.info, **{key: value for key, value in _NOTHING_DONE.items() if key in self.last.info}}
        self._record(request, reply, reward, {**info, "limit": limit, "error": error})
        self.finish(terminated=False, truncated=True, limit=limit)

    def finish(self, terminated: bool, truncated: bool, limit: str) -> None:
        """End the episode."""
        self.done = {"terminated": terminated, "truncated": truncated, "limit": limit}

    def trajectory(self, chat: "Chat | None", max_context: int | None) -> Trajectory:
        """The finished episode. What would have been shown next is cut to the model's context."""
        assert self.done is not None
        goes_on = self.done["truncated"] and not self.done["terminated"]
        seen = self.done["limit"] not in FAILED  # else there is no answer to show
        room = None if max_context is None else max(0, max_context - self.context)
        return Trajectory(
            turns=tuple(self.turns),
            seed=self.start.seed,
            outcome_seed=self.start.outcome_seed,
            next_prompt_ids=(self.next_ids(chat)[1] if goes_on and seen else ())[:room],
            **self.done,
        )

    def _record(self, request: "Request", reply: "Reply", reward: float, info: dict[str, Any]) -> None:
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
        )
        self.turns.append(turn)
        self.length += self.cost + len(reply.ids)
        read = self.context if request.context_ids is None else len(request.context_ids)
        self.context = read + len(request.new_ids) + len(reply.ids)

    def _keep_opening(self) -> None:
        if self.window is None:
            return
        if not isinstance(self.env, AgentTurns):
            raise TypeError(
                f"window_turns is {self.window}, and {type(self.env).__name__} is no AgentTurns, which says how a "
                "conversation begins at a later turn; wrap the environment in one, or leave window_turns unset"
            )
        self.openings.append(self.env.opening)
