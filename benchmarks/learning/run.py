"""The training runs of a question; each call of this module is a process of its own.

    cd benchmarks
    python -m learning.run QUESTION FOLDER --tasks TASK                                 # warm start and baselines
    python -m learning.run QUESTION FOLDER --tasks TASK --variants astar_po --seeds 0   # one run

A process with one thread and one run has times and a peak of memory that are the run's own. What is finished is not
done again (``store.py``). Left out: checkpoints. A run takes minutes, and one that was killed starts again.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from learning.measure import Curve, SpreadGradients, distance
from learning.saved import saved_policy
from learning.spec import Question, Task, Variant, play_options, run_trajectories, training_options
from learning.store import baselines_file, finished, model_folder, prepare_settings, run_file, run_settings
from ragen_trl.astar_po.reference_values import ReferenceNeverSucceedsError
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.evaluation.evaluator import play_held_out, summarise
from ragen_trl.imitation.fine_tuning import WarmStartConfig, warm_start
from ragen_trl.monitoring.collapse_monitor import CollapseMonitor
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.rollout.interfaces import Policy
from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.provenance import provenance
from ragen_trl.trajectory import Trajectory


def main() -> None:
    """Do what was asked for and has no result yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", help="module under benchmarks/ with a QUESTION")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--variants", nargs="*", default=[], help="of those that the tasks have")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--model", help="at the paper's scale, with this model")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
    question: Question = import_module(options.question).QUESTION.scaled(options.smoke, options.model)
    for name in options.tasks:
        task = question.tasks[name]
        if finished(baselines_file(options.folder, task)) is None:
            prepare(task, options.folder)
        for variant in task.variants:
            if variant in options.variants:
                for seed in options.seeds:
                    run(task, variant, question.variants[variant], seed, options)


def run(task: Task, name: str, variant: Variant, seed: int, options: argparse.Namespace) -> None:
    """One run, unless its result is there."""
    path = run_file(options.folder, task, name, variant, seed)
    if finished(path) is not None:
        return
    model = task.model or str(model_folder(options.folder, task))
    try:
        content = train(task, name, variant, seed, model)
    except ReferenceNeverSucceedsError as refusal:
        if not options.smoke:
            raise
        print(f"{name}, seed {seed}: {refusal}")  # as it should after so short a warm start
    else:
        write_atomically(path, json.dumps(content, indent=1))


def prepare(task: Task, folder: Path) -> None:
    """The warm start, unless another task has made it, and the success of it, of random play and of the oracle."""
    began, cpu_began, made = time.perf_counter(), time.process_time(), origin()
    model = task.model or str(model_folder(folder, task))
    if task.model is None and not Path(model).exists():
        teach(task, Path(model))
    seconds = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu_began}
    args = play_args(task, folder)
    results: dict[str, Any] = {}
    for name, evaluation in task.evaluations.items():
        policies: dict[str, Policy | str] = {"random": "random", "oracle": "oracle"}
        policies["warm_start"] = saved_policy(model, evaluation.make, args, task.temperature)
        policies["warm_start_greedy"] = saved_policy(model, evaluation.make, args, temperature=0.0)
        results[name] = {
            policy: summarise(play_held_out(player, evaluation.make, args, task.episodes)).as_dict()
            for policy, player in policies.items()
        }
    content = {"settings": prepare_settings(task), **made, **seconds, "results": results}
    loaded = AutoModelForCausalLM.from_pretrained(model)
    content["parameters"] = sum(parameter.numel() for parameter in loaded.parameters())
    write_atomically(baselines_file(folder, task), json.dumps(content, indent=1))


def teach(task: Task, folder: Path) -> None:
    """Make the task's warm start."""
    lesson = task.warm_start
    settings = {**play_options(task), **lesson.play, "env_kwargs": dict(lesson.env_kwargs)}
    args, config = StarPOConfig(output_dir=str(folder), seed=0, **settings), WarmStartConfig(**lesson.options)
    if lesson.lesson is None:
        tokenizer, episodes = build_tiny_tokenizer(env=task.env), None
    else:
        tokenizer, episodes = resolve(lesson.lesson)(task.env, args, config)
    model = build_tiny_model(tokenizer, 0, **lesson.model)
    warm_start(model, tokenizer, task.env, args, config, folder, episodes)


