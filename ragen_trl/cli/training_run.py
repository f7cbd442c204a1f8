"""A whole training run: warm start, evaluation before and after training, summary and report.

Each stage writes its result to the run folder, whole or not at all; the same command continues after the last one.
"""

import copy
import json
import re
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import TrainerCallback
from transformers.integrations.integration_utils import get_reporting_integration_callbacks
from trl import GRPOConfig

from ragen_envs import EnvError, NoOracleError
from ragen_trl.astar_po.trainer import AStarPOTrainer
from ragen_trl.cli.options import check_env
from ragen_trl.config.options import ExecutionOptions, RunArguments, WarmStartConfig, json_object, option_names
from ragen_trl.config.starpo import AStarPOConfig, StarPOConfig
from ragen_trl.errors import REPEAT, OptionError
from ragen_trl.evaluation.evaluator import Row, held_out_starts, judged, with_differences
from ragen_trl.evaluation.folder import EpisodeFile
from ragen_trl.imitation.fine_tuning import warm_start
from ragen_trl.monitoring.collapse_monitor import CollapseMonitor, check_rollback
from ragen_trl.policies.models import check_model, check_policy, lora
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.reporting.report import lost_files, write_report
from ragen_trl.rollout.environments import about
from ragen_trl.rollout.interfaces import Policy
from ragen_trl.rollout.seeds import evaluation_seeds, selection_seeds, training_starts
from ragen_trl.system.atomic import clear, damage, read_json, write_atomically
from ragen_trl.system.processes import is_main, launched, on_main
from ragen_trl.system.progress import progress_bar, show_metrics
from ragen_trl.system.provenance import provenance
from ragen_trl.trainer import StarPOTrainer
from ragen_trl.training.checkpoints import StopOnInterrupt, whole_checkpoints
from ragen_trl.training.observers import logged_failure

Say = Callable[[str], None]

_ADVICE = "pass --overwrite true to start again, or choose another --output_dir"
# Options that say where and how to write, or how to step environments; they change no result.
_WITHOUT_EFFECT = {
    *option_names(ExecutionOptions),
    *("output_dir", "overwrite", "ddp_backend", "ddp_timeout", "logging_dir", "logging_steps"),
    *("report_to", "run_name", "save_steps", "save_strategy", "save_total_limit", "disable_tqdm", "record_rollouts"),
    # A run may go on with other servers.
    *("vllm_server_base_url", "vllm_server_host", "vllm_server_port", "vllm_server_timeout", "vllm_group_port"),
    *("vllm_enable_sleep_mode", "vllm_gpu_memory_utilization"),
}


def default_folder(run: RunArguments, seed: int) -> Path:
    """The run folder without ``--output_dir``: ``runs/frozenlake-starpo-s-seed42``."""
    name = re.sub(r"-v\d+$", "", run.env.rpartition("/")[2]).lower()
    model = "" if run.model is None else f"-{Path(run.model).name.lower()}"
    return Path("runs") / f"{name}{model}-{run.algo}-seed{seed}"


def evaluated(run: RunArguments, args: StarPOConfig) -> StarPOConfig:
    """The configuration of the evaluations: as in training, with ``eval_env_kwargs``."""
    changed = copy.copy(args)
    changes = json_object("eval_env_kwargs", run.eval_env_kwargs)
    changed.env_kwargs = {**json_object("env_kwargs", args.env_kwargs), **changes} or None
    return changed


def check(run: RunArguments, args: StarPOConfig) -> None:
    """Raise the errors of `train` that depend on options only, before anything is created or computed."""
    if run.model is not None:
        check_model(run.model)
    if run.monitor == "rollback":
        check_rollback(args)
    held_out = evaluated(run, args)
    try:
        get_reporting_integration_callbacks(args.report_to)
        check_env(run.env, held_out)
    except (ValueError, TypeError) as error:
        raise OptionError(f"{error}; evaluations have {held_out.env_kwargs}, eval_env_kwargs changes it") from None
    training_starts(args)
    evaluation_seeds(run.eval_episodes)
    if args.eval_strategy != "no":
        selection_seeds(args.num_eval_seeds)
    check_policy(run.model, args, run.lora_r > 0)


def open_run(folder: Path, settings: Mapping[str, Any], overwrite: bool) -> None:
    """Keep the settings that a run's results depend on in ``stages.json``; with them the same command goes on.

    A folder with a finished run or other settings raises `OptionError` and is left as it is; ``overwrite`` deletes a
    run folder first, and nothing else.
    """
    path = folder / "stages.json"
    if overwrite and folder.exists():
        if {one.name for one in folder.iterdir()} - {".lock"} and not path.exists():
            raise OptionError(f"{folder} holds no run, so it is not replaced; choose another --output_dir")
        clear(folder, ".lock", path.name)  # which this process holds; what says that this is a run goes last
        path.unlink(missing_ok=True)
    new: dict[str, Any] = json.loads(json.dumps(dict(settings), default=str))
    stored = read_json(path, dict, _ADVICE) if path.exists() else {"settings": new}
    if not isinstance(old := stored.get("settings"), dict):
        raise OptionError(f"{path} is damaged (it has no settings); {_ADVICE}")
    if "finished" in stored or not path.exists() and (folder / "summary.json").exists():  # or an evaluation
        lost = ", ".join(lost_files(folder)) if "finished" in stored else ""
        if not lost or not whole_checkpoints(folder):
            found = f"without {lost} and without a checkpoint to make that of" if lost else "see its report.html"
            raise OptionError(f"{folder} holds a finished run, {found}; {_ADVICE}")
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    if changed := "; ".join(f"{key} was {old.get(key)!r}, now {new.get(key)!r}" for key in keys):
        raise OptionError(f"{folder} holds a run with other settings ({changed}); {_ADVICE}")
    write_atomically(path, json.dumps({**stored, "settings": new}, indent=2))


