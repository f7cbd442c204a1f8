"""How long does one StarPO-S step take? Rollout and update, on the recipe's model after its warm start.

    python benchmarks/step_time.py             # some minutes; needs runs/benchmark-train-seed0 of benchmarks/train.py
    python benchmarks/step_time.py --smoke     # three steps of a fresh model, written to runs/ only

Writes ``results/step_time.json``: median, quartiles and the share of the rollout over the steps of one run, for 128
trajectories in 8 groups of 16 and in 16 groups of 8, 25 % of the groups kept.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from records.results import write_result
from transformers import AutoTokenizer

from ragen_trl import StarPOSConfig, StarPOTrainer
from ragen_trl.config.recipes import defaults
from ragen_trl.policies.tiny_model import save_tiny_model

ENV = "ragen/FrozenLake-v0"


def main() -> None:
    """Time both group shapes, in one process and one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="runs/benchmark-train-seed0/warm_start")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "step_time.json")
    options = parser.parse_args()
    if options.smoke:
        options.model, options.steps = str(save_tiny_model("runs/benchmark-step-time-model")), 3
        options.output = Path("runs/benchmark-step-time-smoke.json")
    shapes = [measure(options.model, options.steps, group_size) for group_size in (16, 8)]
    command = f"python benchmarks/step_time.py --model {options.model} --steps {options.steps}"
    for shape in shapes:
        print(f"{shape['groups']} groups of {shape['group_size']}: median {shape['step']['median']:.2f} s a step")
    write_result(options.output, command, env=ENV, seed=0, shapes=shapes)


def measure(model: str, steps: int, group_size: int) -> dict[str, Any]:
    """Seconds of each step of one short run."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {**defaults(ENV, None), "max_steps": steps, "num_generations": group_size, "save_strategy": "no"}
        args = StarPOSConfig(output_dir=folder, seed=0, **settings)
        trainer = StarPOTrainer(model, ENV, args, processing_class=AutoTokenizer.from_pretrained(model))
        trainer.train()
    rows = [row for row in trainer.state.log_history if "step_time" in row][1:]  # the first one warms up
    return {
        "groups": args.groups_per_generation,
        "group_size": group_size,
        "trajectories": args.generation_batch_size,
        "steps": len(rows),
        "step": spread([row["step_time"] for row in rows]),
        "rollout": spread([row["rollout/seconds"] for row in rows]),
        "trajectories_used": spread([row["filter/trajectories_used"] for row in rows]),
    }


def spread(values: list[float]) -> dict[str, float]:
    """Quartiles."""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return {"low": low, "median": median, "high": high}


if __name__ == "__main__":
    main()
