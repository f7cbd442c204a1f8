r"""Stage 1 of A\*-PO: play the reference policy from every start state until V* is known well enough.

Which episodes are used depends only on their outcomes, never on the batch size, the number of processes, interruptions
or the contents of a cache.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch

from ragen_envs import wilson_interval
from ragen_trl.algorithms.filtering import ZERO_STD
from ragen_trl.algorithms.soft_values import return_range, soft_value, soft_value_std_error
from ragen_trl.astar_po.reference_play import ReferencePlayer
from ragen_trl.astar_po.value_cache import Sample
from ragen_trl.errors import UserError
from ragen_trl.system.float64 import float64_tensor
from ragen_trl.system.progress import progress_bar


class ReferenceNeverSucceedsError(UserError, ValueError):
    """No episode of the reference policy succeeded; A*-PO only reinforces what its reference sometimes does."""


class NothingToLearnError(UserError, ValueError):
    """From every start state all episodes of the reference policy earned the same."""


@dataclass(frozen=True)
class StartValue:
    """The value of one start state, from so many ``samples`` and ``successes``.

    Attributes:
        mean: Mean return.
        value: V*, between the mean and the largest return.
        std_error: Standard error of V*, shrunk towards the spread over all starts; above 0 for equal returns too.
        zero_variance: Whether all returns were equal up to rounding, so there is nothing to learn.
    """

    samples: int
    successes: int
    mean: float
    value: float
    std_error: float
    zero_variance: bool


@dataclass(frozen=True)
class ReferenceValues:
    """V* of all start states, and how well the reference policy plays.

    Attributes:
        starts: Start seed → its value, in the order of the given seeds.
        episodes: Number of episodes that these values are estimated from.
        played: How many of them were played now and not read from the cache.
        success: Success rate over the first samples of every start, with ``success_low`` and ``success_high``, Wilson's
            95 % interval as if all episodes were independent.
        return_range: The unit of β₁ and β₂.
        beta1: β₁ in units of the return: the option times ``return_range``.
    """

    starts: Mapping[int, StartValue]
    episodes: int
    played: int
    success: float
    success_low: float
    success_high: float
    return_range: float
    beta1: float

    def of(self, seed: int) -> StartValue:
        """The value of a start state; ``ValueError`` if the reference never played from it."""
        if seed not in self.starts:
            raise ValueError(
                f"there is no V* for start seed {seed}, only for {len(self.starts)} others; estimate the values of all "
                "start states to train on"
            )
        return self.starts[seed]

    def as_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "ReferenceValues":
        """From the result of ``as_dict``; seeds may be strings, as in JSON."""
        starts = {int(seed): StartValue(**start) for seed, start in fields["starts"].items()}
        return cls(**{**fields, "starts": starts})

    @cached_property
    def trainable(self) -> list[int]:
        """Start seeds from which the reference's returns differ, in order."""
        return [seed for seed, start in self.starts.items() if not start.zero_variance]

    def in_words(self) -> str:
        """One line: success of the reference, episodes (and how many came from the cache), trainable start states."""
        cached = self.episodes - self.played
        of_cache = f" ({cached:,} of them from the cache)" if cached else ""
        return (
            f"success {self.success:.3f} [{self.success_low:.3f}, {self.success_high:.3f}], {self.episodes:,} episodes"
            f"{of_cache}, {len(self.trainable)} of {len(self.starts)} start states have returns that differ"
        )

    def summary(self) -> dict[str, float]:
        """Figures of all start states together, for logs and JSON."""
        starts = list(self.starts.values())
        figures = asdict(self)
        del figures["starts"]
        return {
            "starts": len(starts),
            "trainable": len(self.trainable),
            **figures,
            "mean_return": sum(start.mean for start in starts) / len(starts),
            "mean_value": sum(start.value for start in starts) / len(starts),
            "mean_std_error": sum(start.std_error for start in starts) / len(starts),
            "max_std_error": max(start.std_error for start in starts),
            "max_samples": max(start.samples for start in starts),
        }


@dataclass(frozen=True)
class Accuracy:
    """How well V* must be known, and in which units; `AStarPOConfig` has checked the values.

    Attributes:
        beta1: β₁ in units of the return range.
        return_range: Largest minus smallest possible return; measured over all samples if unset.
        samples: First samples of each start.
        max_samples: Most samples of a start.
        std_error: Standard error of V* at which to stop, in units of the return range.
    """

    beta1: float
    return_range: float | None
    samples: int
    max_samples: int
    std_error: float


