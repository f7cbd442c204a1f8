"""Demonstrations by a policy that writes text, in the tokens of a local model, for `fine_tuning.warm_start`.

A model behind an API, a script or a person plays, and the loop that trains later hears it in the tokens of the model
that learns: the examples look exactly like rollouts of that model.
"""

import logging
from collections.abc import Callable, Sequence

import gymnasium

from ragen_envs import ToolTurns
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import OptionError
from ragen_trl.evaluation.evaluator import play_in_batches
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.environments import make_turns
from ragen_trl.rollout.episode import FAILED
from ragen_trl.rollout.interfaces import Policy, Reply, Request, Start
from ragen_trl.rollout.seeds import EVALUATION_END
from ragen_trl.rollout.teacher import Listening
from ragen_trl.trajectory import Trajectory

logger = logging.getLogger(__name__)


class Heard(Listening):
    """A policy of texts, whose replies get the token ids that a local chat gives them.

    Text before the forced prefix of a reply (a greeting, blanks) is dropped: the environment would ignore it, and the
    model that learns cannot write it. A reply without that prefix ends its episode.
    """

    def __init__(self, player: Policy, chat: Chat) -> None:
        super().__init__(player)
        if player.chat is not None:
            raise OptionError("the policy has tokens of its own; let it play behind an API, such as a vLLM server")
        self.chat, self._prefix = chat, chat.reply_prefix

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """As `Policy.reply`."""
        return [self._heard(reply) for reply in super().reply(requests)]

    def _heard(self, reply: Reply) -> Reply:
        assert self.chat is not None
        begin = reply.text.find(self._prefix)
        text = reply.text[max(0, begin) :]
        ids = self.chat.encode_reply(text) if begin >= 0 else []
        if reply.cut and self.chat.end_of_turn_id is not None:
            del ids[-1:]  # the model does not learn to end there
        error = reply.error or (None if ids else f"a reply without {self._prefix!r} or without a token")
        return Reply(text, tuple(ids), cut=reply.cut, error=error)


def demonstrations_from(
    policy: Policy,
    env: str | Callable[[], gymnasium.Env[str, str]],
    args: StarPOConfig,
    chat: Chat,
    seeds: Sequence[int],
    keep: Callable[[Trajectory], bool] = lambda trajectory: trajectory.success,
) -> list[Trajectory]:
    """Play one episode per seed and keep some of them, in the tokens of a local model.

    An `ApiPolicy` with a cache makes this resumable: repeated with the same arguments, it does not ask twice.

    Args:
        policy: The policy that plays. It reads and writes text.
        env: A Gymnasium id or a function, as for the trainer.
        args: Limits, format and contexts. ``args.seed`` fixes the outcome seeds and the sampling seeds.
        chat: The chat of the model that will learn.
        seeds: Seeds of the start states; none of them may be for evaluation.
        keep: Which episodes to keep. Those that a failure of the policy or of the environment ended are never kept.

    Returns:
        The kept episodes, in order, without log-probabilities. Episodes that failed are logged: also those with a reply
        that the local model could not have written, without the forced prefix or a token.
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
    starts = [Start.drawn(seed, (args.seed, seed)) for seed in seeds]
    played = [one for batch in play_in_batches(Heard(policy, chat), env, args, starts) for one in batch]
    fine = [one for one in played if one.limit not in FAILED]
    if len(fine) < len(played):
        reason = next(one.turns[-1].info["error"] for one in played if one.limit in FAILED)
        logger.warning("%d of %d episodes failed and are left out: %s", len(played) - len(fine), len(played), reason)
    return [one for one in fine if keep(one)]
