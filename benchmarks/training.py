"""What the runner does in processes of their own: a warm start, its baselines, or one training run of the small model.

    python benchmarks/training.py FOLDER...    # reads FOLDER/settings.json and writes FOLDER/result.json

A process with one thread and one run has times and a peak of memory that are the run's own. A folder that has its
result is passed over, and a run that was killed starts again: it takes minutes.
"""

import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import gymnasium
import lessons
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, TrainerCallback
from transformers.trainer_callback import TrainerControl, TrainerState
from transformers.training_args import TrainingArguments

import ragen_trl
from ragen_trl import CollapseMonitor, RolloutBatch, Sampling, StarPOConfig, Trajectory, WarmStartConfig, warm_start
from ragen_trl.algorithms.advantages import group_advantages
from ragen_trl.algorithms.filtering import group_std
from ragen_trl.astar_po.reference_values import NothingToLearnError
from ragen_trl.batching.batch import sampled_mask, trajectory_batch, whole_rows
from ragen_trl.evaluation.evaluator import play_held_out, summarise
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.provenance import provenance
from ragen_trl.trainer import StarPOTrainer
from ragen_trl.training.observers import RolloutEvent
from ragen_trl.trl_seams import log_values

# Of every run, whatever is asked.
QUIET = {"bf16": False, "logging_steps": 1, "report_to": "none", "disable_tqdm": True, "save_strategy": "no"}
# Columns of a curve that are means over the updates since the evaluation before, by the key that is logged.
COLUMNS = {
    "entropy": "entropy",
    "grad_norm": "grad_norm",
    "in_group_std": "filter/in_group_std",
    "mutual_information": "collapse/mi",
}
_OF_AN_EVALUATION = ("n", "success", "success_low", "success_high", "mean_return", "format_valid", "turns")
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def main() -> None:
    """Do what the folders ask for and have not."""
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
    for folder in map(Path, sys.argv[1:]):
        if (folder / "result.json").exists():
            continue
        settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
        found = provenance()  # before anything is done: a commit may be made meanwhile
        origin = {name: found[name] for name in ("commit", "created", "versions", "machine")}
        began = time.process_time()
        result = {"warm_start": teach, "baselines": play_baselines, "run": train}[settings["kind"]](settings, folder)
        spent = {"cpu_seconds_in_all": round(time.process_time() - began, 1)}
        write_atomically(folder / "result.json", json.dumps({**origin, **spent, **result}, indent=1))


