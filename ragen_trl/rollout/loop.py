"""Play episodes: environments on one side, a policy on the other, whole trajectories out. No torch here.

All unfinished rows ask the policy together, their environments are stepped side by side (`env_executor.EnvExecutor`),
and rows that finish leave the batch. Nothing is gathered across processes here; a policy that must do so says how long
(`Policy.goes_on`), so that ranks with different numbers of turns cannot hang one another.

How an episode ends. *Valued* says whether a critic may say what the rest was worth (as far as ``bootstrap`` lets it):

| what happens | ``limit`` | the last turn | valued |
|---|---|---|---|
| the task is over: *terminated*; all others are *truncated* | ``""`` | as the environment paid it | no |
| a limit of the environment | ``turns``, ``actions``, ``env`` | as the environment paid it | yes |
| the next prompt fills the trajectory's length or the model's context | ``context`` | as paid | yes |
| ``step`` raises an exception | ``crash`` | traceback in ``info["error"]``, `Penalties.failure` | no |
| ``step`` takes longer than its time limit | ``timeout`` | the same | no |
| the policy has no reply (`Reply.error`) | ``error`` | ``info["error"]``, reward 0; nobody stepped | no |

A reply that reaches its own limit of tokens, the trajectory's or the model's is cut, which ends nothing: its tokens are
trained, the environment reads it, and ``Penalties.cut`` is added to its reward. A first prompt without room for a reply
and an environment that cannot be reset are errors, because there is no turn to record.

Left out: replies to rows that are ready while others still wait for their environments. Which rows are computed
together would hang on timing, and so would the last bits of their probabilities; policies that gather over processes
could not do it at all.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ragen_trl.errors import UserError
from ragen_trl.rollout.env_executor import EnvExecutor, Failure
from ragen_trl.rollout.episode import POLICY_FAILED, Episode, Outcome
from ragen_trl.rollout.interfaces import Penalties, Policy, Renew, Reply, Request, Start, TurnEnv
from ragen_trl.trajectory import Trajectory

if TYPE_CHECKING:
    pass
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragen_trl.rollout.interfaces import Renew, Start, TurnEnv


class ContextTooShortError(UserError, ValueError):
    """The first prompt alone fills the context."""


def play(
    envs: Sequence[TurnEnv],
    policy: Policy,
    starts: Sequence[Start],
    max_length: int | None = None,
    executor: EnvExecutor | None = None,
    penalties: Penalties = Penalties(),
    renew: Renew | None = None,
    window: int | None = None,
) -> list[Trajectory]:
    """Play one episode in each environment.

    The trajectories do not depend on how many threads step the environments.

    Args:
        envs: One environment per episode.
        policy: Answers the user messages.
        starts: One start per episode.
        max_length: Tokens a trajectory may have after its first prompt. An episode whose next prompt would leave no
            room for a reply, here or in the model's context, ends truncated with ``limit="context"``; a reply that
            would run over is cut.
        executor: Runs the environments; by default without a time limit.
        penalties: What is taken off for cut replies and for failures of the environment.
        renew: Called with an environment that failed, which is not used again here. Without it nothing takes its
            place, and who passes a time limit must not use ``envs`` that ran over it.
        window: Turns that a policy with tokens sees at most, the one to be answered included; needs ``AgentTurns``.
            Unset: all. What is built anew then, and how it is trained: ``segments.py``.

    Returns:
        One trajectory per environment, in order.

    Raises:
        ValueError: If the numbers of environments and starts differ.
        ContextTooShortError: If a first prompt alone fills the context.
        EnvResetError: If an environment cannot be reset, nor the one that ``renew`` puts in its place.
    """
    if len(envs) != len(starts):
        raise ValueError(f"{len(envs)} environments for {len(starts)} starts; give one start per environment")
    executor = executor or EnvExecutor()
    episodes = begin(envs, starts, executor, renew, None if policy.chat is None else window)
    policy.begin([start.sampling_seed for start in starts])
    playing = list(range(len(episodes)))
    while policy.goes_on(bool(playing)):
        requests = []
        for row in playing:
            request = _request(row, episodes[row], policy, max_length)
            if request.room is None or request.room > 0:
                requests.append(request)
            else:
                _end_without_room(episodes[row], request, policy.max_context)
        _take_turns(episodes, list(zip(requests, policy.reply(requests), strict=True)), executor, penalties, renew)
        policy.end([row for row in playing if episodes[row].done is not None])
        playing = [row for row in playing if episodes[row].done is None]
    return [episode.trajectory(policy.chat, policy.max_context) for episode in episodes]


def _step(env: TurnEnv, reply: str) -> Outcome:
    observation, reward, terminated, truncated, info = env.step(reply)
    return Outcome(observation, dict(info), float(reward), bool(terminated), bool(truncated))


def _request(row: int, episode: Episode, policy: Policy, max_length: int | None) -> Request:
    context_ids, new_ids = episode.next_ids(policy.chat)
    read = episode.context if context_ids is None else len(context_ids)
    rooms = [] if policy.max_context is None else [policy.max_context - read - len(new_ids)]
    if max_length is not None:
        first = len(episode.turns[0].prompt_ids) if episode.turns else len(new_ids)
        rooms.append(max_length - (episode.length + episode.cost - first))
    return Request(row, episode.last.observation, new_ids, episode.env, min(rooms, default=None), context_ids)


def _end_without_room(episode: Episode, request: Request, max_context: int | None) -> None:
    if not episode.turns:
        raise ContextTooShortError(
            f"the first prompt has {len(request.new_ids)} tokens and leaves no room for a reply (model's context: "
            f"{max_context}); shorten the instruction, raise max_completion_length, or take another model"
        )
    episode.finish(terminated=False, truncated=True, limit="context")


def _take_turns(
    episodes: Sequence[Episode],
    replies: Sequence[tuple[Request, Reply]],
    executor: EnvExecutor,
    penalties: Penalties,
    renew: Renew | None,
) -> None:
    answered = []
    for request, reply in replies:
        if reply.error is None:
            answered.append((request, reply))
        else:
            episodes[request.row].fail(request, reply, 0.0, POLICY_FAILED, reply.error)
    outcomes = executor.run([partial(_step, request.env, reply.text) for request, reply in answered])
    for (request, reply), outcome in zip(answered, outcomes, strict=True):
        episode, penalty = episodes[request.row], penalties.cut if reply.cut else 0.0
        if isinstance(outcome, Failure):
            episode.fail(request, reply, penalties.failure + penalty, outcome.kind, outcome.text)
            if renew is not None:
                executor.run([partial(renew, episode.env, outcome)])  # for later episodes; a failure is logged
        else:
            episode.answer(request, reply, outcome, penalty)



# Seconds before an environment that could not be reset gets a successor: a server may be back by then.
PAUSES = (0.0, 1.0, 4.0)


class EnvResetError(UserError, RuntimeError):
    """An environment, and new ones in its place, could not start an episode."""


def begin(
    envs: Sequence[TurnEnv], starts: Sequence[Start], executor: EnvExecutor, renew: Renew | None, window: int | None
) -> list[Episode]:
    """Reset every environment; one that fails gets successors and further chances, after growing pauses."""
    played = list(envs)
    outcomes = executor.run([partial(_reset, env, start) for env, start in zip(envs, starts, strict=True)])
    for pause in PAUSES:
        failures = {row: outcome for row, outcome in enumerate(outcomes) if isinstance(outcome, Failure)}
        if not failures or renew is None:
            break
        time.sleep(pause)
        for row, failure in failures.items():
            (made,) = executor.run([partial(renew, played[row], failure)])
            if not isinstance(made, Failure):  # else the same one is reset again, with which nothing else went wrong
                played[row] = made
        again = executor.run([partial(_reset, played[row], starts[row]) for row in failures])
        for row, outcome in zip(list(failures), again, strict=True):
            outcomes[row] = outcome
    episodes = []
    for env, start, outcome in zip(played, starts, outcomes, strict=True):
        if isinstance(outcome, Failure):
            tries = "" if renew is None else f" in {1 + len(PAUSES)} attempts"
            raise EnvResetError(
                f"no episode could start at reset(seed={start.seed}){tries} ({outcome.kind}); an environment that has "
                f"to stay in the thread that made it needs env_workers=0:\n{outcome.text}"
            ) from outcome.error
        episodes.append(Episode(start, env, outcome, window))
    return episodes


def _reset(env: "TurnEnv", start: "Start") -> Outcome:
    options = None if start.outcome_seed is None else {"outcome_seed": start.outcome_seed}
    observation, info = env.reset(seed=start.seed, options=options)
    return Outcome(observation, dict(info))