def train(task: Task, variant_name: str, variant: Variant, seed: int, model: str) -> dict[str, Any]:
    """One run.

    Returns:
        ``curve`` (a row an evaluation), ``final`` figures, ``history`` (what was logged), and where they come from.
    """
    total, made = run_trajectories(task, variant), origin()
    with tempfile.TemporaryDirectory() as folder:
        held_out = play_args(task, Path(folder))  # before the trainer: a new configuration resets Accelerate
        args = resolve(variant.config)(output_dir=folder, seed=seed, **training_options(task, variant_name, variant))
        trainer = resolve(variant.trainer)(
            model,
            task.env,
            args,
            processing_class=AutoTokenizer.from_pretrained(model),
            reward_funcs=[resolve(name) for name in variant.reward_funcs],
            peft_config=LoraConfig(**variant.lora) if variant.lora else None,
        )
        # At another temperature the policy that plays is not the one whose distance is wanted.
        reference = AutoModelForCausalLM.from_pretrained(model) if task.temperature == 1 else None
        first = next(iter(task.evaluations.values()))

        def player() -> Policy:
            return trainer.policy(task.temperature)

        def measure() -> dict[str, float]:
            return measured(play_held_out(player(), first.make, held_out, task.episodes), reference)

        curve = Curve(measure, total, total / task.evaluations_per_run, args.steps_per_rollout)
        watch(trainer, variant)
        trainer.add_callback(curve)
        curve.begin()
        trainer.train()
        curve.finish(trainer.state.global_step)
        others = {
            name: each_and_all(play_held_out(player(), evaluation.make, held_out, task.episodes))
            for name, evaluation in task.evaluations.items()
        }
    return {
        "settings": run_settings(task, variant_name, variant, seed),
        **made,
        "curve": curve.rows,
        "final": {**curve.totals(), "evaluations": others},
        "history": trainer.state.log_history,
    }


def each_and_all(trajectories: list[Trajectory]) -> dict[str, Any]:
    """An evaluation's result, and each outcome in the order of start states (``"0110"``), to pair runs by."""
    outcomes = "".join(str(int(trajectory.success)) for trajectory in trajectories)
    return {**summarise(trajectories).as_dict(), "outcomes": outcomes}


def watch(trainer: Any, variant: Variant) -> None:
    """Add what logs the measures of rollouts; training takes the same steps with it."""
    # One thread takes seconds for 32 thoughts after each of 32 messages.
    thoughts = {"mi_every": 8, "mi_pairs": 32} if trainer.args.think else {"mi_every": 0}
    trainer.add_callback(CollapseMonitor(trainer, **thoughts))
    if variant.signal_every:
        SpreadGradients(trainer, variant.signal_every)


def measured(trajectories: list[Trajectory], reference: PreTrainedModel | None) -> dict[str, float]:
    """An evaluation's figures for the curve."""
    result = summarise(trajectories)
    return {
        "success": result.success,
        "success_low": result.success_low,
        "success_high": result.success_high,
        "return": result.mean_return,
        "format_valid": result.format_valid,
        "reply_tokens": result.reply_tokens,
        "kl": 0.0 if reference is None else distance(trajectories, reference),
    }


def play_args(task: Task, folder: Path) -> StarPOConfig:
    """Turn limits and reply format, which all variants share."""
    return StarPOConfig(output_dir=str(folder), seed=0, **{**play_options(task), "env_kwargs": None})


def origin() -> dict[str, Any]:
    """Commit, versions and machine, to be asked before anything is done: a commit may be made meanwhile."""
    found = provenance()
    return {name: found[name] for name in ("commit", "created", "versions", "machine")}


def resolve(name: str) -> Callable[..., Any]:
    """What ``module:name`` says."""
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), attribute)
    return found


if __name__ == "__main__":
    main()
