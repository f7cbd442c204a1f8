"""A whole training run: warm start, evaluation before and after training, summary and report.

Each stage writes its result to the run folder, whole or not at all; the same command continues after the last one.
"""

import copy
import json
import math
import re
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object
from datasets import Dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations.integration_utils import get_reporting_integration_callbacks
from trl import GRPOConfig
from trl.import_utils import is_vllm_available

from ragen_trl.astar_po.trainer import AStarPOTrainer
from ragen_trl.batching.rewards import consistency_reward
from ragen_trl.cli.environments import check_env, json_object, missing_baseline
from ragen_trl.cli.stages import RunState, is_main, launched, on_main, said_once
from ragen_trl.config.options import (
    CriticOptions,
    ExecutionOptions,
    PlayOptions,
    RunArguments,
    WarmStartConfig,
    option_names,
)
from ragen_trl.config.recipes import base_model, selection_kwargs
from ragen_trl.config.starpo import AStarPOConfig, StarPOConfig
from ragen_trl.errors import OptionError
from ragen_trl.evaluation.evaluator import (
    BATCH_SIZE,
    EpisodeRecord,
    EvaluationResult,
    compared,
    held_out_starts,
    judged,
    play_in_batches,
)
from ragen_trl.evaluation.folder import StoredEpisode, read_episodes, write_episodes
from ragen_trl.imitation.fine_tuning import warm_start
from ragen_trl.monitoring.collapse_monitor import CollapseMonitor, check_rollback
from ragen_trl.policies.gguf_file import model_folder
from ragen_trl.policies.models import check_folder, check_named_policy, is_adapter, lora
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.reporting.recorder import TrajectoryRecorder, logged_failure, spread_steps
from ragen_trl.reporting.report import results_table, write_report
from ragen_trl.rollout.environments import about
from ragen_trl.rollout.interfaces import Policy
from ragen_trl.rollout.seeds import evaluation_rows, evaluation_seeds, training_rows
from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.progress import progress_bar
from ragen_trl.system.provenance import package_version, provenance
from ragen_trl.system.terminal import REPEAT
from ragen_trl.trainer import StarPOTrainer
from ragen_trl.training.checkpoints import StopOnInterrupt, last_resumable_checkpoint
from ragen_trl.training.model_card import add_results
from ragen_trl.training.training_bar import TrainingBar, show_progress

Say = Callable[[str], None]

# Options that say where and how to write, or how to step environments; they change no result.
_WITHOUT_EFFECT = {
    *option_names(ExecutionOptions),
    *("output_dir", "overwrite", "ddp_backend", "ddp_timeout", "logging_dir", "logging_steps", "log_completions"),
    *("report_to", "run_name", "save_steps", "save_strategy", "save_total_limit", "disable_tqdm", "record_rollouts"),
    # A run may go on with other servers.
    *("vllm_server_base_url", "vllm_server_host", "vllm_server_port", "vllm_server_timeout", "vllm_group_port"),
    *("vllm_adapter_dir", "vllm_enable_sleep_mode", "vllm_gpu_memory_utilization"),
}


class _AtStart(TrainerCallback):
    """Calls a function before the first update, when the launch has divided the model and put it on its devices."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Call it."""
        self._call()


def default_folder(run: RunArguments, seed: int) -> Path:
    """The run folder without ``--output_dir``: ``runs/frozenlake-starpo-s-seed42``, or with the preset's name."""
    name = re.sub(r"-v\d+$", "", run.env.rpartition("/")[2]).lower()
    model = "" if run.model is None else f"-{Path(run.model).name.lower().removesuffix('.gguf')}"
    return Path("runs") / f"{name}{model}-{run.preset or run.algo}-seed{seed}"


def evaluated(run: RunArguments, args: StarPOConfig) -> StarPOConfig:
    """The configuration of the evaluations: as in training, with ``eval_env_kwargs``."""
    changed = copy.copy(args)
    changes = json_object("eval_env_kwargs", run.eval_env_kwargs)
    changed.env_kwargs = {**json_object("env_kwargs", args.env_kwargs), **changes} or None
    return changed


