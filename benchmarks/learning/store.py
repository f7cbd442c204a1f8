"""Where results are: by what they depend on, so that a run that two questions share is made once.

A result's file is named after a digest of its settings. Nothing is overwritten: changed settings have another name, and
what was made with the old settings stays until the user deletes the folder. What an earlier machine made is in the
committed JSON, under the same digests; `Finished` looks in both.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from records.committed import Committed, Run, kept
from records.measures import measures

from learning.spec import Task, Variant, play_options, run_trajectories, training_options
from ragen_trl.config.play import LIMITS, MANNER, PlayOptions

# The options of a task that demonstrations and evaluations depend on: these as they are, since results were made with
# them in the digest, and the other ones of play where they are not at their defaults.
_PLAY = (
    *("think", "max_turns", "max_actions_per_turn", "max_actions", "max_reply_length", "max_completion_length"),
    "window_turns",
)
_FURTHER = {name: getattr(PlayOptions(), name) for name in (*LIMITS, *MANNER) if name not in _PLAY}
# Fields of a variant that name it, or that are for other scales.
_APART = ("label", "smoke", "paper")
# A digest holds the name that a class had when the first results were made, so that these are still found after the
# class has moved. Specs use the public name of a class where it has one; a class that moves gets a line here.
RECORDED_NAMES = {
    "ragen_trl:StarPOConfig": "ragen_trl.config:StarPOConfig",
    "ragen_trl:StarPOSConfig": "ragen_trl.config:StarPOSConfig",
    "ragen_trl:StarPOTrainer": "ragen_trl.starpo_trainer:StarPOTrainer",
    "ragen_trl:AStarPOConfig": "ragen_trl.astar_po_config:AStarPOConfig",
    "ragen_trl:AStarPOTrainer": "ragen_trl.astar_po_trainer:AStarPOTrainer",
    "learning.student_reports:FirstReportConfig": "ragen_trl.student_reports:FirstReportConfig",
    "learning.student_reports:FirstReportTrainer": "ragen_trl.student_reports:FirstReportTrainer",
    "learning.student_reports:SecondReportConfig": "ragen_trl.student_reports:SecondReportConfig",
    "learning.student_reports:SecondReportTrainer": "ragen_trl.student_reports:SecondReportTrainer",
}


def lesson_settings(task: Task) -> dict[str, Any]:
    """What the warm start depends on."""
    options = {**play_options(task), **task.warm_start.play}
    fields = asdict(task.warm_start)
    return {
        "env": task.env,
        "warm_start": {name: value for name, value in fields.items() if value or name not in ("lesson", "play")},
        "play": _play(options),
    }


def prepare_settings(task: Task) -> dict[str, Any]:
    """What the warm start and the baselines depend on."""
    options = play_options(task)
    settings = {
        **lesson_settings(task),
        "episodes": task.episodes,
        "evaluations": {name: asdict(evaluation) for name, evaluation in task.evaluations.items()},
        "play": _play(options),
    }
    return settings if task.model is None else {**settings, "warm_start": task.model, "temperature": task.temperature}


def _play(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of play among a task's options."""
    further = {name: options[name] for name, default in _FURTHER.items() if options.get(name, default) != default}
    return {name: options[name] for name in _PLAY if name in options} | further


def run_settings(task: Task, variant_name: str, variant: Variant, seed: int) -> dict[str, Any]:
    """What a run depends on."""
    fields = {name: value for name, value in asdict(variant).items() if name not in _APART}
    fields |= {name: RECORDED_NAMES.get(fields[name], fields[name]) for name in ("config", "trainer")}
    for name in ("lora", "signal_every"):  # these fields did not exist when the first results were made
        if not fields[name]:
            del fields[name]
    return {
        "prepared": prepare_settings(task),
        "variant": fields,
        "options": training_options(task, variant_name, variant),
        "trajectories": run_trajectories(task, variant),
        "evaluations_per_run": task.evaluations_per_run,
        "seed": seed,
    }


def digest(settings: Mapping[str, Any]) -> str:
    """A name for settings; equal settings have the same name, in any order."""
    text = json.dumps(settings, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def model_folder(folder: Path, task: Task) -> Path:
    """Where the model of a task's warm start is; if it is there, it is complete."""
    return folder / "models" / digest(lesson_settings(task))


def baselines_file(folder: Path, task: Task) -> Path:
    """Where the success of that model, of random play and of the oracle is."""
    return folder / "baselines" / f"{digest(prepare_settings(task))}.json"


def run_file(folder: Path, task: Task, variant_name: str, variant: Variant, seed: int) -> Path:
    """Where a run's result is."""
    return folder / "runs" / f"{digest(run_settings(task, variant_name, variant, seed))}.json"


def finished(path: Path) -> dict[str, Any] | None:
    """The result that an earlier process wrote, if there is one."""
    if not path.exists():
        return None
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


@dataclass(frozen=True)
class Finished:
    """The finished runs: those in a folder of this machine, and those of the committed JSON.

    Attributes:
        folder: Of the single results.
        committed: What the JSON of all questions holds.
    """

    folder: Path
    committed: Committed

    def run(self, task: Task, variant_name: str, variant: Variant, seed: int) -> Run | None:
        """The run with these settings, as a question's JSON holds it; the committed one, if both have one.

        Otherwise a question that is asked again here would show another result than the questions that share the run.
        """
        path = run_file(self.folder, task, variant_name, variant, seed)
        if path.stem in self.committed.runs:
            return self.committed.runs[path.stem]
        here = finished(path)
        return None if here is None else kept(here, path.stem)

    def measures(self, task: Task, variant_name: str, variant: Variant, seed: int) -> Mapping[str, Any] | None:
        """What is kept of that run's log; ``None`` where it was made before anything was."""
        path = run_file(self.folder, task, variant_name, variant, seed)
        here, shown = finished(path), self.run(task, variant_name, variant, seed)
        if here is None or "history" not in here or shown is None or shown["curve"] != kept(here, path.stem)["curve"]:
            return self.committed.measures.get(path.stem)
        return measures(here["history"])

    def prepared(self, task: Task) -> Mapping[str, Any] | None:
        """The warm start's success and the baselines; those of the JSON, as its runs were compared with them."""
        path = baselines_file(self.folder, task)
        if path.stem in self.committed.prepared:
            return self.committed.prepared[path.stem]
        here = finished(path)
        return None if here is None else {**here, "digest": path.stem, "model": model_folder(self.folder, task).name}
