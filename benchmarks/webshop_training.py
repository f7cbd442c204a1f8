"""Does a pretrained language model learn to shop? SmolLM2-135M-Instruct in WebShop and ToyShop, before and after.

    python benchmarks/webshop_training.py --list                        # every run as a command, with its minutes
    python benchmarks/webshop_training.py --only webshop/warm_start     # one run; goes on where it stopped
    python benchmarks/webshop_training.py --only webshop                # all runs of a shop, one after the other
    python benchmarks/webshop_training.py --collect                     # only write the JSON and the pictures
    python benchmarks/webshop_training.py --smoke                       # a minute, with a tiny random model

Runs, folders and locks are those of ``pretrained.py``; the settings are in ``agents/shops.py``. The official products
are played where RAGEN_WEBSHOP_DATA names their folder. ``results/webshop_training.json`` holds the finished runs with
these settings, and names the others.
"""

import sys
from collections.abc import Sequence

from agents import command
from agents.runs import game_runs
from agents.shops import SHOPS
from agents.smoke import SMALL_STARPO, shop_runs

SCRIPT = command.Script(
    "webshop_training",
    __doc__,
    SHOPS,
    lambda model: game_runs(model, SHOPS),
    lambda model: shop_runs(model, SHOPS["webshop"], {"starpo_s": SMALL_STARPO, "gigpo": SMALL_STARPO}),
)


def main(command_line: Sequence[str] | None = None) -> int:
    """List, or do what was asked for, then collect; see ``agents/command.py``."""
    return command.main(SCRIPT, command_line)


if __name__ == "__main__":
    sys.exit(main())
