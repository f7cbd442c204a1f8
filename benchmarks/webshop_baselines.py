"""How far do a random policy, a rule and an oracle get in the store? The rows to read every result against.

    python benchmarks/webshop_baselines.py                 # bundled catalogues, and the real one if it is found
    python benchmarks/webshop_baselines.py --data FOLDER   # the public 1000-product set; see measuring/real_products.py
    python benchmarks/webshop_baselines.py --smoke         # a few episodes of each, written to runs/ only

A row is a policy on the first goals of a split: the mean score of its purchases and the share of purchases that score
1, each with its 95 % interval. Rules "fixed" are the defaults. "original" is parity mode with the original's formula;
every word of a title counts as a noun, as in the reference. The scripted policy sees only what a model sees; the oracle
knows the goal. Writes ``results/webshop_baselines.json``.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from measuring.real_products import asked_for
from records.results import write_result

from ragen_envs import wilson_interval
from ragen_envs.webshop import ToyShop, WebShop
from ragen_envs.webshop.policies import (
    best_shop_action,
    best_toy_action,
    random_shop_action,
    random_toy_action,
    scripted_shop_action,
    scripted_toy_action,
)
from ragen_envs.webshop.shoppers import careless_shop_action

HERE = Path(__file__).parent
SPLITS = ("test", "eval", "train", "test_by_product", "eval_by_product", "train_by_product")
Z = 1.959963984540054  # 97.5 % point of the normal distribution
Policy = Callable[[Any, np.random.Generator], str]
SHOP_POLICIES: dict[str, Policy] = {
    "random": random_shop_action,
    "scripted": lambda env, rng: scripted_shop_action(env),
    "oracle": lambda env, rng: best_shop_action(env, 1),
}
DEMONSTRATED = {"actions": 9, "noise": 0.05}  # as in the warm starts of agents/shops.py
DEMONSTRATOR: dict[str, Policy] = {
    "demonstrator": lambda env, rng: careless_shop_action(
        env, int(DEMONSTRATED["actions"]) - len(env.session.played), rng, DEMONSTRATED["noise"]
    )
}
TOY_POLICIES: dict[str, Policy] = {
    "random": random_toy_action,
    "scripted": lambda env, rng: scripted_toy_action(env),
    "oracle": lambda env, rng: best_toy_action(env, 1),
}


def main() -> None:
    """Plays all rows; exit status 2 if the folder of the data is named and not there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000, help="of each row, at most")
    parser.add_argument("--data", type=Path, help="folder of the public 1000-product set")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "webshop_baselines.json")
    options = parser.parse_args()
    if options.smoke:
        options.episodes, options.output = 5, Path("runs/benchmark-webshop-baselines-smoke.json")
    data = asked_for(options.data)
    if data is None:
        print("left out: the real catalogue; name its folder with --data or RAGEN_WEBSHOP_DATA")
    rows = []
    for label, env, policies in workloads(data):
        for name, policy in policies.items():
            rows.append({**label, "policy": name, **measure(env, policy, options.episodes)})
            print(line(rows[-1]), flush=True)
        env.close()
    write_result(options.output, "python benchmarks/webshop_baselines.py", rows=rows)


def workloads(data: Path | None) -> Iterator[tuple[dict[str, str], WebShop, dict[str, Policy]]]:
    """What to play: a label, an environment, its policies."""
    for split in ("eval", "train"):
        label = {"env": "ragen/ToyShop-v0", "catalog": "toy", "rules": "fixed", "split": split}
        yield label, ToyShop(split=split), TOY_POLICIES
    catalogs = [("toy", "toy", False), ("synthetic", "synthetic", False)]
    if data is not None:
        catalogs += [("real 1000", str(data), True), ("real 1000", str(data), False)]
    for name, catalog, original in catalogs:
        for split in SPLITS:
            rules = {"reward": "webshop", "parity": True, "nouns": "every_word"} if original else {"reward": "fixed"}
            label = {"env": "ragen/WebShop-v0", "catalog": name, "rules": "original" if original else "fixed"}
            yield {**label, "split": split}, WebShop(catalog=catalog, split=split, **rules), SHOP_POLICIES  # type: ignore[arg-type]
            if not original and split.endswith("_by_product"):
                limit = int(DEMONSTRATED["actions"])
                yield {**label, "split": split}, WebShop(catalog=catalog, split=split, max_steps=limit), DEMONSTRATOR


def measure(env: WebShop, policy: Policy, episodes: int) -> dict[str, Any]:
    """One row: the first goals of the split, each played once."""
    scores: list[float] = []
    steps = purchases = 0
    began = time.perf_counter()
    for index in range(min(episodes, env.count())):
        rng = np.random.default_rng((index, 1))
        env.reset(options={"index": index})
        while True:
            _, _, terminated, truncated, info = env.step(policy(env, rng))
            steps += 1
            if terminated or truncated:
                break
        scores.append(info["task_score"])
        purchases += info["purchased"]
    n, successes = len(scores), sum(score == 1 for score in scores)
    mean = statistics.fmean(scores)
    spread = Z * statistics.stdev(scores) / math.sqrt(n) if n > 1 else 0.0
    return {
        "n": n,
        "score": mean,
        "score_interval": [max(0.0, mean - spread), min(1.0, mean + spread)],
        "success": successes / n,
        "success_interval": list(wilson_interval(successes, n)),
        "purchases": purchases / n,
        "steps": steps / n,
        "seconds": time.perf_counter() - began,
    }


def line(row: dict[str, Any]) -> str:
    """A row for people."""
    what = f"{row['env'][6:-3]:8} {row['catalog']:10} {row['rules']:9} {row['split']:17} {row['policy']:9}"
    low, high = row["score_interval"]
    least, most = row["success_interval"]
    score = f"score {100 * row['score']:5.1f} [{100 * low:.1f}, {100 * high:.1f}]"
    success = f"success {100 * row['success']:5.1f} [{100 * least:.1f}, {100 * most:.1f}]"
    return f"{what} n={row['n']:<5} {score:28} {success:30} steps {row['steps']:.1f}"


if __name__ == "__main__":
    main()
