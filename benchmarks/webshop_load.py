"""Does the server stay quick, correct and small with many shoppers, and when one of its workers is killed?

    python benchmarks/webshop_load.py            # 64 clients, 2 workers, synthetic catalogue; some minutes
    python benchmarks/webshop_load.py --smoke    # 4 clients, a few visits, written to runs/ only

Three phases, each with a server of its own: `load` (every client plays its episodes as fast as it is answered), `kill`
(the same, and in the middle one worker is killed with SIGKILL), `memory` (short sessions that nobody deletes). Every
answer to every action is compared, byte for byte, with a serial run in this process (measuring/shoppers.py). Exits 1
where one differs, is refused, or is a 5xx. Writes ``results/webshop_load.json``.
"""

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from measuring.processes import ONE_THREAD, resident
from measuring.shoppers import Shopper, Visit, serial_visit

from webshop_server.server.app import open_shop
from webshop_server.store.shop import Shop

HERE = Path(__file__).parent
SAMPLES = 20  # of memory, over the phase
READY = re.compile(r" at http://([\d.]+):(\d+),")


def main() -> int:
    """Run the phases; exit status 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalog", default="synthetic")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--visits", type=int, default=200, help="of each client, in the phase `load`")
    parser.add_argument("--kill-visits", type=int, default=100, help="of each client, in the phase `kill`")
    parser.add_argument("--sessions", type=int, default=20_000, help="in the phase `memory`")
    parser.add_argument("--rounds", type=int, default=3, help="of the phase `load`")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "webshop_load.json")
    options = parser.parse_args()
    if options.smoke:
        options.catalog, options.clients, options.visits, options.rounds = "synthetic:200", 4, 3, 1
        options.kill_visits, options.sessions = 20, 40
        options.output = Path("runs/benchmark-webshop-load-smoke.json")
    began = time.perf_counter()
    shop = open_shop(options.catalog)
    rounds = [load(options, shop) for _ in range(options.rounds)]
    phases = {"load": rounds, "kill": [kill(options, shop)], "memory": [memory(options, shop)]}
    # Loads torch, which the process of the clients must not.
    from records.results import write_result

    asked = {name: getattr(options, name) for name in ("catalog", "workers", "clients")}
    size = {"products": len(shop.catalog), "goals": len(shop.goals)}
    seconds = time.perf_counter() - began
    write_result(options.output, "python benchmarks/webshop_load.py", **asked, **size, seconds=seconds, phases=phases)
    return int(any(row["wrong"] for found in phases.values() for row in found))


def load(options: argparse.Namespace, shop: Shop) -> dict[str, Any]:
    """All clients; each makes one visit after the other."""
    count = options.clients * options.visits
    with server(options) as process:
        before = worker_memory(process.pid)
        shoppers, spent = visits(options, process, shop, count)
        after, busy = worker_memory(process.pid), cpu_seconds(process.pid)
    sizes = {"mib_before": list(before.values()), "mib_after": list(after.values())}
    return told("load", {**summary(shoppers, spent, shop, count), **sizes, "worker_cpu_s": list(busy.values())})


def kill(options: argparse.Namespace, shop: Shop) -> dict[str, Any]:
    """The same, and one worker gets SIGKILL when a third of the visits have begun."""
    count = options.clients * options.kill_visits
    facts: dict[str, Any] = {}

    with server(options) as process:
        before = workers_of(process.pid)

        def watch(begun: int) -> None:
            if "killed_at_visit" not in facts and begun >= count // 3:
                os.kill(before[0], signal.SIGKILL)
                facts.update(killed_at_visit=begun, at=time.perf_counter())
            elif "forked_again_s" not in facts and "at" in facts:
                now = workers_of(process.pid)
                if len(now) == options.workers and before[0] not in now:
                    facts["forked_again_s"] = time.perf_counter() - facts["at"]

        shoppers, spent = visits(options, process, shop, count, watch)
        busy = cpu_seconds(process.pid)
    facts.pop("at", None)
    old, new = (sum(busy[pid] for pid in busy if (pid in before) == is_old) for is_old in (True, False))
    cpu = {"survivors": old, "replacement": new}
    return told("kill", {**summary(shoppers, spent, shop, count), **facts, "worker_cpu_s": cpu})


def memory(options: argparse.Namespace, shop: Shop) -> dict[str, Any]:
    """Short sessions, which their clients do not delete, and the memory of the workers on the way."""
    samples: list[dict[str, Any]] = []
    with server(options) as process:
        file = session_file(process.pid) if options.workers > 1 else None

        def sample(begun: int) -> None:
            if begun >= len(samples) * options.sessions // SAMPLES:
                sizes = list(worker_memory(process.pid).values())
                samples.append({"sessions": begun, "mib": sizes, "file_mib": size_of(file)})

        shoppers, spent = visits(options, process, shop, options.sessions, sample, short=True)
        sample(options.sessions)
        kept = int(re.findall(rb"\nwebshop_sessions (\d+)", fetch(process, "/metrics"))[0])
    totals = [sum(row["mib"]) for row in samples]
    growth = {"second_half_growth_mib": totals[-1] - totals[len(totals) // 2], "sessions_kept": kept}
    return told("memory", {**summary(shoppers, spent, shop, options.sessions), **growth, "samples": samples})


@contextmanager
def server(options: argparse.Namespace) -> Iterator[subprocess.Popen[str]]:
    """A server that is ready; its address is in the `args` of the process. It is stopped afterwards."""
    command = [sys.executable, "-m", "webshop_server", "--catalog", options.catalog, "--port", "0"]
    command += ["--workers", str(options.workers)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **ONE_THREAD})
    try:
        assert process.stdout is not None
        ready = READY.search(process.stdout.readline())
        if ready is None:
            raise SystemExit("the server did not start")
        process.args = f"{ready[1]}:{ready[2]}"
        yield process
    finally:
        process.terminate()
        process.wait(30)


def fetch(process: subprocess.Popen[str], path: str) -> bytes:
    """The body of a page of the server."""
    with urlopen(f"http://{process.args!s}{path}", timeout=30) as response:
        body: bytes = response.read()
    return body


def workers_of(process: int) -> list[int]:
    """The children of a process."""
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def worker_memory(process: int) -> dict[int, float]:
    """Resident memory of each worker in MiB, by process."""
    return {worker: resident(worker) for worker in workers_of(process)}


def cpu_seconds(process: int) -> dict[int, float]:
    """Processor time that each worker has had, by process."""
    found = {}
    for worker in workers_of(process):
        fields = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()
        found[worker] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def session_file(process: int) -> Path | None:
    """The file that workers share their sessions in; None if there is one worker, which has them in memory."""
    links = [os.readlink(link) for link in Path(f"/proc/{workers_of(process)[0]}/fd").iterdir()]
    return next((Path(link) for link in links if link.endswith("sessions.sqlite")), None)


def size_of(file: Path | None) -> float:
    """Size of a database and its log in MiB; 0 for None."""
    parts = [] if file is None else [file, file.with_name(f"{file.name}-wal")]
    return sum(part.stat().st_size for part in parts if part.exists()) / 2**20


def visits(
    options: argparse.Namespace,
    process: subprocess.Popen[str],
    shop: Shop,
    count: int,
    watch: Callable[[int], None] = lambda begun: None,
    short: bool = False,
) -> tuple[list[Shopper], dict[str, float]]:
    """Lets the clients make `count` visits, and tells `watch` every 20 ms how many have begun."""
    host, _, port = str(process.args).partition(":")
    shoppers = [Shopper((host, int(port)), len(shop.goals), short) for _ in range(options.clients)]
    numbers = iter(range(count))
    lock = threading.Lock()

    def shop_on(shopper: Shopper) -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            shopper.visit(number)

    threads = [threading.Thread(target=shop_on, args=(shopper,), daemon=True) for shopper in shoppers]
    cpu, began = time.process_time(), time.perf_counter()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        watch(sum(len(shopper.visits) for shopper in shoppers))
        time.sleep(0.02)
    wall = time.perf_counter() - began
    return shoppers, {"seconds": wall, "client_cpu_share": (time.process_time() - cpu) / wall}


def summary(shoppers: list[Shopper], spent: dict[str, float], shop: Shop, asked: int) -> dict[str, Any]:
    """Figures of a phase, and the comparison with the serial run."""
    made = [visit for shopper in shoppers for visit in shopper.visits]
    latencies = [seconds for shopper in shoppers for seconds in shopper.latencies]
    at = statistics.quantiles(latencies, n=100)
    of_searches = statistics.quantiles([seconds for shopper in shoppers for seconds in shopper.searches], n=20)
    statuses = sum((shopper.statuses for shopper in shoppers), Counter[int]())
    checks = compare(made, shop, shoppers[0].short)
    failures = sum(count for status, count in statuses.items() if status >= 500)
    refusals = Counter(text for visit in made for text in visit.refusals)
    return {
        **spent,
        "visits": len(made),
        "steps": len(latencies),
        "steps_per_s": len(latencies) / spent["seconds"],
        "requests_per_s": sum(statuses.values()) / spent["seconds"],
        "p50_ms": 1e3 * at[49],
        "p95_ms": 1e3 * at[94],
        "p99_ms": 1e3 * at[98],
        "max_ms": 1e3 * max(latencies),
        "search_p50_ms": 1e3 * of_searches[9],
        "search_p95_ms": 1e3 * of_searches[18],
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "faults": dict(sum((shopper.faults for shopper in shoppers), Counter[str]())),
        "refusals": dict(refusals.most_common(10)),
        **checks,
        "wrong": failures + refusals.total() + asked - checks["as_in_the_serial_run"],
    }


def compare(made: list[Visit], shop: Shop, short: bool) -> dict[str, int]:
    """How many visits had the goal, the answers and the reward that they have when nobody else is there."""
    same: Counter[str] = Counter(same_goal=0, same_answers=0, same_reward=0, as_in_the_serial_run=0, purchases=0)
    for visit in made:
        wanted = serial_visit(shop, visit.number, short)
        equal = {
            "same_goal": visit.goal == wanted.goal,
            "same_answers": visit.digests == wanted.digests,
            "same_reward": visit.reward == wanted.reward,
        }
        same.update(name for name, true in equal.items() if true)
        same["as_in_the_serial_run"] += all(equal.values())
        same["purchases"] += visit.reward is not None
    return dict(same)


def told(phase: str, row: dict[str, Any]) -> dict[str, Any]:
    """The same row, after a line for people."""
    times = f"p50 {row['p50_ms']:.1f} p95 {row['p95_ms']:.1f} p99 {row['p99_ms']:.1f} max {row['max_ms']:.0f} ms"
    same = f"{row['as_in_the_serial_run']} of {row['visits']} visits as in the serial run"
    rest = {
        name: row[name] for name in ("statuses", "faults", "worker_cpu_s", "second_half_growth_mib") if row.get(name)
    }
    print(f"{phase:7} {row['steps_per_s']:6.0f} steps/s, {times}; {same}; {rest}", flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
