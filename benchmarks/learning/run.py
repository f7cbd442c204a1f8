"""The training runs behind ``learning_curves.py``, each call of this script a process of its own.

    cd benchmarks
    python -m learning.run TASK FOLDER                                  # the warm start and the baselines
    python -m learning.run TASK FOLDER --variants astar_po --seeds 0    # one run

A process with one thread and one run in it has times and a peak of memory that are the run's own. What is finished is
not done again: ``FOLDER/TASK/warm_start.json`` and ``FOLDER/TASK/VARIANT/seedN.json`` carry the settings they were made
with. Left out: checkpoints; a run takes minutes, and one that was killed begins anew.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from learning.measure import Curve, distance
from learning.tasks import TASKS, VARIANTS, Evaluation, Task, run_trajectories, small, training_options
from ragen_trl.astar_po_trainer import AStarPOTrainer
from ragen_trl.atomic import write_atomically
from ragen_trl.config import StarPOConfig
from ragen_trl.environments import make_chat, make_turns
from ragen_trl.evaluation import play_held_out, summarise
from ragen_trl.imitation import WarmStartConfig, warm_start
from ragen_trl.policies import TransformersPolicy
from ragen_trl.provenance import provenance
from ragen_trl.recipes import defaults
from ragen_trl.reference_values import ReferenceNeverSucceedsError
from ragen_trl.rollout import Policy
from ragen_trl.sampling import Sampling
from ragen_trl.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.trajectory import Trajectory

# What demonstrations and evaluations depend on, of a recipe's options.
_PLAY = ("think", "max_turns", "max_actions_per_turn", "max_actions", "max_reply_length", "max_completion_length")


def main() -> None:
    """Do what is asked for and is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--variants", nargs="*", default=[], choices=VARIANTS)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    task = small(TASKS[options.task]) if options.smoke else TASKS[options.task]
    folder = options.folder / options.task
    if finished(folder / "warm_start.json", prepare_settings(task)) is None:
        prepare(task, folder)
    for variant_name in options.variants:
        for seed in options.seeds:
            path = folder / variant_name / f"seed{seed}.json"
            if finished(path, run_settings(task, variant_name, seed)) is None:
                try:
                    content = train(task, variant_name, seed, folder / "warm_start")
                except ReferenceNeverSucceedsError as refusal:
                    if not options.smoke:
                        raise
                    print(f"{path}: {refusal}")  # rightly: after so short a warm start
                else:
                    write_atomically(path, json.dumps(content, indent=1))


