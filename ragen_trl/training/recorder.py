"""Recorded rollouts: ``RUN/trajectories/step-000011.json.gz``, one file a rollout, JSON compressed with gzip.

``step`` is the first update that learns from the rollout; of several rollouts for one update the last one is kept.
``vocabulary`` has the text of each token id. ``trajectories`` are ordered by group, ``group_size`` of each.

A trajectory: `group`, `member`, `env`, `seed`, `outcome_seed` (or null), `return` (raw, extra rewards included),
`success`, `kept` (trained on), `limit` ("" at the task's end, else the limit or failure), `turns`.

A turn is what `describe_turn` says, which evaluated episodes keep too, and `prompt` (ids of the environment's tokens,
masked), `tokens` (ids that were sampled), `logprobs` of these if the policy gives them (nats, two digits after the
point), `advantage` (one number, or a list with one for each sampled token; missing if the group was dropped), and
`context` (number of tokens of a context that was rebuilt before `prompt`).
"""

import gzip
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import gather_object
from transformers import PreTrainedTokenizerBase, TrainerCallback

from ragen_trl.system.atomic import write_atomically
from ragen_trl.training.observers import RolloutEvent, logged_failure
from ragen_trl.trajectory import Turn

_LISTS = ("actions", "invalid_actions", "surplus_actions")
_FLAGS = ("format_is_valid", "action_is_valid")
_SECONDS = 5.0  # between two writings of the history
_LONGEST = 20_000  # characters of a text; of a longer one its two ends are kept


def recordings(folder: Path) -> list[Path]:
    """The files of a run's recorded rollouts, in the order in which they were played; maybe none."""
    return sorted(folder.glob("trajectories/step-*.json.gz"))


def write_recording(folder: Path, content: Mapping[str, Any]) -> Path:
    """Write a recording of a run, whole or not at all, the same bytes for the same content; returns the file."""
    path = folder / "trajectories" / f"step-{content['step']:06d}.json.gz"
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    write_atomically(path, gzip.compress(text.encode("ascii"), mtime=0))
    return path


class TrajectoryRecorder(TrainerCallback):
    """Writes what a report is made of while a training goes on: the rollouts of some steps, and ``history.json``.

    Every trainer has one, which records ``record_rollouts`` of its rollouts. The main process writes one file a
    rollout. A resumed run plays the same rollouts again and replaces their files. A file that cannot be written is
    logged, and training goes on.

    Args:
        folder: The run folder.
        tokenizer: Decodes the tokens.
        traces: Also send each trajectory to trackio as a trace, which must be installed and logged to (``report_to``).
    """

    def __init__(self, folder: str | Path, tokenizer: PreTrainedTokenizerBase, traces: bool = False) -> None:
        self.folder, self.traces = Path(folder), traces
        self.steps: tuple[int, ...] = ()  # the first updates that learn from the rollouts to record
        self.tokenizer = tokenizer
        self._written: float | None = None  # when the history was, in seconds; None: no training goes on

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Choose the steps, whose number is known now. What an earlier run has left here is not of this one."""
        self._written = -math.inf
        if state.is_world_process_zero and state.global_step == 0:
            for path in recordings(self.folder):
                path.unlink(missing_ok=True)
        self.steps = spread_steps(state.max_steps, args.record_rollouts, args.steps_per_rollout)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the history, at most every few seconds."""
        if self._written is not None and time.monotonic() > self._written + _SECONDS:
            self._write_history(state)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the whole history."""
        self._write_history(state)
        self._written = None

    def _write_history(self, state: Any) -> None:
        if state.is_world_process_zero:
            with logged_failure("history.json is not written"):
                write_atomically(self.folder / "history.json", json.dumps(state.log_history, default=float))
        self._written = time.monotonic()

    def on_rollout(self, event: RolloutEvent) -> None:
        """Write the rollout if its step is one of ``steps``; every process must call it."""
        step = event.step + 1
        if step not in self.steps:
            return
        everyone: list[dict[str, Any]] = gather_object(describe(event))
        if not PartialState().is_main_process:
            return
        trajectories = sorted(everyone, key=lambda found: (found["group"], found["member"]))
        used = {token for found in trajectories for turn in found["turns"] for token in turn["prompt"] + turn["tokens"]}
        vocabulary = {token: self.tokenizer.decode([token]) for token in sorted(used)}
        head = {"step": step, "group_size": event.rollout.group_size, "vocabulary": vocabulary}
        with logged_failure(f"the rollout of step {step} is not recorded"):
            write_recording(self.folder, {**head, "trajectories": trajectories})
        if self.traces:
            with logged_failure(f"the rollout of step {step} is not sent to trackio"):
                send_traces(step, trajectories)


def spread_steps(total: int, count: int, steps_per_rollout: int = 1) -> tuple[int, ...]:
    """At most ``count`` updates whose rollouts to record: the last, the first, and others evenly spread between them.

    Example:
        >>> spread_steps(200, 5)
        (1, 50, 100, 150, 200)
        >>> spread_steps(10, 3, steps_per_rollout=2)
        (1, 5, 9)
    """
    last = -(-total // steps_per_rollout) - 1  # the last rollout, from 0
    kept = min(count, last + 1)
    chosen = [place * last // (kept - 1) for place in range(kept)] if kept > 1 else [last] * kept
    return tuple(1 + place * steps_per_rollout for place in chosen)


def describe(event: RolloutEvent) -> list[dict[str, Any]]:
    """This process's trajectories as plain data with texts and token ids."""
    rollout, kept = event.rollout, set(event.kept)
    returns = rollout.returns.tolist()
    found = []
    for row, trajectory, advantages in zip(rollout.local_indices, rollout.trajectories, event.advantages, strict=True):
        group, member = divmod(row, rollout.group_size)
        left = None if advantages is None else iter(advantages)
        turns = [
            _turn(turn, None if left is None else [_rounded(next(left)) for _ in turn.reply_ids])
            for turn in trajectory.turns
        ]
        described = {
            "group": group,
            "member": member,
            "env": rollout.summaries[row].env,
            "seed": trajectory.seed,
            "outcome_seed": trajectory.outcome_seed,
            # Without an outcome, since the environment failed: what was paid before.
            "return": _rounded(trajectory.episode_return if math.isnan(returns[row]) else returns[row]),
            "success": trajectory.success,
            "kept": group in kept,
            "limit": trajectory.limit,
            "turns": turns,
        }
        found.append(described)
    return found


