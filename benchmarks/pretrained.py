"""Does a pretrained language model learn to be an agent? SmolLM2-135M-Instruct, before and after, game by game.

    python benchmarks/pretrained.py --list                          # every run as a command, with its minutes
    python benchmarks/pretrained.py --only frozenlake/warm_start    # one run; goes on where it stopped
    python benchmarks/pretrained.py --only frozenlake bandit        # all runs of these games, one after the other
    python benchmarks/pretrained.py --collect                       # only write the JSON and the pictures
    python benchmarks/pretrained.py --smoke                         # a minute, with a tiny random model
    python benchmarks/pretrained.py --paper --model Qwen/Qwen2.5-0.5B-Instruct    # RAGEN's scale, on a GPU

Each run has a folder with its log below ``runs/pretrained``, can be killed at any time, and goes on from its last
checkpoint when the same command is repeated. A run does what it needs first: training needs the warm start of its game.
The settings of all games are in ``agents/games.py``. ``results/pretrained.json`` holds the finished runs with these
settings, and names the others.
"""

import sys
from collections.abc import Sequence

from agents import command
from agents.games import GAMES
from agents.runs import all_runs, paper_runs
from agents.smoke import smoke_runs

SCRIPT = command.Script("pretrained", __doc__, GAMES, all_runs, smoke_runs, paper_runs)


def main(command_line: Sequence[str] | None = None) -> int:
    """List, or do what was asked for, then collect; see ``agents/command.py``."""
    return command.main(SCRIPT, command_line)


if __name__ == "__main__":
    sys.exit(main())