def train(run: RunArguments, warm: WarmStartConfig, args: StarPOConfig, say: Say, config: str = "") -> dict[str, Any]:
    """Train: carry a run through all its stages.

    Args:
        run: Environment, algorithm, model.
        warm: The warm start of the embedded model.
        args: The training configuration; ``output_dir`` is the run folder.
        say: Receives lines about the progress.
        config: What is written as ``config.yaml``, if anything.

    Returns:
        The content of ``summary.json``, in every process; the main one writes the files.

    Raises:
        OptionError: For options that would fail later, or where the embedded model has no oracle to learn from.
        RunExistsError: If the folder holds a finished run or one with other settings, without ``run.overwrite``.
        KeyboardInterrupt: If Ctrl-C stopped it, after a checkpoint; the same command goes on from there.
    """
    with said_once():
        check(run, args)
        if args.use_vllm and not is_vllm_available():
            raise OptionError("use_vllm is True, but vLLM is not installed; pip install -e '.[vllm]', or leave it out")
    folder, held_out = Path(args.output_dir), evaluated(run, args)
    state = RunState(folder, _settings(run, warm, args), run.overwrite)
    if config and is_main():
        write_atomically(folder / "config.yaml", config)
    results: dict[str, EvaluationResult | str] = {}

    def evaluate(name: str, policy: Policy | str) -> None:
        found = state.value(name, lambda: _play(folder, name, policy, run, held_out).as_dict())
        results[name] = result = EvaluationResult(**found)
        say(f"{name:>8}: {result.in_words()}")

    say(f"evaluating random play and the oracle, {run.eval_episodes} episodes each")
    for name in ("random", "oracle"):
        if missing := missing_baseline(name, run.env, held_out):
            results[name] = missing
            say(f"{name:>8}: not played: {missing}")
        else:
            evaluate(name, name)

    model = str(_embedded(run, warm, args, state, say)) if run.model is None else model_folder(run.model, say)
    stop = StopOnInterrupt()
    trainer = _trainer(run, args, model, stop)
    monitor = None if run.monitor == "off" else CollapseMonitor(trainer, action=run.monitor)
    if monitor is not None:
        trainer.add_callback(monitor)

    def evaluate_model(name: str, called: str) -> None:
        say(f"evaluating the {called}, {run.eval_episodes} episodes")
        with trainer.unwrapped_model():  # whole weights, since processes play unequal numbers of turns
            evaluate(name, trainer.policy(run.eval_temperature))

    _fit(trainer, stop, state, say, lambda: evaluate_model("before", "model"))
    evaluate_model("trained", "trained model")
    trainer.save_model(str(folder / "model"))
    if isinstance(trainer, StarPOTrainer) and trainer.critic is not None:
        trainer.critic.save(folder / "critic")
    summary = _summary(run, warm, trainer, results, state)
    if monitor is not None:
        summary["monitor"] = monitor.summary()
    on_main(lambda: _write(folder, trainer.state.log_history, summary))
    state.finish()
    return summary


def check(run: RunArguments, args: StarPOConfig) -> None:
    """Raise the errors of `train` that depend on options only, before anything is created or computed."""
    if run.model is not None:
        check_folder(run.model)  # its play.json names the environment
        if is_adapter(run.model) and run.lora_r:
            raise OptionError(f"model {run.model!r} is an adapter, which goes on learning as it is; leave lora_r out")
    elif missing := missing_baseline("oracle", run.env, args):
        raise OptionError(f"{missing}. The embedded model learns its first steps from it; or give another by --model")
    if run.monitor == "rollback":
        check_rollback(args)
    held_out = evaluated(run, args)
    try:
        get_reporting_integration_callbacks(args.report_to)
        check_env(run.env, held_out)
    except (ValueError, TypeError) as error:
        raise OptionError(f"{error}; evaluations have {held_out.env_kwargs}, eval_env_kwargs changes it") from None
    training_rows(args)
    evaluation_seeds(run.eval_episodes)
    if args.eval_strategy != "no":
        evaluation_rows(args.num_eval_seeds)
    check_named_policy(run.model, args, lora(run.lora_r, run.lora_alpha))


def _play(folder: Path, name: str, policy: Policy | str, run: RunArguments, held_out: StarPOConfig) -> EvaluationResult:
    """Evaluate on all processes together, and keep the episodes; all processes get the result."""
    began, starts, played = time.perf_counter(), held_out_starts(run.eval_episodes), []
    rank = 0 if launched() == 1 else held_out.process_index
    with progress_bar(len(starts), "evaluate", "episode") as bar:
        for batch in play_in_batches(policy, run.env, held_out, starts, BATCH_SIZE, rank, launched()):
            played += [EpisodeRecord.of(trajectory) for trajectory in batch]
            bar.update(min(BATCH_SIZE * launched(), len(starts) - int(bar.n)))
    everyone = gather_object(played) if launched() > 1 else played
    records = sorted(everyone, key=lambda record: record.seed)
    seconds, version = time.perf_counter() - began, package_version()
    episodes = [StoredEpisode(0, seconds / len(records), record, version) for record in records]
    on_main(lambda: write_episodes(_episodes(folder, name), name, run.env, episodes))
    return judged(records, seconds)


