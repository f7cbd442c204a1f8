"""Does `make train` learn? Its recipe over three seeds, with the random and oracle rows; about 15 minutes.

    python benchmarks/train.py [--seeds 0 1 2] [--smoke] [any option of `python -m ragen_trl train`]

A finished run in ``runs/`` is not made again. *Unseen* is success on those evaluation states that neither the warm
start nor RL began from: seeds differ, but a small lake has few likely start states.
"""

import argparse
import json
import shlex
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium
from record import interval, place, sampled, table, write
from transformers import AutoModelForCausalLM, AutoTokenizer

from ragen_trl.config.starpo import StarPOSConfig
from ragen_trl.evaluation.evaluator import play_held_out, summarise
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.environments import load_play_options, make_chat, make_turns
from ragen_trl.rollout.seeds import WARM_START

SMOKE = ["--demonstrations", "64", "--max_steps", "2", "--eval_episodes", "16", "--overwrite", "true"]
KEPT = ("seed", "command", "commit", "machine", "env", "env_kwargs", "trajectories", "results", "seconds", "unseen")


def main() -> None:
    """Run the seeds one after the other, then collect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--smoke", action="store_true", help="two steps of one seed, written to runs/ only")
    parser.add_argument("--out", type=Path)
    asked, recipe = parser.parse_known_args()
    if asked.smoke:
        asked.seeds, recipe = [0], [*recipe, *SMOKE]
    runs = [collect(train(seed, recipe, asked.smoke)) for seed in asked.seeds]
    command = shlex.join(["python", "benchmarks/train.py", *sys.argv[1:]])
    content = {"seeds": asked.seeds, "runs": runs, "table": shown(runs)}
    write(place("train", asked.smoke, asked.out), command, **content)


def train(seed: int, recipe: list[str], smoke: bool) -> Path:
    """One run of the command, unless its folder holds the finished run already.

    Raises:
        SystemExit: If it holds a run of another command.
    """
    folder = Path("runs") / f"benchmark-train{'-smoke' if smoke else ''}-seed{seed}"
    command = ["-m", "ragen_trl", "train", "--seed", str(seed), "--output_dir", str(folder), *recipe]
    summary = folder / "summary.json"
    if smoke or not summary.exists():
        subprocess.run([sys.executable, *command], check=True)
    else:
        made, wanted = json.loads(summary.read_text())["command"], shlex.join(["python", *command])
        if made != wanted:
            raise SystemExit(f"{folder} holds a run of {made!r}, not of {wanted!r}; move it away")
    return folder


def collect(folder: Path) -> dict[str, Any]:
    """The run's summary, and what its models reach on start states that were never trained on."""
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    config, env, episodes = summary["config"], summary["env"], summary["results"]["trained"]["n"]
    played_as = load_play_options(str(folder / "model"))
    args = StarPOSConfig(output_dir=str(folder), **{name: value for name, value in played_as.items() if name != "env"})
    made = gymnasium.make(env, **summary["env_kwargs"])
    groups = sampled(config, json.loads((folder / "history.json").read_text())) // config["num_generations"]
    used = [config["train_seed_start"] + i for i in range(groups)]
    demonstrated = [WARM_START + i for i in range(config["demonstrations"])]
    seen = {made.reset(seed=seed)[0] for seed in (*used, *demonstrated)}
    unseen = [made.reset(seed=seed)[0] not in seen for seed in range(episodes)]
    summary["unseen"] = {"share": sum(unseen) / episodes}
    for name, model in (("before", folder / "warm_start"), ("trained", folder / "model")):
        chat = make_chat(AutoTokenizer.from_pretrained(model), make_turns(env, args), args)
        policy = TransformersPolicy(AutoModelForCausalLM.from_pretrained(model), chat, Sampling(args.max_reply_length))
        played = play_held_out(policy, env, args, episodes)
        again = summarise(played)
        assert again.success == summary["results"][name]["success"], f"{name}: the saved model plays differently"
        summary["unseen"][name] = asdict(summarise([t for t, new in zip(played, unseen, strict=True) if new]))
    return {name: summary[name] for name in KEPT if name in summary}


def shown(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """One row a seed."""
    rows = []
    for run in runs:
        results, seconds, unseen = run["results"], run["seconds"], run["unseen"]["trained"]
        rates = [interval(results[name]) for name in ("random", "before", "trained", "oracle")]
        times = [f"{seconds['step_median']:.2f} s", f"{seconds['total'] / 60:.1f} min"]
        rows.append([run["seed"], *rates, f"{interval(unseen)} (n={unseen['n']})", *times])
    commits = ", ".join(f"`{commit}`" for commit in dict.fromkeys(str(run["commit"])[:9] for run in runs))
    machine, n = runs[0]["machine"], runs[0]["results"]["trained"]["n"]
    note = (
        f"Success [95 % interval], n = {n} held-out start states, sampled at temperature 1. Commit {commits}, "
        f"{machine['cpus']} CPU cores, {machine['gpu'] or 'no GPU'}."
    )
    columns = ["seed", "random", "warm start", "trained", "oracle", "trained, unseen states", "step", "whole run"]
    return table(columns, rows, note)


if __name__ == "__main__":
    main()
