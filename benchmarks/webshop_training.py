"""Does a pretrained language model learn to shop? SmolLM2-135M-Instruct in WebShop and ToyShop, before and after.

    python benchmarks/webshop_training.py --list                        # every run as a command, with its minutes
    python benchmarks/webshop_training.py --only webshop/warm_start     # one run; goes on where it stopped
    python benchmarks/webshop_training.py --only webshop                # all runs of a shop, one after the other
    python benchmarks/webshop_training.py --collect                     # only write the JSON and the pictures
    python benchmarks/webshop_training.py --smoke                       # a minute, with a tiny random model
    python benchmarks/webshop_training.py --paper                       # WebShop at a larger scale, on a GPU

Runs, folders and locks are those of ``pretrained.py``; the settings are in ``agents/shops.py``. The official products
are played where RAGEN_WEBSHOP_DATA names their folder. ``results/webshop_training.json`` holds the finished runs with
these settings, and names the others.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace

from agents import command
from agents.runs import Run, game_runs
from agents.shops import ON_A_GPU, SHOPS
from agents.smoke import SMALL_STARPO, SMALL_WARM_START, few_episodes


def smoke_runs(model: str) -> list[Run]:
    """Two updates of StarPO-S and of GiGPO in the smallest store."""
    kwargs = {"catalog": "toy", "observation_mode": "short"}
    env, (_, evaluated) = SHOPS["webshop"].env, SHOPS["webshop"].evaluations["other products"]
    game = replace(
        SHOPS["webshop"],
        env_kwargs={**SHOPS["webshop"].env_kwargs, **kwargs},
        evaluations={"other products": (env, {**evaluated, **kwargs})},
        warm_start={**SHOPS["webshop"].warm_start, **SMALL_WARM_START, "demonstrations": 32},
        algorithms={"starpo_s": SMALL_STARPO, "gigpo": SMALL_STARPO},
    )
    return [few_episodes(run) for run in game_runs(model, {"webshop": game})]


SCRIPT = command.Script(
    "webshop_training",
    __doc__,
    SHOPS,
    lambda model: game_runs(model, SHOPS),
    smoke_runs,
    lambda model: game_runs(model, ON_A_GPU),
)


def main(command_line: Sequence[str] | None = None) -> int:
    """List, or do what was asked for, then collect; see ``agents/command.py``."""
    return command.main(SCRIPT, command_line)


if __name__ == "__main__":
    sys.exit(main())