def train(run: RunArguments, warm: WarmStartConfig, args: StarPOConfig, say: Say, config: str = "") -> dict[str, Any]:
    """Carry a run, whose options `check` has passed, through all its stages; returns the content of ``summary.json``.

    ``config`` is written as ``config.yaml``. A folder with a finished run or one with other settings raises
    `OptionError`. Ctrl-C raises ``KeyboardInterrupt`` after a checkpoint, from which the same command goes on.
    """
    began, folder, held_out = time.perf_counter(), Path(args.output_dir), evaluated(run, args)
    options = {**asdict(run), **(asdict(warm) if run.model is None else {}), **_config(args), "seed": args.seed}
    if launched() > 1:  # batch sizes are per process
        options["num_processes"] = launched()
    settings = {key: options[key] for key in options if key not in _WITHOUT_EFFECT}
    on_main(lambda: open_run(folder, settings, run.overwrite))
    if config and is_main():
        write_atomically(folder / "config.yaml", config)
    results: dict[str, dict[str, Any]] = {}
    episodes: dict[str, list[Row]] = {}

    def evaluate(name: str, policy: Policy | str | None) -> None:
        episodes[name] = _play(folder, name, policy, run, held_out)
        found = judged(episodes[name])
        results[name] = asdict(found)
        say(f"{name:>8}: {found.in_words()}")

    say(f"evaluating random play and the oracle, {run.eval_episodes} episodes each")
    for name in ("random", "oracle"):
        try:
            evaluate(name, name)
        except EnvError as error:  # also of an oracle that cannot see the goal, as it is on a server
            results[name] = {"not_played": str(error)}
            say(f"{name:>8}: not played: {error}")

    model = str(_embedded(run, warm, args, say)) if run.model is None else run.model
    stop = StopOnInterrupt()
    trainer = _trainer(run, args, model, stop)
    monitor = None if run.monitor == "off" else CollapseMonitor(trainer, action=run.monitor)
    if monitor is not None:
        trainer.add_callback(monitor)

    def evaluate_model(name: str, called: str) -> None:
        say(f"evaluating the {called}, {run.eval_episodes} episodes")
        with trainer.unwrapped_model():  # whole weights, since processes play unequal numbers of turns
            evaluate(name, trainer.policy(run.eval_temperature))

    _fit(trainer, stop, say, lambda: evaluate_model("before", "model"))
    if "before" not in results:  # a run that goes on
        evaluate("before", None)
    evaluate_model("trained", "trained model")
    with_differences(results, episodes, "before", "random")
    with_differences(results, episodes, "trained", "random", "before")
    trainer.save_model(str(folder / "model"))
    if trainer.critic is not None:
        trainer.critic.save(folder / "critic.pt")
    summary = _summary(run, trainer, results, time.perf_counter() - began)
    if run.model is None:
        summary["config"] |= asdict(warm)
    if monitor is not None:
        summary["monitor"] = monitor.summary()
    on_main(lambda: _finish(folder, summary))
    return summary


def _play(folder: Path, name: str, policy: Policy | str | None, run: RunArguments, held_out: StarPOConfig) -> list[Row]:
    """Play what is missing of an evaluation on all processes together; all get its episodes.

    Without a policy, as for a model that is no longer what it was, the stored episodes are all there is.
    """
    file = EpisodeFile(folder / "episodes" / f"{name}.jsonl.gz", name, run.env)
    starts = held_out_starts(run.eval_episodes)
    file.rows = on_main(lambda: file.rows)  # the others may have another disk
    missing = file.missing(starts)
    if policy is not None and missing:
        rank = 0 if launched() == 1 else held_out.process_index
        with progress_bar(len(missing), "evaluate", "episode") as bar:
            file.play(policy, run.env, held_out, starts, bar, rank, launched())
    return file.of(starts)


def _embedded(run: RunArguments, warm: WarmStartConfig, args: StarPOConfig, say: Say) -> Path:
    """The folder of the embedded model after its warm start."""
    folder = Path(args.output_dir) / "warm_start"
    if on_main(lambda: damage(folder)):
        say(f"warm start: {warm.demonstrations} demonstrations, noise {warm.noise:g}")
        tokenizer = build_tiny_tokenizer(env=run.env, env_kwargs=json_object("env_kwargs", args.env_kwargs), args=args)
        try:
            warm_start(build_tiny_model(tokenizer, args.seed), tokenizer, run.env, args, warm, folder)
        except NoOracleError as error:
            raise OptionError(f"{error}: the embedded model learns from an oracle first, or name a --model") from error
    return folder


