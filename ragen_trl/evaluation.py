"""Evaluation on fixed held-out seeds: one function for a model, the random policy and the oracle.

A success rate alone says little: RAGEN's published 0.5B rates are those of a random policy. Every result here
carries n and a 95 % interval, and the same call gives the two rows to put next to it.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import gymnasium
import numpy as np
from tqdm.auto import tqdm

from ragen_envs import AgentTurns, best_action, episode_seeds, random_action, wilson_interval
from ragen_trl.config import StarPOConfig
from ragen_trl.env_pool import EnvPool, env_specs
from ragen_trl.episodes import FAILED
from ragen_trl.errors import UserError
from ragen_trl.policies import ScriptedPolicy
from ragen_trl.rollout import Policy, Start, TurnEnv
from ragen_trl.seeds import evaluation_seeds
from ragen_trl.trajectory import Trajectory


class EvaluationError(UserError, RuntimeError):
    """Nothing was left to evaluate."""


@dataclass(frozen=True)
class EvaluationResult:
    """What came out of ``n`` episodes.

    Attributes:
        n: Episodes, one per evaluation seed.
        success: Share that succeeded; ``success_low`` and ``success_high`` are its Wilson 95 % interval.
        mean_return: Mean undiscounted return; ``return_stderr`` is its standard error.
        format_valid: Share of turns whose reply could be read.
        action_valid: Share of turns without format fault or invalid action.
        turns: Turns per episode.
        actions: Executed actions per episode.
        reply_tokens: Sampled tokens per episode; 0 for scripts.
        truncated: Share of episodes that a limit ended.
        seconds: Wall-clock time.
        left_out: Episodes that are not among the ``n``, because an environment or an API failed in them: they say
            nothing about the policy.
    """

    n: int
    success: float
    success_low: float
    success_high: float
    mean_return: float
    return_stderr: float
    format_valid: float
    action_valid: float
    turns: float
    actions: float
    reply_tokens: float
    truncated: float
    seconds: float
    left_out: int = 0

    def in_words(self) -> str:
        """``success 0.350 [0.310, 0.392] (n=512)``."""
        note = f"n={self.n}, {self.left_out} left out after failures" if self.left_out else f"n={self.n}"
        return f"success {self.success:.3f} [{self.success_low:.3f}, {self.success_high:.3f}] ({note})"

    def as_dict(self) -> dict[str, float]:
        """The fields, for JSON."""
        return asdict(self)


def measure(trajectory: Trajectory) -> dict[str, float]:
    """What is averaged over trajectories, in training and in evaluation."""
    infos = [turn.info for turn in trajectory.turns]
    return {
        "success": float(trajectory.success),
        "return": trajectory.episode_return,
        "format_valid": sum(bool(info["format_is_valid"]) for info in infos) / len(infos),
        "action_valid": sum(bool(info["action_is_valid"]) for info in infos) / len(infos),
        "turns": float(len(infos)),
        "actions": float(sum(info["num_actions"] for info in infos)),
        "reply_tokens": float(trajectory.num_reply_tokens),
        "truncated": float(trajectory.truncated),
    }


def summarise(trajectories: Sequence[Trajectory], seconds: float = 0.0) -> EvaluationResult:
    """Means, rates and intervals over finished episodes."""
    rows = [measure(trajectory) for trajectory in trajectories]
    means = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
    returns = [row["return"] for row in rows]
    low, high = wilson_interval(sum(trajectory.success for trajectory in trajectories), len(rows))
    turns = [turn.info for trajectory in trajectories for turn in trajectory.turns]
    return EvaluationResult(
        n=len(rows),
        success=means["success"],
        success_low=low,
        success_high=high,
        mean_return=means["return"],
        return_stderr=float(np.std(returns, ddof=1) / math.sqrt(len(rows))) if len(rows) > 1 else 0.0,
        format_valid=float(np.mean([info["format_is_valid"] for info in turns])),
        action_valid=float(np.mean([info["action_is_valid"] for info in turns])),
        turns=means["turns"],
        actions=means["actions"],
        reply_tokens=means["reply_tokens"],
        truncated=means["truncated"],
        seconds=seconds,
    )


def evaluate(
    policy: Policy | str,
    env: str | Callable[[], gymnasium.Env[str, str]],
    args: StarPOConfig,
    episodes: int = 512,
    batch_size: int = 128,
    progress: bool = False,
) -> EvaluationResult:
    """Play the first ``episodes`` evaluation seeds.

    Start states, outcomes and the policy's dice depend on the seed alone, so two calls with the same policy agree.

    Args:
        policy: Anything that answers messages, ``"random"`` (uniform over the environment's actions), or
            ``"oracle"``: the best action with the state shown again after every single action, an upper bound on
            what a policy that answers in turns can reach.
        env: A Gymnasium id or a function, as for the trainer.
        args: Turn limits and environment arguments.
        episodes: How many evaluation seeds.
        batch_size: Episodes played side by side.
        progress: Show a progress bar.

    Raises:
        SeedOverlapError: If there are not that many evaluation seeds.
        EvaluationError: If environments, or an API, failed in every episode.
        ValueError: If ``policy`` is another string.
    """
    began = time.perf_counter()
    return judged(play_held_out(policy, env, args, episodes, batch_size, progress), began)


def judged(played: Sequence[Trajectory], began: float) -> EvaluationResult:
    """The result over the episodes in which nothing but the policy failed.

    Args:
        played: All episodes.
        began: When, by ``time.perf_counter``.

    Raises:
        EvaluationError: If none is left.
    """
    whole = [trajectory for trajectory in played if trajectory.limit not in FAILED]
    if not whole:
        reasons = Counter(str(trajectory.turns[-1].info["error"]).strip() for trajectory in played)
        reason, count = reasons.most_common(1)[0]
        raise EvaluationError(
            f"all of {len(played)} episodes failed without the policy, {count} of them with: {reason}"
        )
    return replace(summarise(whole, time.perf_counter() - began), left_out=len(played) - len(whole))


def play_held_out(
    policy: Policy | str,
    env: str | Callable[[], gymnasium.Env[str, str]],
    args: StarPOConfig,
    episodes: int = 512,
    batch_size: int = 128,
    progress: bool = False,
) -> list[Trajectory]:
    """The episodes behind ``evaluate``, in the order of their seeds; same arguments, same errors."""
    player = _scripted(policy) if isinstance(policy, str) else policy
    starts = [Start(seed, *episode_seeds(seed)) for seed in evaluation_seeds(episodes)]
    specs = env_specs(env, args)
    pool = EnvPool(args, _in_single_actions) if isinstance(policy, str) else EnvPool(args)
    trajectories: list[Trajectory] = []
    with tqdm(total=episodes, desc="evaluate", unit="episode", disable=not progress, leave=False) as bar:
        for first in range(0, episodes, batch_size):
            batch = starts[first : first + batch_size]
            trajectories += pool.play(pool.take(specs * len(batch)), player, batch)
            bar.update(len(batch))
    pool.close()
    return trajectories


def _in_single_actions(turns: AgentTurns) -> None:
    """The baselines' own rhythm of turns, with the same budget of actions."""
    turns.max_actions = min(turns.max_actions, turns.max_turns * turns.max_actions_per_turn)
    turns.max_turns, turns.max_actions_per_turn = turns.max_actions, 1


def _scripted(name: str) -> ScriptedPolicy:
    scripts = {"random": _random_reply, "oracle": _oracle_reply}
    if name not in scripts:
        raise ValueError(f"policy is {name!r}; pass 'random', 'oracle' or a policy object")
    return ScriptedPolicy(scripts[name])


def _random_reply(env: TurnEnv, random: np.random.Generator) -> str:
    assert isinstance(env, AgentTurns)
    return env.format_reply([random_action(env, random)])


def _oracle_reply(env: TurnEnv, random: np.random.Generator) -> str:
    assert isinstance(env, AgentTurns)
    return env.format_reply([best_action(env, env.actions_left)])
