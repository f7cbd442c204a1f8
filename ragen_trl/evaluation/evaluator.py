"""Evaluation on fixed held-out seeds: one function for a model, the random policy and the oracle.

A success rate alone says little: RAGEN's published 0.5B rates are a random policy's. Every result here has n and a 95 %
interval, and the same function gives the two rows to compare it with. Episodes in which an environment or an API failed
say nothing about the policy: they are left out of every rate, and counted.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import fsum, sqrt
from statistics import fmean
from typing import Any

from ragen_envs import episode_seeds
from ragen_trl.algorithms.intervals import paired_difference, pass_at_k, rate_interval, ratio_variance, with_interval
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import UserError
from ragen_trl.policies.scripted import baseline_policy, in_single_actions
from ragen_trl.rollout.environments import EnvLike, EnvPool, env_specs
from ragen_trl.rollout.episode import FAILED, measure
from ragen_trl.rollout.interfaces import Policy, Start
from ragen_trl.rollout.seeds import evaluation_seeds
from ragen_trl.trajectory import Trajectory

BATCH_SIZE = 128  # episodes that a process plays at a time without ``rollout_batch_size``
_MEANS = ("success", "turns", "actions", "reply_tokens", "truncated")  # over episodes
Row = dict[str, Any]
"""An episode, as `episode_row` describes it."""


@dataclass(frozen=True)
class EvaluationResult:
    """The result of ``n`` episodes.

    Attributes:
        n: Episodes.
        success: Share of episodes that succeeded; ``success_low``, ``success_high``: its interval (`rate_interval`).
        mean_return: Mean undiscounted return; ``return_stderr`` is its standard error, over start states.
        format_valid: Share of turns whose reply could be read.
        action_valid: Share of turns without format fault or invalid action.
        turns: Turns per episode.
        actions: Executed actions per episode.
        reply_tokens: Sampled tokens per episode; 0 for scripts.
        truncated: Share of episodes that a limit ended.
        left_out: Episodes that are not among the ``n`` because an environment or an API failed in them.
        samples: Episodes a start state; some start states have fewer if episodes were left out.
        pass_at_k: With several, for k = ``"1"``, ``"2"``, ``"4"``, …: the mean pass@k (``value``) over the start
            states with all their episodes (``starts``), and its 95 % interval (``low``, ``high``).
        score: Mean of ``info["task_score"]`` at the end of the episodes, from 0 to 1, where the environment has it and
            all episodes were kept with it; else None.
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
    left_out: int = 0
    samples: int = 1
    pass_at_k: dict[str, dict[str, float]] = field(default_factory=dict)
    score: float | None = None

    def in_words(self) -> str:
        """``success 0.350 [0.310, 0.392] (n=512)``."""
        note = f"n={self.n}" if self.samples == 1 else f"n={self.n}, {self.samples} a start state"
        note += f", {self.left_out} left out after failures" if self.left_out else ""
        text = f"success {with_interval(asdict(self))} ({note})"
        for k, found in list(self.pass_at_k.items())[-1:]:
            text += f", pass@{k} {with_interval(found)}"
        return text


def episode_row(trajectory: Trajectory, sample: int = 0) -> Row:
    """The numbers that are kept of an episode, from which a result is computed: a line of ``episodes/*.jsonl.gz``.

    Returns:
        ``seed`` of the start state; ``sample``, the number among its episodes, from 0; ``limit`` as in `Trajectory`;
        the numbers of `measure`; ``task_score`` if the environment has it (``info["task_score"]`` of the last turn);
        ``error``, the reason if its environment or an API failed; ``faults`` if the environment tells them.
    """
    last = trajectory.turns[-1].info
    return {
        "seed": trajectory.seed,
        "sample": sample,
        "limit": trajectory.limit,
        **measure(trajectory),
        **({"task_score": float(last["task_score"])} if "task_score" in last else {}),
        "error": str(last["error"]).strip() if trajectory.limit in FAILED else "",
        "faults": [str(fault) for fault in last.get("faults", ())],
    }


def summarise(trajectories: Sequence[Trajectory]) -> EvaluationResult:
    """The result of these episodes by the rules of `judged`, whose error it raises."""
    return judged([episode_row(trajectory) for trajectory in trajectories])


def judged(played: Sequence[Row]) -> EvaluationResult:
    """The result over the episodes in which neither environment nor API failed; `UserError` if none is left."""
    rows = [row for row in played if row["limit"] not in FAILED]
    if not rows:
        reasons = Counter(row["error"] for row in played).most_common(3)
        raise UserError(f"all of {len(played)} episodes failed without the policy: {dict(reasons)}")
    starts = _by_start(rows, "success")
    successes, sizes = [int(sum(each)) for each in starts.values()], [len(each) for each in starts.values()]
    low, high = rate_interval(successes, sizes)
    returns = [fsum(each) for each in _by_start(rows, "return").values()]
    turns = fsum(row["turns"] for row in rows)
    return EvaluationResult(
        n=len(rows),
        success_low=low,
        success_high=high,
        mean_return=fmean(row["return"] for row in rows),
        return_stderr=sqrt(ratio_variance(returns, sizes)),
        format_valid=fsum(row["format_valid"] * row["turns"] for row in rows) / turns,
        action_valid=fsum(row["action_valid"] * row["turns"] for row in rows) / turns,
        **{name: fmean(row[name] for row in rows) for name in _MEANS},
        left_out=len(played) - len(rows),
        samples=max(sizes),
        pass_at_k=_passes(successes, sizes),
        score=fmean(row["task_score"] for row in rows) if all("task_score" in row for row in rows) else None,
    )


