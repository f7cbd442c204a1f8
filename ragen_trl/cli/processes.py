"""One command on several processes: who starts them, who writes and speaks, and how a stage is shared.

``accelerate launch``, ``torchrun`` and ``--num_processes`` set the variables of a launch (``WORLD_SIZE``, ``RANK``).
The main process alone writes files and prints; all play evaluations, warm-start and train. ``--num_processes`` starts
the others from the first one: torchrun's agent ends its workers with a second signal, which here means to stop without
a checkpoint, and Accelerate's launcher without MPI starts one process on a CPU, whatever number it is given.
"""

import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ragen_trl.errors import OptionError

if TYPE_CHECKING:
    from ragen_trl.config.starpo import StarPOConfig
    from ragen_trl.evaluation.evaluator import EpisodeRecord
    from ragen_trl.rollout.interfaces import Policy

Made = TypeVar("Made")
# Seconds for the others to end by themselves after the main process: it failed, or it is done.
_PATIENCE = (5.0, 60.0)


class ToldByMainError(SystemExit):
    """Another process raised the error and prints it; this one ends without a word."""


def rank() -> int:
    """Index of this process in the command."""
    return int(os.environ.get("RANK", "0"))


def is_main() -> bool:
    """Whether this is the process that writes and speaks; also before Accelerate knows of the others."""
    return rank() == 0


def launched() -> int:
    """How many processes this command was launched as."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def said_once() -> Iterator[None]:
    """For checks that fail alike in all processes: one says what is wrong, the others raise `ToldByMainError`."""
    try:
        yield
    except Exception as error:
        if os.environ.get("LOCAL_RANK", "0") != "0":
            raise ToldByMainError(2) from error
        raise


def check_number(asked: int) -> None:
    """Raise `OptionError` if ``num_processes`` asks for another number than was launched; 1 is the default."""
    if asked not in (1, launched()):
        raise OptionError(
            f"num_processes is {asked}, but {launched()} of this command run; leave it out, torchrun and accelerate "
            "launch have numbers of their own"
        )


def crowded(threads: int) -> str:
    """What to say where other programs keep the CPUs busy, with so many threads of this command; empty where not."""
    cpus, busy = os.cpu_count() or 1, os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if threads == 1 or threads <= cpus - busy + 0.5:
        return ""
    return (
        f"in the last minute {busy:.1f} threads shared {cpus} CPUs, and this command computes with {threads} threads, "
        "which wait for each other; beside other programs OMP_NUM_THREADS=1 before the command may be far faster"
    )


def on_processes(number: int, arguments: Sequence[str], run: Callable[[], int]) -> int:
    """Run a command as the first of ``number`` processes; the others run the same command until it has ended.

    One of several processes does not return but ends; alone, it returns the exit status of ``run``.
    """
    if number == 1 and launched() == 1:
        return run()
    if launched() > 1:
        return _leave(run)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    os.environ |= {"WORLD_SIZE": str(number), "LOCAL_WORLD_SIZE": str(number), "RANK": "0", "LOCAL_RANK": "0"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // number)))
    command = [sys.executable, "-m", "ragen_trl", *arguments]
    others = [
        subprocess.Popen(command, env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(1, number)
    ]
    return _leave(run, others)


def _leave(run: Callable[[], int], others: Sequence["subprocess.Popen[bytes]"] = ()) -> NoReturn:
    """Run the command, see the other processes off, and end this one at once.

    Python's own end was seen to abort in a thread of gloo, and to take the connection down first was seen to wait for
    ever for processes that had left.
    """
    status = 1
    try:
        status = run()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    for other in others:
        try:
            other.wait(_PATIENCE[status == 0])
        except subprocess.TimeoutExpired:
            other.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def on_main(make: Callable[[], Made]) -> Made:
    """What ``make`` returns in the main process, in all processes; `ToldByMainError` in the others if it fails."""
    if launched() == 1:
        return make()
    from accelerate.utils import broadcast_object_list

    found: list[Any] = [None, None]  # result, error
    try:
        if is_main():
            found[0] = make()
    except BaseException as error:
        found[1] = repr(error)
        raise
    finally:
        broadcast_object_list(found)
    if found[1] is not None:
        raise ToldByMainError(2)
    return found[0]  # type: ignore[no-any-return]


def play_together(policy: "Policy | str", env: str, args: "StarPOConfig", episodes: int) -> "list[EpisodeRecord]":
    """The episodes of `evaluate`, divided among the processes; all of them get all records, in order of start seeds."""
    from accelerate.utils import gather_object

    from ragen_trl.evaluation.evaluator import BATCH_SIZE, EpisodeRecord, held_out_starts, play_in_batches
    from ragen_trl.system.progress import progress_bar

    starts, played = held_out_starts(episodes), []
    with progress_bar(len(starts), "evaluate", "episode") as bar:
        for batch in play_in_batches(policy, env, args, starts, BATCH_SIZE, rank(), launched()):
            played += [EpisodeRecord.of(trajectory) for trajectory in batch]
            bar.update(min(BATCH_SIZE * launched(), len(starts) - int(bar.n)))
    everyone = gather_object(played) if launched() > 1 else played
    return sorted(everyone, key=lambda record: record.seed)
