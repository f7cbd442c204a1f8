"""Does the server stay quick, correct and small with many shoppers, and when one of its workers is killed?

    python benchmarks/webshop_load.py [--smoke]   # 64 clients, 2 workers of gunicorn, synthetic catalogue; some minutes

Three phases, each with a server of its own: `load` (every client plays as fast as it is answered), `kill` (the same,
and in the middle one worker gets SIGKILL), `memory` (many short sessions). The clients are `WebShop` environments with
`base_url`, and every step is compared with that of a store in this process. Exits 1 where one differs or fails.
"""

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from record import ONE_THREAD, memory_of, place, table, write

from ragen_envs import WebShop
from ragen_envs.webshop.shoppers import random_shop_action

SAMPLES = 20  # of memory, over the phase
STEPS = 8  # of an episode, at most
SHORT = 2  # of one in the phase `memory`


class Shopper(threading.Thread):
    """One client.

    Attributes:
        seconds: Of every step.
        episodes: Those that are over.
        wrong: What differed from the store in this process, and what failed.
    """

    def __init__(self, address: str, catalog: str, numbers: Iterator[int], steps: int) -> None:
        super().__init__(daemon=True)
        self._env, self._twin = WebShop(base_url=address, max_steps=steps), WebShop(catalog, max_steps=steps)
        self._numbers = numbers
        self.seconds: list[float] = []
        self.episodes = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        """Plays one episode after the other."""
        for number in self._numbers:
            try:
                self._play(number)
            except Exception as error:  # whatever it is, it is a finding
                self.wrong.append(f"{type(error).__name__}: {error}")
            self.episodes += 1

    def _play(self, number: int) -> None:
        rng, over = np.random.default_rng(number), False
        if self._env.reset(seed=number) != self._twin.reset(seed=number):
            self.wrong.append(f"episode {number} begins otherwise")
        while not over:
            action = random_shop_action(self._twin, rng)
            wanted = self._twin.step(action)
            began = time.perf_counter()
            found = self._env.step(action)
            self.seconds.append(time.perf_counter() - began)
            if found != wanted:
                self.wrong.append(f"episode {number}: {action} leads elsewhere")
            over = wanted[2] or wanted[3]


@contextmanager
def server(asked: argparse.Namespace) -> Iterator[tuple[str, int, Path]]:
    """Address, process and file of the sessions of a server that is ready. It is stopped afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        sessions = Path(folder, "sessions.sqlite")
        app = f"webshop_server:create_app({asked.catalog!r}, sessions={str(sessions)!r})"
        command = [sys.executable, "-m", "gunicorn", "-w", str(asked.workers), "--threads", "8", "-b"]
        process = subprocess.Popen([*command, f"127.0.0.1:{port}", app], env={**os.environ, **ONE_THREAD})
        try:
            WebShop(base_url=f"http://127.0.0.1:{port}").count()  # which waits until it answers
            yield f"http://127.0.0.1:{port}", process.pid, sessions
        finally:
            process.terminate()
            process.wait(60)


def workers_of(process: int) -> list[int]:
    """The children of a process."""
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def memory(process: int) -> float:
    """Resident memory of all workers in MiB."""
    return sum(memory_of(worker)["rss_mib"] for worker in workers_of(process))


def phase(
    asked: argparse.Namespace, name: str, episodes: int, watch: Callable[[int, int, Path], None], steps: int = STEPS
) -> dict[str, Any]:
    """All clients play `episodes`; `watch` is told every 20 ms how many are over, the server, and its sessions."""
    with server(asked) as (address, process, sessions):
        lock, numbers = threading.Lock(), iter(range(episodes))

        def drawn() -> Iterator[int]:
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                yield number

        shoppers = [Shopper(address, asked.catalog, drawn(), steps) for _ in range(asked.clients)]
        began = time.perf_counter()
        for shopper in shoppers:
            shopper.start()
        while any(shopper.is_alive() for shopper in shoppers):
            watch(sum(shopper.episodes for shopper in shoppers), process, sessions)
            time.sleep(0.02)
        wall = time.perf_counter() - began
        watch(episodes, process, sessions)
    seconds = [one for shopper in shoppers for one in shopper.seconds]
    at = statistics.quantiles(seconds, n=100)
    wrong = [one for shopper in shoppers for one in shopper.wrong]
    row = {
        **{"phase": name, "episodes": episodes, "steps": len(seconds), "steps_per_s": len(seconds) / wall},
        **{"p50_ms": 1e3 * at[49], "p95_ms": 1e3 * at[94], "p99_ms": 1e3 * at[98], "wrong": len(wrong)},
    }
    print(row, *wrong[:3], flush=True)
    return row


def main() -> int:
    """Run the phases; exit status 1 if a step was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalog", default="synthetic")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--episodes", type=int, default=6_400, help="in the phase `load`; half as many in `kill`")
    parser.add_argument("--sessions", type=int, default=20_000, help="in the phase `memory`")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.smoke:
        asked.catalog, asked.clients, asked.episodes, asked.sessions = "synthetic:200", 4, 40, 80
    killed: list[int] = []
    samples: list[dict[str, float]] = []

    def kill(over: int, process: int, sessions: Path) -> None:
        if not killed and over >= asked.episodes // 6:
            killed.append(workers_of(process)[0])
            os.kill(killed[0], signal.SIGKILL)

    def weigh(over: int, process: int, sessions: Path) -> None:
        if over >= len(samples) * asked.sessions // SAMPLES:
            kept = sum(file.stat().st_size for file in sessions.parent.iterdir()) / 2**20
            samples.append({"sessions": over, "workers_mib": memory(process), "file_mib": kept})

    rows = [
        phase(asked, "load", asked.episodes, lambda over, process, sessions: None),
        phase(asked, "kill", asked.episodes // 2, kill),
        phase(asked, "memory", asked.sessions, weigh, SHORT),
    ]
    cells = [
        [row["phase"], f"{row['episodes']:,}", f"{row['steps_per_s']:,.0f}"]
        + [f"{row[f'p{at}_ms']:.0f}" for at in (50, 95, 99)]
        + [row["wrong"]]
        for row in rows
    ]
    sizes = ", ".join(
        f"{one['workers_mib']:.0f} + {one['file_mib']:.0f} at {one['sessions']:,}" for one in samples[:: SAMPLES // 4]
    )
    note = (
        f"{asked.clients} clients, {asked.workers} workers. MiB of the workers and of the file, by sessions: {sizes}."
    )
    columns = ["phase", "episodes", "steps/s", "ms: p50", "p95", "p99", "wrong or failed"]
    size = {"catalog": asked.catalog, "workers": asked.workers, "clients": asked.clients}
    command = "python benchmarks/webshop_load.py"
    shown = table(columns, cells, note)
    write(place("webshop_load", asked.smoke, asked.out), command, **size, phases=rows, samples=samples, table=shown)
    return int(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