def estimate_values(
    seeds: Sequence[int], player: ReferencePlayer, accuracy: Accuracy, progress: bool = False
) -> ReferenceValues:
    """Play the reference policy and estimate V* of every start state; all processes get the same values.

    After the first samples of each start, samples are doubled, round by round, up to ``max_samples``, where all returns
    are equal and where the standard error is above the target.

    Raises:
        ReferenceNeverSucceedsError: If no episode succeeded.
        NothingToLearnError: If no start has returns that differ.
        ValueError: If there are no seeds, or as in ``ReferencePlayer.play``.
    """
    if len(seeds) == 0:
        raise ValueError("there are no seeds; give the start states to train on")
    counts, played_before = dict.fromkeys(map(int, seeds), accuracy.samples), player.num_played
    with progress_bar(0, "reference", "episode", hidden=not progress or player.processes.index > 0) as bar:
        while True:
            samples = player.play(counts, bar)
            returns = {seed: _returns(found) for seed, found in samples.items()}
            pool = torch.cat(list(returns.values()))
            unit = accuracy.return_range or return_range(pool)
            errors = _std_errors(returns, pool, accuracy.beta1 * unit)
            unsure = {seed for seed, error in errors.items() if error > accuracy.std_error * unit}
            unsure |= {seed for seed, found in returns.items() if not _has_spread(found)}
            more = {seed: min(2 * counts[seed], accuracy.max_samples) for seed in counts if seed in unsure}
            if more == {seed: counts[seed] for seed in more}:
                break
            counts.update(more)
    _check_success(samples, pool)
    _check_spread(returns)
    first = [sample.success for found in samples.values() for sample in found[: accuracy.samples]]
    low, high = wilson_interval(sum(first), len(first))
    return ReferenceValues(
        starts={seed: _start_value(found, accuracy.beta1 * unit, errors[seed]) for seed, found in samples.items()},
        episodes=pool.numel(),
        played=player.num_played - played_before,
        success=sum(first) / len(first),
        success_low=low,
        success_high=high,
        return_range=unit,
        beta1=accuracy.beta1 * unit,
    )


def _start_value(samples: Sequence[Sample], beta: float, std_error: float) -> StartValue:
    returns = _returns(samples)
    return StartValue(
        samples=len(samples),
        successes=sum(sample.success for sample in samples),
        mean=returns.mean().item(),
        value=soft_value(returns, beta).item(),
        std_error=std_error,
        zero_variance=not _has_spread(returns),
    )


def _std_errors(returns: Mapping[int, torch.Tensor], pool: torch.Tensor, beta: float) -> dict[int, float]:
    """Standard error of each V*; infinite if all returns are equal, which gives no scale."""
    if not _has_spread(pool):
        return dict.fromkeys(returns, float("inf"))
    return {seed: soft_value_std_error(found, beta, pool).item() for seed, found in returns.items()}


def _returns(samples: Sequence[Sample]) -> torch.Tensor:
    return float64_tensor([sample.episode_return for sample in samples], torch.device("cpu"))


def _has_spread(returns: torch.Tensor) -> bool:
    return return_range(returns) > ZERO_STD * max(1.0, returns.abs().max().item())


def _check_success(played: Mapping[int, Sequence[Sample]], pool: torch.Tensor) -> None:
    if any(sample.success for samples in played.values() for sample in samples):
        return
    episodes = pool.numel()
    bound = wilson_interval(0, episodes)[1]
    raise ReferenceNeverSucceedsError(
        f"none of {episodes} episodes from {len(played)} start states succeeded (success rate at most {bound:.2%} with "
        f"95 % confidence; return {pool.mean().item():.3g} on average, {pool.max().item():.3g} at most), and A*-PO "
        "cannot learn what its reference never does; warm-start the model on the oracle's play, make the environment "
        "easier, or raise max_reference_samples"
    )


def _check_spread(returns: Mapping[int, torch.Tensor]) -> None:
    if any(_has_spread(found) for found in returns.values()):
        return
    means = [found.mean().item() for found in returns.values()]
    raise NothingToLearnError(
        f"from each of {len(returns)} start states all episodes of the reference earned the same (returns "
        f"{min(means):.3g} to {max(means):.3g}), so there is nothing to learn; raise the temperature or "
        "max_reference_samples, or take other start states or another reference"
    )
