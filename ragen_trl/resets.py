"""How the episodes of a rollout begin, also where an environment cannot be reset at once. No torch here."""

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ragen_trl.episodes import Episode, Outcome
from ragen_trl.errors import UserError
from ragen_trl.stepping import Failure, Stepper

if TYPE_CHECKING:
    from ragen_trl.rollout import Renew, Start, TurnEnv

# Seconds before an environment that could not be reset gets a successor: a server may be back by then.
PAUSES = (0.0, 1.0, 4.0)


class EnvResetError(UserError, RuntimeError):
    """An environment, and new ones in its place, could not start an episode."""


def begin(
    envs: Sequence["TurnEnv"], starts: Sequence["Start"], stepper: Stepper, renew: "Renew | None", window: int | None
) -> list[Episode]:
    """Reset every environment; one that fails gets successors and further chances, after growing pauses."""
    played = list(envs)
    outcomes = stepper.run([partial(_reset, env, start) for env, start in zip(envs, starts, strict=True)])
    for pause in PAUSES:
        failures = {row: outcome for row, outcome in enumerate(outcomes) if isinstance(outcome, Failure)}
        if not failures or renew is None:
            break
        time.sleep(pause)
        for row, failure in failures.items():
            (made,) = stepper.run([partial(renew, played[row], failure)])
            if not isinstance(made, Failure):  # else the same one is reset again, with which nothing else went wrong
                played[row] = made
        again = stepper.run([partial(_reset, played[row], starts[row]) for row in failures])
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