def _episodes(folder: Path, name: str) -> Path:
    return folder / "episodes" / f"{name}.jsonl"


def _embedded(run: RunArguments, warm: WarmStartConfig, args: StarPOConfig, state: RunState, say: Say) -> Path:
    """The folder of the embedded model after its warm start."""
    folder = Path(args.output_dir) / "warm_start"
    if not on_main(folder.exists):
        say(f"warm start: {warm.demonstrations} demonstrations, noise {warm.noise:g}")
        began = time.perf_counter()
        kwargs = args.env_kwargs if isinstance(args.env_kwargs, dict) else None
        tokenizer = build_tiny_tokenizer(env=run.env, env_kwargs=kwargs)
        warm_start(build_tiny_model(tokenizer, args.seed), tokenizer, run.env, args, warm, folder)
        state.add("seconds_warm_start", time.perf_counter() - began)
    return folder


def _trainer(run: RunArguments, args: StarPOConfig, model: str, stop: StopOnInterrupt) -> StarPOTrainer:
    bonuses = []
    if run.consistency_weight:  # added to the environment's return; success ignores it
        args.reward_weights = [1.0, run.consistency_weight]
        bonuses = [consistency_reward]
    learns: Any = model
    if is_adapter(model):  # of an earlier run: it goes on learning
        base = AutoModelForCausalLM.from_pretrained(model_folder(str(base_model(model))), dtype="float32")
        learns = PeftModel.from_pretrained(base, model, is_trainable=True)
    kind = AStarPOTrainer if isinstance(args, AStarPOConfig) else StarPOTrainer
    trainer: StarPOTrainer = kind(
        *(learns, run.env, args),
        reward_funcs=bonuses,
        eval_dataset=_quick_rows(run, args),
        callbacks=[stop],
        peft_config=lora(run.lora_r, run.lora_alpha),
    )
    steps = spread_steps(args.max_steps, run.record_rollouts, max(1, round(args.steps_per_rollout)))
    trainer.observers.append(TrajectoryRecorder(args.output_dir, trainer.tokenizer, steps, "trackio" in args.report_to))
    return trainer


def _quick_rows(run: RunArguments, args: StarPOConfig) -> Dataset | None:
    """Rows of TRL's evaluation during training, where evaluations have arguments of their own."""
    if run.eval_env_kwargs is None or args.eval_strategy == "no":
        return None
    seeds = evaluation_rows(args.num_eval_seeds)["seed"]
    reported = json_object("env_kwargs", evaluated(run, args).env_kwargs)
    kwargs = json.dumps(selection_kwargs(run.env, reported))
    return Dataset.from_dict({"env": [run.env] * len(seeds), "seed": list(seeds), "kwargs": [kwargs] * len(seeds)})


def _fit(
    trainer: StarPOTrainer, stop: StopOnInterrupt, state: RunState, say: Say, evaluate: Callable[[], None]
) -> None:
    """Evaluate, and train, from the last checkpoint that a run can go on from, if there is one."""
    args = trainer.args
    checkpoint = on_main(lambda: last_resumable_checkpoint(args.output_dir, args.steps_per_rollout, args.max_steps))
    if checkpoint:
        say(f"going on from {checkpoint}")
    began, evaluated = time.perf_counter(), 0.0

    def at_start() -> None:
        nonlocal evaluated
        if isinstance(trainer, AStarPOTrainer) and checkpoint is None:
            say(f"reference: {trainer.values[0].in_words()}")
        evaluated -= time.perf_counter()
        evaluate()
        evaluated += time.perf_counter()
        say(f"training: {args.max_steps} update{'s' * (args.max_steps > 1)}")

    trainer.add_callback(_AtStart(at_start))
    show_progress(trainer, TrainingBar("train", {"success": "success", "return": "return", "entropy": "entropy"}))
    try:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    finally:
        stop.restore()
        state.add("seconds_training", time.perf_counter() - began - evaluated)
    if stop.stopped and trainer.state.global_step < trainer.state.max_steps:
        raise KeyboardInterrupt(
            f"Stopped after step {trainer.state.global_step} of {trainer.state.max_steps}. "
            f"The checkpoint is {args.output_dir}/checkpoint-{trainer.state.global_step}. {REPEAT}"
        )


