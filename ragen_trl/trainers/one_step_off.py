"""One step off (``one_step_off_policy``): the next rollout is played while the present one is trained on.

It begins in a thread when a rollout is filtered and refilled, with the weights of this moment: a copy of the policy, or
what vLLM was just sent. Start states, seeds, environments and weights are fixed then, however long anything takes.
Whatever else plays waits for it. Errors of the thread are raised where the trainer takes the rollout. A checkpoint
waits for it, too, and holds it, because the weights that played it are gone.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import gather_object

from ragen_trl.errors import UserError
from ragen_trl.policies.frozen_copy import FrozenCopy
from ragen_trl.rollout.interfaces import Policy, PolicyAround, Reply, Request, Start
from ragen_trl.system.atomic import write_atomically
from ragen_trl.trainers.arguments import check_call
from ragen_trl.trainers.checks import check_played
from ragen_trl.trainers.rollout import LaunchError, RolloutTrainer
from ragen_trl.trajectory import Trajectory, from_json, to_json

logger = logging.getLogger(__name__)

_FILE = "rollout_ahead.json"
_PATIENCE = 5.0  # seconds that the end of a run waits for a rollout that nobody will train on


class RolloutAheadError(UserError, RuntimeError):
    """The rollout that was played ahead is not the one that the trainer asks for."""


class _Stopped(Exception):
    """Nobody waits for the rollout any more."""


class _StopsWhenTold(PolicyAround):
    """A policy that stops before its next turn when ``stopped`` is set; attributes of ``inner`` are found here, too."""

    def __init__(self, inner: Policy, stopped: threading.Event) -> None:
        super().__init__(inner)
        self._stopped = stopped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        if self._stopped.is_set():
            raise _Stopped
        return super().reply(requests)


class RolloutAhead:
    """A rollout that is played in a thread of its own, or that a checkpoint held.

    Attributes:
        starts: Starts of this process's episodes.
        step: Optimizer steps of the weights that play it.
        played: The episodes, once it is over without an error.
        error: What the thread raised.
        seconds: How long they took.
    """

    def __init__(self, starts: list[Start], step: int) -> None:
        self.starts, self.step = starts, step
        self.played: list[Trajectory] | None = None
        self.error: BaseException | None = None
        self.seconds = 0.0
        self.stopped = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def held(cls, starts: list[Start], step: int, played: list[Trajectory]) -> "RolloutAhead":
        """One that is over."""
        ahead = cls(starts, step)
        ahead.played = played
        ahead._over.set()
        return ahead

    @property
    def over(self) -> bool:
        """Whether the thread has ended."""
        return self._over.is_set()

    def begin(self, play: Callable[[], list[Trajectory]]) -> None:
        """Play in a thread, which does not keep the process alive, on the device that is current here."""
        device = torch.accelerator.current_device_index() if torch.accelerator.is_available() else None
        self._thread = threading.Thread(target=self._run, args=(play, device), name="rollout ahead", daemon=True)
        self._thread.start()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until it is over; Ctrl-C interrupts this. `RolloutAheadError` in the rollout's own thread."""
        if threading.current_thread() is self._thread:
            raise RolloutAheadError(
                "the hook rollout asked the trainer for a policy or an evaluation, while it is played ahead of "
                "training; play the policy that the hook is given, or set one_step_off_policy=False"
            )
        self._over.wait(seconds)

    def result(self) -> list[Trajectory]:
        """The episodes; waits for them, and raises what the thread raised."""
        self.wait()
        if self.error is not None:
            raise self.error
        return cast(list[Trajectory], self.played)  # what a hook returned: checked where it is used

    def _run(self, play: Callable[[], list[Trajectory]], device: int | None) -> None:
        began = time.perf_counter()
        try:
            if device is not None:  # a new thread begins with the machine's first device
                torch.accelerator.set_device_index(device)
            self.played = play()
        except BaseException as error:  # such as SystemExit: raised again in the main thread
            self.error = error
        finally:
            self.seconds = time.perf_counter() - began
            self._over.set()