def finished(path: Path, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a former process wrote, unless it had other settings."""
    if not path.exists():
        return None
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content if content["settings"] == json.loads(json.dumps(settings)) else None


def prepare_settings(task: Task) -> dict[str, Any]:
    """What the warm start and the baselines depend on."""
    return {
        "env": task.env,
        "episodes": task.episodes,
        "evaluations": {name: asdict(evaluation) for name, evaluation in task.evaluations.items()},
        "warm_start": asdict(task.warm_start),
        "play": {name: {**defaults(task.env, None), **task.options}[name] for name in _PLAY},
    }


def run_settings(task: Task, variant_name: str, seed: int) -> dict[str, Any]:
    """What a run depends on."""
    return {
        "prepared": prepare_settings(task),
        "variant": {name: value for name, value in asdict(VARIANTS[variant_name]).items() if name != "label"},
        "options": training_options(task, variant_name),
        "trajectories": run_trajectories(task, variant_name),
        "evaluations_per_run": task.evaluations_per_run,
        "seed": seed,
    }


def prepare(task: Task, folder: Path) -> None:
    """The warm start, and how it, random play and the oracle fare."""
    began, cpu_began = time.perf_counter(), time.process_time()
    args = play_args(task, folder, dict(task.warm_start.env_kwargs))
    tokenizer = build_tiny_tokenizer(env=task.env)
    model = build_tiny_model(tokenizer, 0, **task.warm_start.model)
    warm_start(model, tokenizer, task.env, args, WarmStartConfig(**task.warm_start.options), folder / "warm_start")
    seconds = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu_began}
    args = play_args(task, folder, None)
    results: dict[str, Any] = {}
    for name, evaluation in task.evaluations.items():
        policies: dict[str, Policy | str] = {"random": "random", "oracle": "oracle"}
        policies["warm_start"] = model_policy(folder / "warm_start", evaluation, args)
        policies["warm_start_greedy"] = model_policy(folder / "warm_start", evaluation, args, temperature=0.0)
        results[name] = {
            policy: summarise(play_held_out(player, evaluation.make, args, task.episodes)).as_dict()
            for policy, player in policies.items()
        }
    content = {"settings": prepare_settings(task), **origin(), **seconds, "results": results}
    content["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    write_atomically(folder / "warm_start.json", json.dumps(content, indent=1))


def train(task: Task, variant_name: str, seed: int, model: Path) -> dict[str, Any]:
    """One run.

    Returns:
        ``curve`` (a row an evaluation), ``steps`` (a row an update), ``final`` figures, and where they come from.
    """
    variant = VARIANTS[variant_name]
    total = run_trajectories(task, variant_name)
    with tempfile.TemporaryDirectory() as folder:
        held_out = play_args(task, Path(folder), None)  # before the trainer: a new configuration resets Accelerate
        args = resolve(variant.config)(output_dir=folder, seed=seed, **training_options(task, variant_name))
        trainer = resolve(variant.trainer)(
            str(model),
            task.env,
            args,
            processing_class=AutoTokenizer.from_pretrained(model),
            reward_funcs=[resolve(name) for name in variant.reward_funcs],
        )
        reference = AutoModelForCausalLM.from_pretrained(model)
        first = next(iter(task.evaluations.values()))

        def measure() -> dict[str, float]:
            return measured(play_held_out(trainer.policy(), first.make, held_out, task.episodes), reference)

        curve = Curve(measure, total, total / task.evaluations_per_run, args.steps_per_rollout)
        trainer.add_callback(curve)
        curve.begin()
        trainer.train()
        curve.finish(trainer.state.global_step)
        others = {
            name: summarise(play_held_out(trainer.policy(), evaluation.make, held_out, task.episodes)).as_dict()
            for name, evaluation in task.evaluations.items()
        }
    return {
        "settings": run_settings(task, variant_name, seed),
        **origin(),
        "curve": curve.rows,
        "final": {
            **curve.totals(),
            "evaluations": others,
            "stage_1": trainer.values[0].summary() if isinstance(trainer, AStarPOTrainer) else None,
        },
        "steps": curve.steps,
    }


def measured(trajectories: list[Trajectory], reference: PreTrainedModel) -> dict[str, float]:
    """An evaluation's figures for the curve."""
    result = summarise(trajectories)
    kl, kl_stderr = distance(trajectories, reference)
    return {
        "success": result.success,
        "success_low": result.success_low,
        "success_high": result.success_high,
        "return": result.mean_return,
        "format_valid": result.format_valid,
        "reply_tokens": result.reply_tokens,
        "kl": kl,
        "kl_stderr": kl_stderr,
    }


def play_args(task: Task, folder: Path, env_kwargs: dict[str, Any] | None) -> StarPOConfig:
    """Turn limits and reply format, which all variants share."""
    settings = {**defaults(task.env, None), **task.options, "env_kwargs": env_kwargs}
    return StarPOConfig(output_dir=str(folder), seed=0, **settings)


def model_policy(
    model: Path, evaluation: Evaluation, args: StarPOConfig, temperature: float = 1.0
) -> TransformersPolicy:
    """A saved model as a policy; at temperature 1 it samples as training does."""
    chat = make_chat(AutoTokenizer.from_pretrained(model), make_turns(evaluation.make, args), args)
    sampling = Sampling(args.max_reply_length, temperature)
    return TransformersPolicy(AutoModelForCausalLM.from_pretrained(model), chat, sampling)


def origin() -> dict[str, Any]:
    """Commit, versions and machine."""
    found = provenance()
    return {name: found[name] for name in ("commit", "created", "versions", "machine")}


def resolve(name: str) -> Callable[..., Any]:
    """What ``module:name`` says."""
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), attribute)
    return found


if __name__ == "__main__":
    main()
