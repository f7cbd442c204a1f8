"""Play episodes: environments and a policy go in, whole trajectories come out. No torch here.

All rows that play ask the policy together, then their environments are stepped side by side
(`env_executor.EnvExecutor`). Finished rows leave the batch, and rows that wait take their places. A policy that must
gather over processes says how long the loop goes on (`Policy.goes_on`), so ranks cannot make one another hang.

How an episode ends. *Valued* says whether a critic may value the rest (as far as ``bootstrap`` allows it):

| what happens | ``limit`` | the last turn | valued |
|---|---|---|---|
| the task is over: *terminated*; all others are *truncated* | ``""`` | the environment's reward | no |
| a limit of the environment | ``turns``, ``actions``, ``env`` | the environment's reward | yes |
| the next prompt fills the trajectory's length or the model's context | ``context`` | the same | yes |
| ``step`` raises an exception, or pays a reward like NaN | ``crash`` | traceback in ``info["error"]`` | no |
| ``step`` takes longer than its time limit | ``timeout`` | the same | no |
| the policy has no reply (`Reply.error`) | ``error`` | ``info["error"]``, reward 0; not stepped | no |

A reply that reaches a token limit is cut. That does not end the episode: its tokens are trained, the environment reads
it, and ``cut_penalty`` is added to its reward.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ragen_envs import AgentTurns, EnvError, TextEnv
from ragen_trl.errors import OptionError, UserError
from ragen_trl.rollout.contexts import ContextRule
from ragen_trl.rollout.env_executor import EnvExecutor, Failure
from ragen_trl.rollout.episode import POLICY_FAILED, Episode, Outcome
from ragen_trl.rollout.interfaces import Policy, Renew, Start, TurnEnv
from ragen_trl.trajectory import Trajectory

PATIENCE = 5.0  # seconds for which an environment that cannot be reset is tried again: a server may come back


class EnvResetError(UserError, RuntimeError):
    """Neither an environment nor the new ones that replaced it could start an episode."""


def play(
    envs: Sequence[TurnEnv],
    policy: Policy,
    starts: Sequence[Start],
    max_length: int | None = None,
    executor: EnvExecutor | None = None,
    cut_penalty: float = 0.0,
    renew: Renew | None = None,
    rule: ContextRule | None = None,
    batch_size: int | None = None,
    patience: float = PATIENCE,
) -> list[Trajectory]:
    """Play one episode in each environment; one trajectory each, in order. Threads change none of them.

    Args:
        envs: One environment per episode.
        policy: Answers the user messages.
        starts: One start per episode.
        max_length: Tokens that a trajectory may have after its first prompt. An episode ends truncated with
            ``limit="context"`` if its next prompt would leave no room for a reply, here or in the model's context.
        executor: Runs the environments; by default without a time limit.
        cut_penalty: What is added to the reward of a turn whose reply a token limit cut.
        renew: Called here, without a time limit, with an environment that failed. Without it, a caller must not use
            those of ``envs`` that exceeded a time limit.
        rule: What a policy with tokens reads instead of the whole episode; needs ``AgentTurns``.
        batch_size: Episodes played at the same time at most, which changes rounding only; unset: all.
        patience: Seconds for which an environment that cannot be reset is made and tried again, after ever longer
            pauses.

    Raises:
        ValueError: If the numbers of environments and starts differ.
        OptionError: If a first prompt alone fills the context.
        EnvResetError: If neither an environment nor the one that ``renew`` makes instead can be reset.
    """
    executor = executor or EnvExecutor()
    episodes: list[Episode] = []
    playing: list[int] = []
    policy.begin([start.sampling_seed for start in starts])
    while policy.goes_on(len(episodes) < len(envs) or bool(playing)):
        new = slice(len(episodes), len(episodes) + (batch_size or len(envs)) - len(playing))
        playing += range(len(envs))[new]
        episodes += begun(envs[new], starts[new], executor, renew, rule, patience)
        requests = []
        for row in playing:
            request = episodes[row].request(row, policy, max_length)
            if request.room is None or request.room > 0:
                requests.append(request)
            elif episodes[row].turns:
                episodes[row].finish(terminated=False, truncated=True, limit="context")
            else:
                raise OptionError(
                    f"the first prompt has {len(request.new_ids)} tokens and leaves no room for a reply (the model's "
                    f"context: {policy.max_context}); shorten the instruction, raise max_completion_length, or take "
                    "another model"
                )
        answered = []
        for request, reply in zip(requests, policy.reply(requests), strict=True):
            if reply.error is None:
                answered.append((request, reply))
            else:
                episodes[request.row].fail(request, reply, 0.0, POLICY_FAILED, reply.error)
        outcomes = executor.run([partial(_step, episodes[request.row], reply.text) for request, reply in answered])
        for (request, reply), outcome in zip(answered, outcomes, strict=True):
            episode, penalty = episodes[request.row], cut_penalty if reply.cut else 0.0
            if isinstance(outcome, Failure):
                episode.fail(request, reply, penalty, outcome.kind, outcome.text)
                if renew is not None:
                    executor.attempt(partial(renew, episode.env, outcome))  # for later episodes; a failure is logged
            else:
                episode.answer(request, reply, outcome, penalty)
        policy.end([row for row in playing if episodes[row].done is not None])
        playing = [row for row in playing if episodes[row].done is None]
    return [episode.trajectory(policy.chat, policy.max_context) for episode in episodes]


def begun(
    envs: Sequence[TurnEnv],
    starts: Sequence[Start],
    executor: EnvExecutor,
    renew: Renew | None = None,
    rule: ContextRule | None = None,
    patience: float = PATIENCE,
) -> list[Episode]:
    """Reset every environment. One that fails is replaced and tried again, after longer and longer pauses."""
    episodes = []
    outcomes = executor.run([partial(_reset, env, start) for env, start in zip(envs, starts, strict=True)])
    for env, start, outcome in zip(envs, starts, outcomes, strict=True):
        pause = waited = 0.0
        while renew is not None and isinstance(outcome, Failure) and waited <= patience:
            if isinstance(outcome.error, EnvError) and isinstance(outcome.error, (ValueError, TypeError)):
                break  # a wrong option, which waiting does not mend
            time.sleep(pause)
            waited, pause = waited + pause, min(2 * pause + 1, 30.0)
            made = executor.attempt(partial(renew, env, outcome))
            if not isinstance(made, Failure):
                env = made
                (outcome,) = executor.run([partial(_reset, env, start)])
        if isinstance(outcome, Failure):
            raise EnvResetError(
                f"no episode could start at reset(seed={start.seed}) ({outcome.kind}); if the environment must stay in "
                f"the thread that made it, set env_workers=0:\n{outcome.text}"
            ) from outcome.error
        episodes.append(Episode(start, env, outcome, rule))
    return episodes


def _reset(env: TurnEnv, start: Start) -> Outcome:
    options = dict(start.options)
    game = env.unwrapped if isinstance(env, AgentTurns) else env
    if isinstance(game, TextEnv) and game.option_names is not None:  # it refuses what it does not know
        options = {name: value for name, value in options.items() if name in game.option_names}
    if start.outcome_seed is not None:
        options["outcome_seed"] = start.outcome_seed
    try:
        return Outcome.of(*env.reset(seed=start.seed, options=options or None))
    except Exception as error:
        error.add_note(f"in {_name(env)} at reset(seed={start.seed})")
        raise


def _step(episode: Episode, reply: str) -> Outcome:
    try:
        observation, reward, terminated, truncated, info = episode.env.step(reply)
        seen, over, cut = Outcome.of(observation, info), bool(terminated), bool(truncated)
        return replace(seen, reward=float(reward), terminated=over, truncated=cut)
    except Exception as error:
        turn = f"turn {len(episode.turns) + 1} after reset(seed={episode.start.seed})"
        error.add_note(f"in {_name(episode.env)} at {turn}")
        raise


def _name(env: TurnEnv) -> str:
    return type(getattr(env, "unwrapped", env)).__name__
