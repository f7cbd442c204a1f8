"""Demonstrations by any policy, in the tokens of a local model, for `fine_tuning.warm_start`.

A policy that only writes text (`ApiPolicy`, a script, a person) plays. Messages and replies are then tokenised with the
*local* chat, turn by turn, and contexts are built again where ``window_turns`` or ``context`` says so: the examples
look exactly like rollouts of the model that learns.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import gymnasium

from ragen_envs import ToolTurns
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import OptionError
from ragen_trl.evaluation.evaluator import play_in_batches
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.contexts import ContextRule, context_rule
from ragen_trl.rollout.environments import make_turns
from ragen_trl.rollout.episode import FAILED
from ragen_trl.rollout.interfaces import Policy, Start
from ragen_trl.rollout.seeds import EVALUATION_END
from ragen_trl.trajectory import Trajectory, Turn

logger = logging.getLogger(__name__)


def demonstrations_from(
    policy: Policy,
    env: str | Callable[[], gymnasium.Env[str, str]],
    args: StarPOConfig,
    chat: Chat,
    seeds: Sequence[int],
    keep: Callable[[Trajectory], bool] = lambda trajectory: trajectory.success,
) -> list[Trajectory]:
    """Play one episode per seed and keep some of them, tokenised for a local model.

    An `ApiPolicy` with a cache makes this resumable: repeated with the same arguments, it does not ask twice.

    Args:
        policy: The policy that plays. Its own tokens, if it has any, are replaced.
        env: A Gymnasium id or a function, as for the trainer.
        args: Limits, format and contexts. ``args.seed`` fixes the outcome seeds and the sampling seeds.
        chat: The chat of the model that will learn.
        seeds: Seeds of the start states; none of them may be for evaluation.
        keep: Which episodes to keep. Those that a failure of the policy or of the environment ended are never kept.

    Returns:
        The kept episodes, in order, without log-probabilities. Episodes that the local model could not have played (a
        reply without the forced prefix or a token, more than ``max_completion_length`` tokens) are left out and logged.
    """
    if min(seeds, default=EVALUATION_END) < EVALUATION_END:
        raise OptionError(
            f"seed {min(seeds)} is for evaluation, which demonstrations must not show; use seeds from {EVALUATION_END}"
        )
    turns = make_turns(env, args)
    turns.close()
    if isinstance(turns, ToolTurns):
        raise OptionError(
            "texts of another policy have no tool calls in the form of this model; use warm_start, whose oracle writes "
            "them, or let the policy play in text: env=lambda: AgentTurns(gymnasium.make(...))"
        )
    rule = context_rule(args)
    starts = [Start.drawn(seed, (args.seed, seed)) for seed in seeds]
    told = [
        _in_tokens_of(chat, one, rule, args.max_completion_length)
        for batch in play_in_batches(policy, env, args, starts)
        for one in batch
        if one.limit not in FAILED and keep(one)
    ]
    fitting = [one for one in told if one is not None]
    if len(fitting) < len(told):
        logger.warning(
            "%d of %d episodes left out: a reply without %r or without a token, or more than %s tokens",
            *(len(told) - len(fitting), len(told), chat.reply_prefix, args.max_completion_length),
        )
    return fitting


def _in_tokens_of(
    chat: Chat, trajectory: Trajectory, rule: ContextRule | None, max_length: int | None
) -> Trajectory | None:
    """The same episode with the token ids that a local chat gives its messages, or ``None`` if it could not play it.

    Text before the forced prefix of a reply (a greeting, blanks) is dropped: the environment ignored it, and the model
    that learns cannot write it. A reply that its limit cut has no end-of-turn token, so the model does not learn one.
    """
    turns: list[Turn] = []
    length = 0
    last: int | None = None  # the context's last token
    for turn in trajectory.turns:
        begin = turn.reply.find(chat.reply_prefix)
        if begin < 0:
            return None
        reply = turn.reply[begin:]
        rebuilt = None
        if last is None:
            prompt_ids = chat.start(turn.observation, pictures=turn.pictures)
        else:
            prompt_ids = chat.extend(last, turn.observation, turn.pictures)
            length += len(prompt_ids)
            if rule is not None:
                rebuilt = rule.rebuilt(chat, turns, turn.opening, turn.observation)
        context_ids, new_ids = rebuilt or (None, tuple(prompt_ids))
        reply_ids = chat.encode_reply(reply)
        if turn.cut and chat.end_of_turn_id is not None:
            del reply_ids[-1]
        length += len(reply_ids)
        if not reply_ids or (max_length is not None and length > max_length):
            return None
        own = replace(turn, context_ids=context_ids, prompt_ids=new_ids, reply_ids=tuple(reply_ids), logprobs=())
        turns.append(replace(own, reply=reply))
        last = reply_ids[-1]
    return replace(trajectory, turns=tuple(turns), next_prompt_ids=(), next_context_ids=None)
