"""Does a small model learn to shop? WebShop with generated products, and with the official ones where they are given.

    python benchmarks/webshop_training.py
    python benchmarks/webshop_training.py --webshop_data items_shuffle_1000.json     # the official files, yours

``--help`` lists the options. No product is in two splits: what is bought in the evaluation was never seen in training.
"""

import argparse
import os
import sys

from learning.runner import ask
from learning.shop_task import CATALOG, PLAY, store
from learning.spec import Evaluation, Question, Task, WarmStart
from learning.tasks import VARIANTS

_NAMES = ("starpo_s",)
# Processes of single runs read it: a path on the command line is not theirs.
_VARIABLE = "RAGEN_WEBSHOP_DATA"
_PAPER = {
    "max_turns": 9,
    "max_actions": 9,
    "max_actions_per_turn": 1,
    "max_reply_length": 200,
    "max_completion_length": 15_000,
}


def _task(catalog: str) -> Task:
    return Task(
        env="ragen/WebShop-v0",
        env_kwargs=store("train", catalog),
        evaluations={
            "other products": Evaluation("ragen/WebShop-v0", store("eval", catalog)),
            "trained products": Evaluation("ragen/WebShop-v0", store("train", catalog)),
        },
        warm_start=WarmStart(
            {"demonstrations": 500, "noise": 0.5, "demo_actions_per_turn": 1, "demo_epochs": 2.0},
            store("train", catalog),
            {"hidden_size": 64, "num_layers": 2},
            lesson="learning.shop_task:shopping",
        ),
        trajectories=128 * 2,
        level=0.5,
        variants=_NAMES,
        options=PLAY,
        evaluations_per_run=2,
        episodes=128,
        paper=_PAPER,
        paper_env_kwargs=store("train", "synthetic" if catalog == CATALOG else catalog),
    )


def question(data: str | None) -> Question:
    """With the official products too, if there is a path to them."""
    return Question(
        name="webshop_training",
        title="Does a small model learn to shop in WebShop?",
        tasks={"synthetic": _task(CATALOG), **({"official": _task(data)} if data else {})},
        variants={name: VARIANTS[name] for name in _NAMES},
    )


QUESTION = question(os.environ.get(_VARIABLE))

if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--webshop_data", default=os.environ.get(_VARIABLE))
    own, rest = parser.parse_known_args()
    if own.webshop_data:
        os.environ[_VARIABLE] = os.path.abspath(own.webshop_data)
    sys.exit(ask(question(os.environ.get(_VARIABLE)), rest))