def _write(folder: Path, history: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    write_atomically(folder / "history.json", json.dumps(history, default=float))
    write_atomically(folder / "summary.json", json.dumps(summary, indent=2, default=str))
    with logged_failure(f"no report on {folder}"):
        write_report([folder], folder / "report.html")
    others = summary["eval_env_kwargs"] if summary["eval_env_kwargs"] != summary["env_kwargs"] else None
    add_results(folder / "model", results_table(summary), json.dumps(others) if others else "")


def _summary(
    run: RunArguments,
    warm: WarmStartConfig,
    trainer: StarPOTrainer,
    results: Mapping[str, EvaluationResult | str],
    state: RunState,
) -> dict[str, Any]:
    args, history = trainer.args, trainer.state.log_history
    steps = [row["step_time"] for row in history if row.get("step_time")]
    seconds = {
        "warm_start": state.value("seconds_warm_start", float),
        "training": state.value("seconds_training", float),
        "evaluation": sum(found.seconds for found in results.values() if isinstance(found, EvaluationResult)),
    }
    reference = {"reference": trainer.values[0].summary()} if isinstance(trainer, AStarPOTrainer) else {}
    return {
        **provenance(),
        "seed": args.seed,
        "env": run.env,
        "env_kwargs": args.env_kwargs or {},
        "eval_env_kwargs": evaluated(run, args).env_kwargs or {},
        "environment": about(run.env, args),
        "algo": run.algo,
        "preset": run.preset,
        "model": run.model or "embedded tiny Qwen2",
        "warm_started": run.model is None,
        "num_processes": launched(),
        "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
        "config": _config(args) | (asdict(warm) if run.model is None else {}),
        "results": {name: _described(Path(args.output_dir), name, found) for name, found in results.items()},
        "seconds": {
            **seconds,
            "total": sum(seconds.values()),
            "step_median": statistics.median(steps) if steps else 0.0,
        },
        "trajectories": _trajectories(args, trainer.state.global_step, history),
        **reference,
    }


def _described(folder: Path, name: str, result: EvaluationResult | str) -> dict[str, Any]:
    """A result as the summary has it, with how much more often the policy succeeded than those before it."""
    if isinstance(result, str):
        return {"not_played": result}
    others = {"before": ("random",), "trained": ("random", "before")}.get(name, ())
    records = {each: [row.record for row in read_episodes(_episodes(folder, each))] for each in (name, *others)}
    pairs = {other: compared(records[name], records[other]) for other in others}
    found = {other: pair for other, pair in pairs.items() if pair is not None}  # not of runs that kept no episodes
    return result.as_dict() | ({"differences": found} if found else {})


def _settings(run: RunArguments, warm: WarmStartConfig, args: StarPOConfig) -> dict[str, Any]:
    settings = {**asdict(run), **(asdict(warm) if run.model is None else {}), **_config(args), "seed": args.seed}
    if launched() > 1:  # batch sizes are per process
        settings["num_processes"] = launched()
    return {key: value for key, value in settings.items() if key not in _WITHOUT_EFFECT}


def _config(args: StarPOConfig) -> dict[str, Any]:
    """The training options of the summary: ours, those that ours override, and those unlike TRL's defaults."""
    ours = {*option_names(PlayOptions), *option_names(CriticOptions)}
    ours |= {name for kind in type(args).__mro__ if "ragen_trl" in kind.__module__ for name in kind.__annotations__}
    ours |= {"per_device_train_batch_size", "gradient_accumulation_steps", "num_generations", "learning_rate"}
    inherited = {option.name: option.default for option in fields(GRPOConfig)}
    values = {option.name: getattr(args, option.name) for option in fields(args) if option.default is not MISSING}
    plain = {name: value for name, value in values.items() if isinstance(value, str | int | float | dict | list | None)}
    return {
        name: value
        for name, value in plain.items()
        if name != "hub_token" and (name in ours or value != inherited[name])
    }


def _trajectories(args: StarPOConfig, steps: int, history: list[dict[str, Any]]) -> dict[str, int]:
    """Trajectories sampled, refills included, and trained on (from logged means); A*-PO's reference episodes apart."""

    def over_the_run(name: str) -> int:
        found = [row[f"filter/{name}"] for row in history if f"filter/{name}" in row]
        return round(statistics.mean(found) * math.ceil(steps / args.steps_per_rollout)) if found else 0

    counts = {"sampled": over_the_run("trajectories_sampled"), "used": over_the_run("trajectories_used")}
    reference = [row["astar/reference_episodes"] for row in history if "astar/reference_episodes" in row]
    return {**counts, "reference": round(reference[-1])} if reference else counts
