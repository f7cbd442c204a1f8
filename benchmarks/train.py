"""Does `make train` learn? The recipe over several seeds, with the random and oracle rows.

    python benchmarks/train.py                 # 3 seeds, about 5 minutes each on two cores; goes on where it stopped
    python benchmarks/train.py --smoke         # a minute, to see that it works

Writes ``results/train.json``: for every seed the run's summary, and success on those evaluation states that neither
the warm start nor RL has seen (seeds differ, but a small lake has few likely start states). Options of ``python -m
ragen_trl train`` are passed on; a finished run of other options is an error.
"""

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
from learning.saved import options_of, saved_policy
from records.results import write_result

from ragen_trl.evaluation.evaluator import play_held_out, summarise
from ragen_trl.rollout.seeds import WARM_START

SMOKE = ["--demonstrations", "64", "--max_steps", "2", "--eval_episodes", "16"]


class OtherRunError(RuntimeError):
    """The folder of a run holds one that was made with other options."""


def main() -> None:
    """Run the seeds one after the other, then collect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--smoke", action="store_true", help="two steps of one seed, written to runs/ only")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "train.json")
    options, recipe = parser.parse_known_args()
    if options.smoke:
        options.seeds, recipe = [0], [*recipe, *SMOKE, "--overwrite", "true"]
        options.output = Path("runs/benchmark-train-smoke.json")
    runs = [collect(train(seed, recipe, options.smoke)) for seed in options.seeds]
    command = shlex.join(["python", "benchmarks/train.py", *sys.argv[1:]])
    write_result(options.output, command, seeds=options.seeds, runs=runs)


def train(seed: int, recipe: list[str], smoke: bool) -> Path:
    """One run of the command, unless its folder holds the finished run already.

    Raises:
        OtherRunError: If it holds a run of another command.
    """
    folder = Path("runs") / f"benchmark-train{'-smoke' if smoke else ''}-seed{seed}"
    command = ["-m", "ragen_trl", "train", "--seed", str(seed), "--output_dir", str(folder), *recipe]
    summary = folder / "summary.json"
    if smoke or not summary.exists():
        subprocess.run([sys.executable, *command], check=True)
    else:
        made, asked = json.loads(summary.read_text())["command"], shlex.join(["python", *command])
        if made != asked:
            raise OtherRunError(f"{folder} holds a run of {made!r}, not of {asked!r}; move it away")
    return folder


def collect(folder: Path) -> dict[str, Any]:
    """The run's summary, and what its models reach on start states that were never trained on."""
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    config, env, episodes = summary["config"], summary["env"], summary["results"]["trained"]["n"]
    args = options_of(folder)
    made = gymnasium.make(env, **summary["env_kwargs"])
    groups = summary["trajectories"]["sampled"] // config["num_generations"]
    used = [config["train_seed_start"] + i for i in range(groups)]
    demonstrated = [WARM_START + i for i in range(config["demonstrations"])]
    seen = {made.reset(seed=seed)[0] for seed in (*used, *demonstrated)}
    unseen = [made.reset(seed=seed)[0] not in seen for seed in range(episodes)]
    summary["unseen"] = {"share": sum(unseen) / episodes}
    for name, model in (("before", folder / "warm_start"), ("trained", folder / "model")):
        played = play_held_out(saved_policy(model, env, args), env, args, episodes)
        again = summarise(played)
        assert again.success == summary["results"][name]["success"], f"{name}: the saved model plays differently"
        summary["unseen"][name] = summarise([t for t, new in zip(played, unseen, strict=True) if new]).as_dict()
    return summary


if __name__ == "__main__":
    main()
