"""How far does a small model learn to shop on a GPU? SmolLM2-135M-Instruct in WebShop, at a larger scale.

    python benchmarks/webshop_gpu.py --list                       # every run as a command, with its minutes
    python benchmarks/webshop_gpu.py --at-once 9                  # all of them, nine at a time, on one GPU
    python benchmarks/webshop_gpu.py --only webshop/warm_start    # one run; goes on where it stopped
    python benchmarks/webshop_gpu.py --collect                    # only write the JSON and the pictures
    python benchmarks/webshop_gpu.py --smoke                      # a minute, with a tiny random model

As ``webshop_training.py``, with four times the demonstrations, twice the trajectories of a rollout, two updates on them
and three seeds; and, as ``webshop_512``, with as many demonstrations, for A*-PO beside StarPO-S at equal trajectories.
Runs go on side by side, since a GPU that plays one episode waits for the processor most of the time.
"""

import sys
from collections.abc import Sequence

from agents import command
from agents.runs import game_runs
from agents.shops import ON_A_GPU
from agents.smoke import SMALL_STARPO, shop_runs

MERGED = {**SMALL_STARPO, "steps_per_generation": 2, "filter_ratio": 1.0, "merge_lora": True}
SCRIPT = command.Script(
    "webshop_gpu",
    __doc__,
    ON_A_GPU,
    lambda model: game_runs(model, ON_A_GPU),
    lambda model: shop_runs(model, ON_A_GPU["webshop"], {"starpo_s": MERGED}),
    on="an H200 that does nine at once",
)


def main(command_line: Sequence[str] | None = None) -> int:
    """List, or do what was asked for, then collect; see ``agents/command.py``."""
    return command.main(SCRIPT, command_line)


if __name__ == "__main__":
    sys.exit(main())