def describe_turn(turn: Turn) -> dict[str, Any]:
    """A turn as a reader sees it, plain data.

    Returns:
        ``observation``; ``reply``, as the environment read it, a forced prefix and the thought included; ``reward``;
        the flags and lists of its ``info`` that are there (``format_is_valid``, ``action_is_valid``; ``actions``,
        ``invalid_actions``, ``surplus_actions``); ``cut`` if the reply ran into the token limit.
    """
    described: dict[str, Any] = {
        "observation": _shortened(turn.observation),
        "reply": _shortened(turn.reply),
        "reward": _rounded(turn.reward),
    }
    described |= {key: [_shortened(str(text)) for text in turn.info[key]] for key in _LISTS if turn.info.get(key)}
    described |= {key: bool(turn.info[key]) for key in _FLAGS if key in turn.info}
    return described | ({"cut": True} if turn.cut else {})


def _turn(turn: Turn, advantages: list[float | None] | None) -> dict[str, Any]:
    described = {**describe_turn(turn), "prompt": list(turn.prompt_ids), "tokens": list(turn.reply_ids)}
    if turn.logprobs:
        described["logprobs"] = [round(value, 2) if math.isfinite(value) else None for value in turn.logprobs]
    if advantages:
        described["advantage"] = advantages if len(set(advantages)) > 1 else advantages[0]
    if turn.context_ids is not None:
        described["context"] = len(turn.context_ids)
    return described


def _shortened(text: str) -> str:
    half = _LONGEST // 2
    left_out = len(text) - 2 * half
    return text if left_out <= 0 else f"{text[:half]}\n[{left_out:,} characters are left out]\n{text[-half:]}"


def _rounded(value: float) -> float | None:
    """Six digits, which no reader misses and which make the files a third smaller; JSON has no NaN and no infinity."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def send_traces(step: int, trajectories: Sequence[Mapping[str, Any]]) -> None:
    """Log each trajectory to the open run of trackio as a conversation; its facts are the trace's metadata."""
    import trackio  # type: ignore[import-not-found]  # an optional dependency

    for trajectory in trajectories:
        messages = [
            {"role": role, "content": turn[text]}
            for turn in trajectory["turns"]
            for role, text in (("user", "observation"), ("assistant", "reply"))
        ]
        facts = {key: value for key, value in trajectory.items() if key != "turns"}
        trace = trackio.Trace(messages=messages, metadata={"step": step, **facts})
        trackio.log({"trajectory": trace, "train/global_step": step})