def with_differences(
    results: Mapping[str, dict[str, Any]], rows: Mapping[str, Sequence[Row]], ours: str, *others: str
) -> None:
    """Add to a policy's result its ``differences``: how much more often it succeeded than each other of ``others``.

    They are paired by start state (`paired_difference`), without episodes in which an environment or an API failed.
    """
    starts = {name: _by_start(rows[name], "success") for name in (ours, *others) if name in rows}
    pairs = {other: paired_difference(starts[ours], starts[other]) for other in starts if other != ours}
    results[ours]["differences"] = {other: pair for other, pair in pairs.items() if pair is not None}


def _by_start(rows: Sequence[Row], measure: str) -> dict[int, list[float]]:
    """Seed of a start state → this measure of each of its episodes that did not fail."""
    found: defaultdict[int, list[float]] = defaultdict(list)
    for row in rows:
        if row["limit"] not in FAILED:
            found[row["seed"]].append(row[measure])
    return found


def _passes(successes: Sequence[int], sizes: Sequence[int]) -> dict[str, dict[str, float]]:
    """pass@1, 2, 4, … over the start states with all their episodes; empty where there is one, whose rate says it."""
    samples = max(sizes)
    whole = [count for count, size in zip(successes, sizes, strict=True) if size == samples]
    found = {}
    for k in [2**power for power in range(samples.bit_length())] if samples > 1 else []:
        shares = [pass_at_k(samples, count, k) for count in whole]
        low, high = rate_interval([share * samples for share in shares], [samples] * len(shares))
        found[str(k)] = {"value": fmean(shares), "low": low, "high": high, "starts": len(shares)}
    return found


def evaluate(
    policy: Policy | str, env: EnvLike, args: StarPOConfig, episodes: int = 512, samples: int = 1
) -> EvaluationResult:
    """Play the first ``episodes`` evaluation seeds, each ``samples`` times.

    Start state, outcome seed and sampling seed depend only on the evaluation seed and the number of the sample, so two
    calls with the same policy agree, and a call with more samples repeats the samples of a call with fewer.

    Args:
        policy: A policy object, ``"random"`` (uniform over the environment's actions), or
            ``"oracle"`` (the best action, seeing the state after every single action: an upper bound for a policy that
            answers in turns).
        env: A Gymnasium id or a function, as for the trainer, or an `EnvSpec`.
        args: Turn limits and environment arguments; ``rollout_batch_size`` episodes are played at a time, else 128.
        episodes: Number of evaluation seeds, that is, start states.
        samples: Episodes a start state, at least 1.

    Raises:
        OptionError: If there are not that many evaluation seeds.
        UserError: If environments or an API failed in every episode, or ``env`` names several environments.
        ValueError: If ``policy`` is another string.
    """
    return summarise(play_held_out(policy, env, args, episodes, samples))


def play_held_out(
    policy: Policy | str, env: EnvLike, args: StarPOConfig, episodes: int = 512, samples: int = 1
) -> list[Trajectory]:
    """The episodes that ``evaluate`` judges, in the order of their seeds; same arguments, same errors."""
    starts = list(held_out_starts(episodes, samples).values())
    return [one for batch in play_in_batches(policy, env, args, starts) for one in batch]


def held_out_starts(episodes: int, samples: int = 1) -> dict[tuple[int, int], Start]:
    """Seed and number of the sample → the start, of every episode of an evaluation, in the order of playing.

    Outcome seed and sampling seed are for the first sample of a start state as in ``python -m ragen_envs``. Raises
    `OptionError` if there are not that many evaluation seeds.
    """
    return {
        (seed, sample): Start.drawn(seed, (seed, 1, sample)) if sample else Start(seed, *episode_seeds(seed))
        for seed in evaluation_seeds(episodes)
        for sample in range(samples)
    }


def play_in_batches(
    policy: Policy | str,
    env: EnvLike,
    args: StarPOConfig,
    starts: Sequence[Start],
    process: int = 0,
    processes: int = 1,
) -> Iterator[list[Trajectory]]:
    """Play the given starts, ``rollout_batch_size`` at a time, else `BATCH_SIZE`; yields a list for each batch.

    Several processes divide every batch, so all of them play equally often, some perhaps no episode: a policy whose
    replies need all processes at once would otherwise wait for one that is done (`Policy.goes_on`). ``starts`` are all
    processes' together. Other arguments and errors are as in ``evaluate``.
    """
    specs = env_specs(env, args)
    if len(specs) != 1:
        raise UserError(f"env has {len(specs)} environments; evaluate in one at a time")
    player = baseline_policy(policy) if isinstance(policy, str) else policy
    pool = EnvPool(args, in_single_actions) if isinstance(policy, str) else EnvPool(args)
    size = (args.rollout_batch_size or BATCH_SIZE) * processes
    try:
        for first in range(0, len(starts), size):
            batch = starts[first + process : first + size : processes]
            yield pool.play(pool.take(specs * len(batch)), player, batch)
    finally:
        pool.close()
