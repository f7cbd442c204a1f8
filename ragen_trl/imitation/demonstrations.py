"""Demonstrations by any policy, in the tokens of a local model, for `fine_tuning.warm_start`.

A policy that only writes text (`ApiPolicy`, a script, a person) plays. Messages and replies are then tokenised with the
*local* chat, turn by turn and append-only, so that the examples look exactly like rollouts of the model that learns.
The episodes are not played again. Left out: repairing replies that the environment could not read, and telling good
turns of failed episodes from bad ones.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import gymnasium

from ragen_envs import AgentTurns, ToolTurns
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.config.validation import WindowError
from ragen_trl.errors import UserError
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.env_pool import EnvPool, env_specs
from ragen_trl.rollout.episode import FAILED
from ragen_trl.rollout.interfaces import Policy, Start
from ragen_trl.rollout.seeds import EVALUATION_END, SeedOverlapError
from ragen_trl.trajectory import Trajectory, Turn

logger = logging.getLogger(__name__)


class ToolCallsError(UserError, ValueError):
    """Episodes with tool calls cannot be given the tokens of another model."""


def succeeded(trajectory: Trajectory) -> bool:
    """Whether an episode succeeded: the default of `demonstrations_from` for what to keep."""
    return trajectory.success


def demonstrations_from(
    policy: Policy,
    env: str | Callable[[], gymnasium.Env[str, str]],
    args: StarPOConfig,
    chat: Chat,
    seeds: Sequence[int],
    keep: Callable[[Trajectory], bool] = succeeded,
    batch_size: int = 64,
) -> list[Trajectory]:
    """Play one episode per seed and keep some of them, tokenised for a local model.

    An `ApiPolicy` with a cache makes this resumable: repeated with the same arguments, it does not ask twice.

    Args:
        policy: The policy that plays. Its own tokens, if it has any, are replaced.
        env: A Gymnasium id or a function, as for the trainer.
        args: Limits and format. ``args.seed`` fixes the outcome seeds and the sampling seeds.
        chat: The chat of the model that will learn.
        seeds: Seeds of the start states; none of them may be for evaluation.
        keep: Which episodes to keep. Those that a failure of the policy or of the environment ended are never kept.
        batch_size: Number of episodes played side by side.

    Returns:
        The kept episodes, in order, without log-probabilities. Left out and logged are those that the local model could
        not have played: a reply has no forced prefix, or more tokens come after the first prompt than may.

    Raises:
        SeedOverlapError, ToolCallsError, WindowError: If a seed is for evaluation, the environment has tools, or the
            learner's contexts are rebuilt.
    """
    _refuse_windows(args)
    if min(seeds, default=EVALUATION_END) < EVALUATION_END:
        raise SeedOverlapError(
            f"seed {min(seeds)} is for evaluation, which demonstrations must not show; use seeds from {EVALUATION_END}"
        )
    specs, pool, played = env_specs(env, args), EnvPool(args), list[Trajectory]()
    _refuse_tools(pool.take(specs)[0])
    for first in range(0, len(seeds), batch_size):
        starts = [Start.drawn(seed, (args.seed, seed)) for seed in seeds[first : first + batch_size]]
        played += pool.play(pool.take(specs * len(starts)), policy, starts)
    pool.close()
    kept = [trajectory for trajectory in played if trajectory.limit not in FAILED and keep(trajectory)]
    told = [in_tokens_of(chat, trajectory) for trajectory in kept]
    fitting = [trajectory for trajectory in told if trajectory and _fits(trajectory, args.max_completion_length)]
    if len(fitting) < len(kept):
        logger.warning(
            "%d of %d episodes left out: a reply without %r, or more than %s tokens",
            *(len(kept) - len(fitting), len(kept), chat.reply_prefix, args.max_completion_length),
        )
    return fitting


def in_tokens_of(chat: Chat, trajectory: Trajectory) -> Trajectory | None:
    """The same episode with the token ids that a local chat gives its messages.

    Text before the forced prefix of a reply (a greeting, blanks) is dropped: the environment ignored it, and the model
    that learns cannot write it. A reply that its limit cut has no end-of-turn token, so the model does not learn one.

    Args:
        chat: The chat of the local model.
        trajectory: An episode of any policy; only its texts are read.

    Returns:
        The episode, or ``None`` if a reply does not contain the prefix.
    """
    turns: list[Turn] = []
    last: int | None = None  # the context's last token
    for turn in trajectory.turns:
        begin = turn.reply.find(chat.reply_prefix)
        if begin < 0:
            return None
        reply = turn.reply[begin:]
        if last is None:
            prompt_ids = chat.start(turn.observation, pictures=turn.pictures)
        else:
            prompt_ids = chat.extend(last, turn.observation, turn.pictures)
        reply_ids = chat.encode_reply(reply)
        if turn.cut and chat.end_of_turn_id is not None:
            del reply_ids[-1]
        ids, reply_tokens = tuple(prompt_ids), tuple(reply_ids)
        turns.append(replace(turn, prompt_ids=ids, reply_ids=reply_tokens, logprobs=(), reply=reply, context_ids=None))
        last = (reply_ids or prompt_ids)[-1]
    return replace(trajectory, turns=tuple(turns), next_prompt_ids=(), next_context_ids=None)


def _refuse_windows(args: StarPOConfig) -> None:
    for name in ("window_turns", "context"):
        if getattr(args, name) is not None:
            raise WindowError(
                f"{name} is {getattr(args, name)!r}, but demonstrations of another policy hold whole episodes; leave "
                "it unset, or use warm_start, whose oracle plays in the learner's contexts"
            )


def _refuse_tools(turns: AgentTurns) -> None:
    if isinstance(turns, ToolTurns):
        raise ToolCallsError(
            "texts of another policy have no tool calls in the form of this model; use warm_start, whose oracle writes "
            "them, or let the policy play in text: env=lambda: AgentTurns(gymnasium.make(...))"
        )


def _fits(trajectory: Trajectory, max_length: int | None) -> bool:
    return max_length is None or len(trajectory.token_ids) - len(trajectory.turns[0].prompt_ids) <= max_length
