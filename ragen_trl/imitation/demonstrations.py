"""Demonstrations by any policy, in the tokens of a local model: what `fine_tuning.warm_start` learns from.

A policy that only writes text (`ApiPolicy`, a script, a person) plays; what it was shown and what it wrote is then
tokenised with the *local* chat, turn by turn and append-only, so that the examples look exactly like the rollouts of
the model that learns. The episodes are not played again. Left out: repairing replies that the environment could not
read, and telling good turns of failed episodes from bad ones.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import gymnasium

from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.env_pool import EnvPool, env_specs
from ragen_trl.rollout.episode import FAILED
from ragen_trl.rollout.interfaces import Policy, Start
from ragen_trl.rollout.seeds import EVALUATION_END, SeedOverlapError
from ragen_trl.trajectory import Trajectory, Turn

logger = logging.getLogger(__name__)



def succeeded(trajectory: Trajectory) -> bool:
    """Whether it succeeded: what `demonstrations_from` keeps unless told otherwise."""
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
    """Play an episode a seed and keep some, tokenised for a local model.

    An `ApiPolicy` with a cache makes it resumable: repeated with the same arguments, it asks for nothing twice.

    Args:
        policy: Who plays. Its own tokens, if it has any, are replaced.
        env: A Gymnasium id or a function, as for the trainer.
        args: Limits and format; ``args.seed`` draws outcomes and the policy's dice.
        chat: Of the model that shall learn.
        seeds: Start states, none of which evaluation uses.
        keep: Which episodes to keep; ``lambda trajectory: True`` for all. Those that a failure of the policy or the
            environment ended are never kept.
        batch_size: Episodes played side by side.

    Returns:
        The kept episodes, in order, without log-probabilities. Left out, and logged, are those that the local model
        could not have played: a reply without the forced prefix, or more than ``max_completion_length`` tokens after
        the first prompt.

    Raises:
        SeedOverlapError: If a seed is one of evaluation.
    """
    if min(seeds, default=EVALUATION_END) < EVALUATION_END:
        raise SeedOverlapError(
            f"seed {min(seeds)} is for evaluation, which demonstrations must not show; use seeds from {EVALUATION_END}"
        )
    specs, pool = env_specs(env, args), EnvPool(args)
    played: list[Trajectory] = []
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

    What a reply has before the forced prefix (a greeting, blanks) is dropped: the environment ignored it, and the model
    that learns cannot write it. A reply that was cut by its limit has no end-of-turn token, so none is learnt.

    Args:
        chat: Of the local model.
        trajectory: Played by anyone; only its texts are read.

    Returns:
        ``None`` if a reply does not have the prefix anywhere.
    """
    turns: list[Turn] = []
    last: int | None = None  # the context's last token
    for turn in trajectory.turns:
        begin = turn.reply.find(chat.reply_prefix)
        if begin < 0:
            return None
        reply = turn.reply[begin:]
        prompt_ids = chat.start(turn.observation) if last is None else chat.extend(last, turn.observation)
        reply_ids = chat.encode_reply(reply)
        if turn.cut and chat.end_of_turn_id is not None:
            del reply_ids[-1]
        turns.append(replace(turn, prompt_ids=tuple(prompt_ids), reply_ids=tuple(reply_ids), logprobs=(), reply=reply))
        last = (reply_ids or prompt_ids)[-1]
    return replace(trajectory, turns=tuple(turns), next_prompt_ids=())


def _fits(trajectory: Trajectory, max_length: int | None) -> bool:
    return max_length is None or len(trajectory.token_ids) - len(trajectory.turns[0].prompt_ids) <= max_length
