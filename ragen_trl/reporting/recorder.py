"""Records chosen rollouts of a run: all their trajectories, with the advantages that they are trained with.

Every process describes its own trajectories, they are gathered once, and the main process writes one file per rollout.
A resumed run plays the same rollouts again and replaces their files.
"""

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import gather_object
from transformers import PreTrainedTokenizerBase

from ragen_trl.reporting.recorded import FORMAT, VERSION, recording_path, write_recording
from ragen_trl.reporting.token_pieces import TokenPieces
from ragen_trl.reporting.viewer import spread
from ragen_trl.training.observers import RolloutEvent
from ragen_trl.trajectory import Trajectory, Turn

_LISTS = ("actions", "invalid_actions", "surplus_actions")
_FLAGS = ("format_is_valid", "action_is_valid")


class TrajectoryRecorder:
    """Records the rollouts of some steps: ``trainer.observers.append(TrajectoryRecorder(...))``.

    Args:
        folder: The run folder.
        tokenizer: Decodes the tokens.
        steps: Which rollouts to record, by the number of the first update that learns from them: anything that supports
            ``step in steps``.
    """

    def __init__(self, folder: str | Path, tokenizer: PreTrainedTokenizerBase, steps: Container[int]) -> None:
        self.folder = Path(folder)
        self.steps = steps
        self._pieces = TokenPieces(tokenizer)
        self._last = (0, 0)  # step and number of the last rollout

    def on_rollout(self, event: RolloutEvent) -> None:
        """Write the rollout if its step is one of ``steps``; every process must call it."""
        step = event.step + 1
        rollout = self._last[1] + 1 if self._last[0] == step else 1
        self._last = (step, rollout)
        if step not in self.steps:
            return
        everyone: list[tuple[int, dict[str, Any]]] = gather_object(describe(event))
        if PartialState().is_main_process:
            trajectories = [found for _, found in sorted(everyone, key=lambda pair: pair[0])]
            head = {"step": step, "rollout": rollout, "group_size": event.rollout.group_size}
            write_recording(recording_path(self.folder, step, rollout), packed(head, trajectories, self._pieces))


def spread_steps(total: int, count: int, steps_per_rollout: int = 1) -> tuple[int, ...]:
    """At most ``count`` updates whose rollouts to record: the last, the first, and others evenly spread between them.

    Example:
        >>> spread_steps(200, 5)
        (1, 50, 100, 150, 200)
        >>> spread_steps(10, 3, steps_per_rollout=2)
        (1, 5, 9)
        >>> spread_steps(3, 20)
        (1, 2, 3)
    """
    chosen = spread(-(-total // steps_per_rollout), count) if count else []
    return tuple(1 + place * steps_per_rollout for place in chosen)


def describe(event: RolloutEvent) -> list[tuple[int, dict[str, Any]]]:
    """This process's trajectories as plain data with texts and token ids, each with its index among all."""
    rollout, kept = event.rollout, set(event.kept)
    returns = rollout.returns.tolist()
    found = []
    for row, trajectory, advantages in zip(rollout.local_indices, rollout.trajectories, event.advantages, strict=True):
        group, member = divmod(row, rollout.group_size)
        described = {
            "group": group,
            "member": member,
            "env": rollout.summaries[row].env,
            "seed": trajectory.seed,
            "outcome_seed": trajectory.outcome_seed,
            "return": _rounded(returns[row]),
            "success": trajectory.success,
            "kept": group in kept,
            "end": trajectory.limit,
            "turns": turns_of(trajectory, advantages),
        }
        found.append((row, described))
    return found


def packed(head: Mapping[str, Any], trajectories: Sequence[dict[str, Any]], pieces: TokenPieces) -> dict[str, Any]:
    """The content of a file with these head entries: texts and tokens are indices into lists that hold each once."""
    texts: dict[str, int] = {}
    vocabulary: dict[tuple[int, str], int] = {}

    def with_places(trajectory: dict[str, Any]) -> dict[str, Any]:
        ids = [token for turn in trajectory["turns"] for token in (*turn["prompt"], *turn["tokens"])]
        places = iter([vocabulary.setdefault(pair, len(vocabulary)) for pair in zip(ids, pieces.of(ids), strict=True)])
        turns = []
        for turn in trajectory["turns"]:
            changed: dict[str, Any] = {key: texts.setdefault(turn[key], len(texts)) for key in ("observation", "reply")}
            changed |= {key: [next(places) for _ in turn[key]] for key in ("prompt", "tokens")}
            turns.append({**turn, **changed})
        return {**trajectory, "turns": turns}

    rows = [with_places(trajectory) for trajectory in trajectories]
    lists = {"texts": list(texts), "vocabulary": [list(pair) for pair in vocabulary], "trajectories": rows}
    return {"format": FORMAT, "version": VERSION, **head, **lists}


def turns_of(trajectory: Trajectory, advantages: Sequence[float] | None) -> list[dict[str, Any]]:
    """The turns of a trajectory as plain data; ``advantages`` has one for each sampled token, or is ``None``."""
    left = None if advantages is None else iter(advantages)
    return [
        _turn(turn, None if left is None else [_rounded(next(left)) for _ in turn.reply_ids])
        for turn in trajectory.turns
    ]


def _turn(turn: Turn, advantages: list[float] | None) -> dict[str, Any]:
    described: dict[str, Any] = {
        "observation": turn.observation,
        "reply": turn.reply,
        "reward": _rounded(turn.reward),
        "prompt": list(turn.prompt_ids),
        "tokens": list(turn.reply_ids),
    }
    if advantages:
        described["advantage"] = advantages if len(set(advantages)) > 1 else advantages[0]
    described |= {key: [str(text) for text in turn.info[key]] for key in _LISTS if turn.info.get(key)}
    described |= {key: bool(turn.info[key]) for key in _FLAGS if key in turn.info}
    if turn.cut:
        described["cut"] = True
    if turn.context_ids is not None:
        described["context"] = len(turn.context_ids)
    return described


def _rounded(value: float) -> float:
    """Rounded to six digits, which no reader notices and which makes the files a third smaller."""
    return float(f"{value:.6g}")