def teach(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Make a warm start, with seed 0 where none is given: ``FOLDER/model`` is there whole or not at all."""
    lesson, seed = settings["warm_start"], settings.get("seed", 0)
    args = StarPOConfig(
        output_dir=str(folder / "model"), seed=seed, **QUIET, **settings["play"], env_kwargs=lesson["env_kwargs"]
    )
    config = WarmStartConfig(**lesson["options"])
    if lesson.get("lesson"):
        tokenizer, episodes = getattr(lessons, lesson["lesson"])(settings["env"], args, config)
    else:
        tokenizer, episodes = build_tiny_tokenizer(env=settings["env"]), None
    model = build_tiny_model(tokenizer, seed, **lesson["model"])
    warm_start(model, tokenizer, settings["env"], args, config, folder / "model", episodes)
    return {"parameters": sum(parameter.numel() for parameter in model.parameters())}


def play_baselines(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The success of random play, the oracle and the warm start, which is also played greedily.

    ``end`` and ``spent`` are the warm start's, as if it were a run.
    """
    begins_with = folder.parent / settings["begins_with"]
    model, args = begins_with / "model", play_args(settings, folder)
    learnt = json.loads((begins_with / "result.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = {}
    for name, evaluation in settings["evaluations"].items():
        make = maker(evaluation)
        chat = ragen_trl.make_chat(AutoTokenizer.from_pretrained(model), ragen_trl.make_turns(make, args), args)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        loaded = AutoModelForCausalLM.from_pretrained(model).to(device)
        players: dict[str, Any] = {"random": "random", "oracle": "oracle"}
        for player, temperature in (("warm_start", 1.0), ("warm_start_greedy", 0.0)):
            players[player] = TransformersPolicy(loaded, chat, Sampling(args.max_reply_length, temperature))
        found[name] = {
            player: figures(play_held_out(policy, make, args, settings["episodes"]))
            for player, policy in players.items()
        }
    end = {name: players["warm_start"] for name, players in found.items()}
    return {"evaluations": found, "end": end, "spent": {"cpu_seconds": learnt["cpu_seconds_in_all"]}}


def train(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """One run.

    Returns:
        ``curve``: a column of numbers each for steps, trajectories (those of a reference among them), success, return
        and what else was measured, with an entry an evaluation; ``end``: all evaluations of the trained model;
        ``spent``: seconds, MiB and nats; ``signal``: gradients by quarters of the groups; ``history``: what was logged.
    """
    model, total = folder.parent / settings["begins_with"] / "model", settings["trajectories"]
    evaluations = {name: maker(evaluation) for name, evaluation in settings["evaluations"].items()}
    first = next(iter(evaluations.values()))
    with tempfile.TemporaryDirectory() as scratch:
        held_out = play_args(settings, Path(scratch))  # before the trainer: a new configuration resets Accelerate
        config, trainer_class = getattr(ragen_trl, settings["config"]), getattr(ragen_trl, settings["trainer"])
        args = config(
            output_dir=scratch,
            seed=settings["seed"],
            **{**QUIET, **settings["play"], **settings["options"], "env_kwargs": settings["env_kwargs"]},
        )
        trainer = trainer_class(
            str(model),
            settings["env"],
            args,
            processing_class=AutoTokenizer.from_pretrained(model),
            peft_config=LoraConfig(**settings["lora"]) if settings.get("lora") else None,
        )
        reference = AutoModelForCausalLM.from_pretrained(model)

        def measure() -> dict[str, float]:
            episodes = play_held_out(trainer.policy(1.0), first, held_out, settings["episodes"])
            result = summarise(episodes)
            return {"success": result.success, "return": result.mean_return, "kl": distance(episodes, reference)}

        curve = Curve(measure, total, total / settings["evaluations_per_run"], args.steps_per_rollout)
        # One thread takes seconds for 32 thoughts after each of 32 messages.
        thoughts = {"mi_every": 8, "mi_pairs": 32} if args.think else {"mi_every": 0}
        trainer.add_callback(CollapseMonitor(trainer, **thoughts))
        if settings.get("signal_every"):
            SpreadGradients(trainer, settings["signal_every"])
        trainer.add_callback(curve)
        curve.begin()
        try:
            trainer.train()
        except NothingToLearnError as refusal:  # as it should after so short a warm start
            if not settings.get("smoke"):
                raise
            return {"refused": str(refusal)}
        curve.finish(trainer.state.global_step)
        history = trainer.state.log_history
        return {
            "curve": columns(curve.rows, history),
            "end": {
                name: figures(play_held_out(trainer.policy(1.0), make, held_out, settings["episodes"]))
                for name, make in evaluations.items()
            },
            "spent": {**curve.spent, "kl": curve.rows[-1]["kl"]},
            "signal": by_quarters(history),
            "history": history,
        }


def play_args(settings: Mapping[str, Any], folder: Path) -> StarPOConfig:
    """Turn limits and reply format, which all variants share."""
    return StarPOConfig(output_dir=str(folder / "play"), seed=0, **QUIET, **settings["play"])


class PromptsByNumber(gymnasium.Wrapper):
    """Seed i plays prompt number i of the split, so that the first 256 evaluation seeds are the 256 fixed prompts."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts an episode; without a seed, the prompt is drawn."""
        number = {} if seed is None else {"index": seed}
        return self.env.reset(seed=seed, options={**(options or {}), **number})


def maker(evaluation: Mapping[str, Any]) -> Callable[[], gymnasium.Env[str, str]]:
    """A function that makes the environment of an evaluation: ``env``, ``env_kwargs``, and perhaps ``by_number``."""

    def make() -> gymnasium.Env[str, str]:
        made = gymnasium.make(evaluation["env"], disable_env_checker=True, **evaluation["env_kwargs"])
        return PromptsByNumber(made) if evaluation.get("by_number") else made

    return make


def figures(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """What is kept of an evaluation."""
    found = asdict(summarise(trajectories))
    return {name: rounded(found[name]) for name in _OF_AN_EVALUATION} | {
        "tokens_per_turn": rounded(found["reply_tokens"] / found["turns"])
    }


def rounded(value: float) -> float:
    """A number with five significant digits."""
    return float(f"{value:.5g}") if isinstance(value, float) else value


class Curve(TrainerCallback):
    """Evaluates a run at equal numbers of sampled trajectories, and ends it at a number of them.

    Variants are compared at equal numbers of trajectories: an update of one uses 128, of another 32. Times are without
    evaluations.

    Args:
        measure: Plays the held-out episodes with the model in training; its figures make a row.
        trajectories: The run ends with the rollout that reaches this number. Those of a reference policy count.
        every: Trajectories from one evaluation to the next.
        steps_per_rollout: Updates on one rollout; nothing is measured between them.

    Attributes:
        rows: The evaluations, each with the step and the trajectories and CPU seconds that were spent up to there.
        spent: ``seconds``, ``cpu_seconds`` and the ``peak_mib`` of the run.
    """

    def __init__(
        self, measure: Callable[[], dict[str, float]], trajectories: int, every: float, steps_per_rollout: float
    ) -> None:
        self._measure, self._end, self._every = measure, trajectories, every
        self._steps_per_rollout = max(1, round(steps_per_rollout))
        self.rows: list[dict[str, Any]] = []
        self.spent = {"seconds": 0.0, "cpu_seconds": 0.0, "peak_mib": 0.0}
        self._played = self._reference_played = 0
        self._due = 0.0
        self._clock = 0.0, 0.0

    def begin(self) -> None:
        """Evaluate before training, then start the clocks."""
        self._add_row(step=0)
        self._resume()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Count what an update sampled; evaluate when that is due, and stop at the number of trajectories."""
        if logs is None or "train_runtime" in logs:
            return
        self._played += round(logs.get("filter/trajectories_sampled", 0))
        self._reference_played = round(logs.get("astar/reference_episodes", self._reference_played))
        if state.global_step % self._steps_per_rollout:
            return
        sampled = self._played + self._reference_played
        if sampled >= self._due:
            self._pause()
            self._add_row(state.global_step)
            self._resume()
        control.should_training_stop = control.should_training_stop or sampled >= self._end

    def finish(self, step: int) -> None:
        """Stop the clocks, and evaluate unless the last row is that already."""
        self._pause()
        if self.rows[-1]["step"] < step:
            self._add_row(step)

    def _add_row(self, step: int) -> None:
        sampled = self._played + self._reference_played
        self._due = (sampled // self._every + 1) * self._every
        spent = {"step": step, "trajectories": sampled, "cpu_seconds": self.spent["cpu_seconds"]}
        self.rows.append({**spent, **self._measure()})

    def _pause(self) -> None:
        wall, cpu = self._clock
        self.spent["seconds"] += time.perf_counter() - wall
        self.spent["cpu_seconds"] += time.process_time() - cpu
        self.spent["peak_mib"] = max(self.spent["peak_mib"], peak_memory())

    def _resume(self) -> None:
        if _RESET.exists():
            _RESET.write_text("5")  # count the peak from here: evaluations use memory too, and are no part of a method
        self._clock = time.perf_counter(), time.process_time()


def columns(rows: Sequence[Mapping[str, Any]], history: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """The curve: a column each of the rows' figures and, from the second on, of the means since the row before."""
    found: dict[str, list[float | None]] = {name: [rounded(row[name]) for row in rows] for name in rows[0]}
    for name, key in COLUMNS.items():
        means: list[float | None] = [None]
        for before, row in zip(rows, rows[1:], strict=False):
            logged = [each[key] for each in history if before["step"] < each["step"] <= row["step"] and key in each]
            means.append(rounded(fmean(logged)) if logged else None)
        if any(mean is not None for mean in means):
            found[name] = means
    return found


def distance(trajectories: Sequence[Trajectory], reference: PreTrainedModel, batch_size: int = 16) -> float:
    r"""KL to the reference, :math:`\mathrm E_\pi \sum_{t: m_t = 1} \log \pi(y_t) - \log \pi_{ref}(y_t)`, in nats.

    Args:
        trajectories: Sampled from π at temperature 1.
        reference: π_ref.
        batch_size: Trajectories per forward pass.

    Returns:
        Mean over the trajectories, an estimate that may fall below 0.
    """
    ratios: list[float] = []
    for first in range(0, len(trajectories), batch_size):
        batch = trajectory_batch(trajectories[first : first + batch_size], pad_id=0)
        with torch.no_grad():
            logprobs, _ = _scores(reference, batch)
        ratios += ((batch["sampling_per_token_logps"] - logprobs) * sampled_mask(batch)).sum(dim=1).tolist()
    return fmean(ratios)


def _scores(model: PreTrainedModel, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies (nats) of all completion tokens, (B, T) each."""
    ids, attention = whole_rows(batch)
    sampled = batch["completion_ids"]
    logits = model(input_ids=ids, attention_mask=attention).logits[:, -sampled.shape[1] - 1 : -1]
    logprobs = torch.log_softmax(logits, dim=-1)  # (B, T, V)
    return logprobs.gather(-1, sampled[..., None]).squeeze(-1), -(logprobs.exp() * logprobs).sum(dim=-1)


def peak_memory() -> float:
    """Most MiB that this process has held since the peak was reset; NaN where the system is not Linux."""
    if not _STATUS.exists():
        return math.nan
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


class SpreadGradients:
    """Logs how large the gradient of a group is by the spread of its returns, as RAGEN-2 asks (arXiv 2604.06268).

    Its argument: the gradient of the task is bounded by the standard deviation of a prompt's returns, that of a
    regulariser is not, so groups of little spread train the regulariser alone. An observer of rollouts; training takes
    the same steps as without it.

    Args:
        trainer: Whose rollouts are measured.
        every: Rollouts from one measurement to the next.
    """

    def __init__(self, trainer: StarPOTrainer, every: int) -> None:
        self._trainer, self._every, self._seen = trainer, every, 0
        trainer.observers.append(self)

    def on_rollout(self, event: RolloutEvent) -> None:
        """Measure this rollout if it is its turn."""
        if self._seen % self._every == 0:
            found = gradients_by_spread(self._trainer.model, event.rollout)
            log_values(self._trainer, "train", {f"signal/{name}": value for name, value in found.items()})
        self._seen += 1


def gradients_by_spread(model: PreTrainedModel, rollout: RolloutBatch, buckets: int = 4) -> dict[str, float]:
    """Norms of a rollout's gradients, by quarters of its groups.

    Args:
        model: The policy that played.
        rollout: At least as many groups as buckets, of two trajectories or more; all on this process.
        buckets: How many parts, of equal size as far as possible.

    Returns:
        ``std_i`` (mean standard deviation of returns), ``task_i`` (norm of the gradient of Σ A log π a trajectory) and
        ``entropy_i`` (of the mean entropy), i = 1 being the part with the least spread.
    """
    stds = group_std(rollout.returns, rollout.group_size)
    advantages = group_advantages(rollout.returns, rollout.group_size, "mean", "none")
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    found: dict[str, float] = {}
    for number, groups in enumerate(torch.argsort(stds, stable=True).tensor_split(buckets), start=1):
        rows = [row for row in range(len(rollout.trajectories)) if row // rollout.group_size in groups.tolist()]
        batch = trajectory_batch([rollout.trajectories[row] for row in rows], pad_id=0)
        mask, (logprobs, entropy) = sampled_mask(batch), _scores(model, batch)
        task = (advantages[rows][:, None] * logprobs * mask).sum() / len(rows)
        losses = {"task": task, "entropy": (entropy * mask).sum() / mask.sum()}
        found[f"std_{number}"] = stds[groups].mean().item()
        for name, loss in losses.items():
            gradients = torch.autograd.grad(loss, parameters, retain_graph=name == "task")
            found[f"{name}_{number}"] = math.sqrt(sum(gradient.square().sum().item() for gradient in gradients))
    return found


def by_quarters(history: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Means over the measured rollouts of what `gradients_by_spread` found, from the quarter with the least spread."""
    found: dict[str, list[float]] = {}
    for name in ("std", "task", "entropy"):
        quarters = [[row[key] for row in history if key in row] for key in (f"signal/{name}_{i}" for i in range(1, 5))]
        if all(quarters):
            found[name] = [rounded(fmean(values)) for values in quarters]
    return found


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