class OneStepOffTrainer(RolloutTrainer):
    """`RolloutTrainer` with rollouts that are played ahead, if ``args.one_step_off_policy`` is set.

    Arguments and errors are those of `RolloutTrainer`.

    Attributes:
        staleness: Rollouts that were trained on between the weights that played the present one and those that it is
            trained with: 0 or 1.

    Raises:
        LaunchError: If rollouts are played ahead by a copy of weights that the launch splits.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        check_call(type(self), RolloutTrainer.__init__, args, kwargs)
        super().__init__(*args, **kwargs)
        self.staleness = 0
        self._ahead: RolloutAhead | None = None
        self._copy = FrozenCopy()
        self._indices: list[list[int]] = []  # of the rows of each rollout of an epoch

    def _check_launch(self) -> None:
        super()._check_launch()
        if self.args.one_step_off_policy and not self.use_vllm and (self.is_deepspeed_enabled or self.is_fsdp_enabled):
            raise LaunchError(
                "one_step_off_policy copies the policy's weights for the rollout, but "
                f"{self.accelerator.distributed_type.value} holds them; sample with a vLLM server (use_vllm=True, "
                "vllm_mode='server'), launch with DDP, or set one_step_off_policy=False"
            )

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As in TRL."""
        self._finish_ahead()
        self._ahead, self.staleness = None, 0
        if self.args.one_step_off_policy:
            self._indices = self.rows_of_rollouts()
            if isinstance(resume_from_checkpoint, str):
                self._ahead = self._read(Path(resume_from_checkpoint) / _FILE)
        try:
            return super().train(resume_from_checkpoint, *args, **kwargs)
        finally:
            if self._ahead is not None:
                if not self.use_vllm or self.accelerator.num_processes == 1:
                    self._ahead.stopped.set()  # processes that share a server end it together, after its last turn
                self._ahead.wait(_PATIENCE)

    def policy(self, *args: Any, **kwargs: Any) -> Policy:
        """As in `RolloutTrainer`; waits for the rollout that is played ahead, which has vLLM for itself."""
        self._finish_ahead()
        return super().policy(*args, **kwargs)

    def send_weights(self) -> None:
        """As in `TRLAdapter`; a rollout that is played ahead keeps the weights that it began with."""
        if self._ahead is None or self._ahead.over:
            super().send_weights()

    def play_ahead(self) -> None:
        """Begin the next rollout, if there is one, with the present weights."""
        rollout = self.rollouts_before + 1
        if not self.args.one_step_off_policy or rollout >= self.num_rollouts:
            return
        rows = self._rows_ahead(rollout)
        starts = self._starts(rows, "train", 0, ahead=round(self.args.steps_per_rollout))
        envs = self._environments(rows)
        model = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        if self.use_vllm:
            self.send_weights()
        else:
            model = self._copy.take(model)
        policy = self.policy(self.temperature, model)
        self._ahead = ahead = RolloutAhead(starts, self.state.global_step)
        ahead.begin(lambda: self.rollout(starts, envs, _StopsWhenTold(policy, ahead.stopped)))

    def _played(self, rows: list[dict[str, Any]], mode: str, attempt: int) -> tuple[list[Trajectory], float]:
        """As in `RolloutTrainer`, or what was played ahead of these rows."""
        began = time.perf_counter()
        self._finish_ahead()
        if not self.args.one_step_off_policy or mode != "train" or attempt:
            return super()._played(rows, mode, attempt)
        ahead, self._ahead = self._ahead, None
        self.staleness = int(ahead is not None)
        waited = {"rollout/wait_seconds": time.perf_counter() - began} if ahead is not None else {}
        self.record("train", {"rollout/staleness": float(self.staleness), **waited})
        if ahead is None:
            return super()._played(rows, mode, attempt)
        if self.use_vllm:
            self.send_weights()  # or TRL would, which rounds the base of a LoRA
        played = ahead.result()
        starts = self._starts(rows, mode, attempt)
        self._check_asked(ahead, starts)
        check_played(played, starts, self._places_differ)
        return played, ahead.seconds

    def _check_asked(self, ahead: RolloutAhead, starts: list[Start]) -> None:
        asked, found = [start.seed for start in starts], [start.seed for start in ahead.starts]
        steps = self.state.global_step - round(self.args.steps_per_rollout)
        if ahead.starts != starts or ahead.step != steps:
            raise RolloutAheadError(
                f"step {self.state.global_step + 1} asks for episodes from the start states {asked}, but after step "
                f"{ahead.step} those from {found} were played ahead; resume with the options that the run began with, "
                "leave the order of rows to the trainer, or set one_step_off_policy=False"
            )

    def _rows_ahead(self, rollout: int) -> list[dict[str, Any]]:
        """This process's rows of a rollout, as TRL's data loader will hand them over."""
        indices = self._indices[rollout % len(self._indices)]
        local = len(indices) // self.accelerator.num_processes
        first = self.accelerator.process_index * local
        return [dict(self._tasks.rows[index]) for index in indices[first : first + local]]

    def _finish_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.wait()

    # Checkpoints

    def save_rollout(self, folder: Path) -> None:
        """Write the rollout that was played ahead, of all processes, unless it failed."""
        ahead = self._ahead
        if ahead is None:
            return
        ahead.wait()
        own = [(vars(start), to_json(played)) for start, played in zip(ahead.starts, ahead.played or [], strict=False)]
        everyone = gather_object([own])
        if self.args.should_save and all(everyone):  # one process, or one on each node
            rows = [row for of_process in everyone for row in of_process]
            write_atomically(folder / _FILE, json.dumps({"step": ahead.step, "rows": rows}))

    def _read(self, path: Path) -> RolloutAhead | None:
        """This process's part of what `save_rollout` wrote."""
        if not path.is_file():
            return None
        content = json.loads(path.read_text(encoding="utf-8"))
        local = len(content["rows"]) // self.accelerator.num_processes
        first = self.accelerator.process_index * local
        rows = content["rows"][first : first + local]
        starts = [Start(**start) for start, _ in rows]
        return RolloutAhead.held(starts, content["step"], [from_json(played) for _, played in rows])