def _trainer(run: RunArguments, args: StarPOConfig, model: str, stop: StopOnInterrupt) -> StarPOTrainer:
    rows = None
    if run.eval_env_kwargs is not None and args.eval_strategy != "no":
        rows = quick_rows(run, args)
    kind = AStarPOTrainer if isinstance(args, AStarPOConfig) else StarPOTrainer
    adapter = lora(run.lora_r, run.lora_alpha)
    return kind(model, run.env, args, eval_dataset=rows, callbacks=[stop], peft_config=adapter)


def quick_rows(run: RunArguments, args: StarPOConfig) -> Dataset:
    """Rows of TRL's evaluation during training, where evaluations have arguments of their own.

    In WebShop's held-out splits a seed is the number of a goal, modulo their number, so the seeds kept for choosing a
    checkpoint would be goals that are reported: they play the other held-out split.
    """
    kwargs = json_object("env_kwargs", evaluated(run, args).env_kwargs)
    if run.env == "ragen/WebShop-v0" and kwargs.get("split") in ("test", "test_by_product"):
        kwargs["split"] = kwargs["split"].replace("test", "eval")
    of_all = {"env": run.env, "kwargs": json.dumps(kwargs)}
    return Dataset.from_list([{**of_all, "seed": seed} for seed in selection_seeds(args.num_eval_seeds)])


def _fit(trainer: StarPOTrainer, stop: StopOnInterrupt, say: Say, evaluate: Callable[[], None]) -> None:
    """Evaluate and train, or go on from the last checkpoint from which that is possible, without evaluating."""
    args = trainer.args

    class AtStart(TrainerCallback):
        """Evaluates before the first update, when the launch has divided the model and put it on its devices."""

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            if step := trainer.state.global_step:
                say(f"going on from {args.output_dir}/checkpoint-{step}")
            else:
                if isinstance(trainer, AStarPOTrainer):
                    say(f"reference: {trainer.values[0].in_words()}")
                evaluate()
            say(f"training: {args.max_steps} update{'s' * (args.max_steps > 1)}")

    trainer.add_callback(AtStart())
    show_metrics(trainer, "success", "return", "entropy")
    try:
        trainer.train(resume_from_checkpoint="last")
    finally:
        stop.on_train_end()
    if stop.stopped and trainer.state.global_step < trainer.state.max_steps:
        raise KeyboardInterrupt(
            f"Stopped after step {trainer.state.global_step} of {trainer.state.max_steps}. "
            f"The checkpoint is {args.output_dir}/checkpoint-{trainer.state.global_step}. {REPEAT}"
        )


def _finish(folder: Path, summary: dict[str, Any]) -> None:
    """Write the last files, then say that all are there. Before that, the same command writes what is missing."""
    write_atomically(folder / "summary.json", json.dumps(summary, indent=2, default=str))
    with logged_failure(f"no report on {folder}"):
        write_report([folder], folder / "report.html")
    stages = folder / "stages.json"
    write_atomically(stages, json.dumps({**read_json(stages, dict, _ADVICE), "finished": True}, indent=2))


def _summary(
    run: RunArguments, trainer: StarPOTrainer, results: Mapping[str, dict[str, Any]], total: float
) -> dict[str, Any]:
    """What was run, and what came out."""
    args, history = trainer.args, trainer.state.log_history
    steps = [row["step_time"] for row in history if row.get("step_time")] or [0.0]
    seconds = {"total": total, "step_median": statistics.median(steps)}  # total: of the last command
    summary = {
        **provenance(),
        "seed": args.seed,
        "env": run.env,
        "env_kwargs": args.env_kwargs or {},
        "eval_env_kwargs": evaluated(run, args).env_kwargs or {},
        "environment": about(run.env, args),
        "algo": run.algo,
        "model": run.model or "embedded tiny Qwen2",
        "warm_started": run.model is None,
        "num_processes": launched(),
        "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
        "config": _config(args),
        "results": results,
        "seconds": seconds,
    }
    if isinstance(trainer, AStarPOTrainer):
        summary["reference"] = trainer.values[0].summary()
    return summary


def _config(args: StarPOConfig) -> dict[str, Any]:
    """The training options of the summary: ours, those that ours override, and those unlike TRL's defaults."""
    ours = {name for kind in type(args).__mro__ if "ragen_trl" in kind.__module__ for name in kind.__annotations__}
    inherited = {option.name: option.default for option in fields(GRPOConfig)}
    values = {option.name: getattr(args, option.name) for option in fields(args) if option.default is not MISSING}
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, str | int | float | dict | list | None) and name != "hub_token"
        if name in ours or name == "learning_rate" or value != inherited[name]
    }
