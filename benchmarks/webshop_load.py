"""Does the server stay quick, correct and small with many shoppers, and when one of its workers is killed?

    python benchmarks/webshop_load.py [--smoke]   # 64 clients, 2 workers, synthetic catalogue; some minutes

Three phases, each with a server of its own: `load` (every client plays as fast as it is answered), `kill` (the same,
and in the middle one worker gets SIGKILL), `memory` (short sessions that nobody deletes). Every answer is compared,
byte for byte, with a serial run in this process. Exits 1 where one differs, is refused, or is a 5xx.
"""

import argparse
import hashlib
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from record import ONE_THREAD, memory_of, place, table, write

from webshop_server.server.app import open_shop
from webshop_server.store.shop import Rules, Shop

SAMPLES = 20  # of memory, over the phase
READY = re.compile(r" at http://([\d.]+):(\d+),")
WAITS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0)  # seconds before each further attempt to connect
OPTIONS = 2  # chosen on the product's page, where it has any


@dataclass
class Visit:
    """What happened in one episode.

    Attributes:
        number: Which one.
        goal: Number of the goal, as the server said it.
        digests: Of the body of every answer to an action; of the first one too, without the session's name.
        reward: Of the purchase; None if it did not come to one.
        refusals: Status and code of every request that was refused.
    """

    number: int
    goal: int = -1
    digests: list[bytes] = field(default_factory=list)
    reward: float | None = None
    refusals: list[str] = field(default_factory=list)


@dataclass
class Shopper:
    """One client: its connection, and what it counted.

    Attributes:
        address: Host and port of the server.
        goals: How many the store has.
        short: Whether to buy the first product as it is.
        latencies: Seconds of every step that was answered; waits for a lost connection are not in it.
        searches: Those of them that were searches.
        statuses: Of all answers.
        faults: Requests without an answer, by what happened to the action.
        visits: Those that are over.
    """

    address: tuple[str, int]
    goals: int
    short: bool = False
    latencies: list[float] = field(default_factory=list)
    searches: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    visits: list[Visit] = field(default_factory=list)
    _socket: socket.socket | None = None

    def visit(self, number: int) -> None:
        """Plays one episode to its end, or to the first refusal."""
        visit = Visit(number)
        self.visits.append(visit)
        request = {"goal": goal_of(number, self.goals), "reward": "fixed"}
        status, body = self._surely("POST", "/api/sessions", request)
        if status != 201:
            visit.refusals.append(refusal(status, body))
            return
        answer = json.loads(body)
        path = f"/api/sessions/{answer['session']}"
        visit.goal, instruction = answer["goal"], answer["instruction"]
        visit.digests.append(digest(opening(answer)))
        played: list[str] = []
        while (action := next_action(number, instruction, played, answer, self.short)) is not None:
            status, body = self._step(path, action, answer["url"])
            if status != 200:
                visit.refusals.append(refusal(status, body))
                return
            answer = json.loads(body)
            visit.digests.append(digest(body))
            played.append(action)
        if answer["done"]:
            visit.reward = answer["reward"]

    def _step(self, path: str, action: str, url: str) -> tuple[int, bytes]:
        """Takes an action; where no answer comes, asks the session whether it was taken before sending it again.

        An action leads to another address, which shows that it was carried out; or it chooses an option, which may be
        done twice.
        """
        for _ in WAITS:
            began = time.perf_counter()
            try:
                answered = self._send("POST", f"{path}/step", {"action": action})
            except OSError:
                self._drop()
            else:
                self.latencies.append(time.perf_counter() - began)
                self.searches += self.latencies[-1:] * action.startswith("search[")
                return answered
            status, body = self._surely("GET", path)
            if status != 200:
                self.faults["session gone"] += 1
                return status, body
            state = json.loads(body)
            if state["url"] != url:
                self.faults["carried out, answer read again"] += 1
                del state["session"], state["goal"], state["instruction"]
                return status, json.dumps(state).encode()
            self.faults["not carried out, sent again"] += 1
        raise ConnectionError(f"{action!r} was sent {len(WAITS)} times and never answered")

    def _surely(self, method: str, path: str, content: dict[str, Any] | None = None) -> tuple[int, bytes]:
        """Sends a request that may be sent twice, until it is answered."""
        for wait in WAITS:
            try:
                return self._send(method, path, content)
            except OSError:
                self.faults[f"{method} sent again"] += 1
                self._drop()
                time.sleep(wait)
        return self._send(method, path, content)

    def _send(self, method: str, path: str, content: dict[str, Any] | None = None) -> tuple[int, bytes]:
        """One request on a connection that stays open. `http.client` takes three times as long, of the same cores."""
        if self._socket is None:
            self._socket = socket.create_connection(self.address, timeout=30)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = b"" if content is None else json.dumps(content).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\n"
        self._socket.sendall(f"{head}Content-Length: {len(sent)}\r\n\r\n".encode() + sent)
        received = b""
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._receive()
        status = int(received[9:12])
        lengths = [line[15:] for line in received[:end].lower().split(b"\r\n") if line.startswith(b"content-length:")]
        missing = int(lengths[0]) - len(received) + end + 4
        while missing > 0:
            more = self._receive()
            received, missing = received + more, missing - len(more)
        if b"connection: close" in received[:end].lower():
            self._drop()
        self.statuses[status] += 1
        return status, received[end + 4 :]

    def _receive(self) -> bytes:
        assert self._socket is not None
        received = self._socket.recv(65536)
        if not received:
            raise ConnectionError("the server closed the connection")
        return received

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def goal_of(number: int, goals: int) -> int:
    """The goal that a visit plays."""
    return random.Random(number).randrange(goals)


def next_action(number: int, instruction: str, played: list[str], answer: dict[str, Any], short: bool) -> str | None:
    """What a shopper does next; None when it is through, or finds nothing."""
    labels = answer["available_actions"]["clickables"]
    if answer["done"]:
        return None
    if not played:
        return f"search[{instruction.partition(',')[0]} visit{number}]"
    if len(played) == 1:
        products = [label for label in labels if label not in ("back to search", "< prev", "next >")]
        return f"click[{products[number % len(products)]}]" if products else None
    if len(played) > (2 if short else 4 + OPTIONS):
        return None  # not where this leads: somebody else's page
    if short:
        return "click[buy now]"
    if len(played) == 2:
        return "click[features]"
    if len(played) == 3:
        return "click[< prev]"
    if "buy now" not in labels:
        return None
    options = labels[labels.index("buy now") + 1 :]
    if options and len(played) < 4 + OPTIONS:
        return f"click[{options[(number * 7 + len(played)) % len(options)]}]"
    return "click[buy now]"


def opening(answer: dict[str, Any]) -> bytes:
    """The answer to the opening of a session, without the session's name."""
    return json.dumps({name: value for name, value in answer.items() if name != "session"}).encode()


def digest(body: bytes) -> bytes:
    """Stands for a body."""
    return hashlib.blake2b(body, digest_size=8).digest()


def refusal(status: int, body: bytes) -> str:
    """A refusal in few words."""
    return f"{status} {body[:120].decode('utf-8', 'replace')}"


def serial_visit(shop: Shop, number: int, short: bool) -> Visit:
    """The same visit to a shop that nobody else is in."""
    goal = goal_of(number, len(shop.goals))
    visit = Visit(number, goal)
    episode = shop.start(goal, Rules(reward="fixed"))
    instruction = shop.goal(goal).instruction
    answer = shop.answer(episode)
    visit.digests.append(digest(opening({"goal": goal, "instruction": instruction, **answer})))
    played: list[str] = []
    while (action := next_action(number, instruction, played, answer, short)) is not None:
        episode = shop.step(episode, action)
        answer = shop.answer(episode)
        visit.digests.append(digest(json.dumps(answer).encode()))
        played.append(action)
    if answer["done"]:
        visit.reward = answer["reward"]
    return visit


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
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.smoke:
        asked.catalog, asked.clients, asked.visits, asked.rounds = "synthetic:200", 4, 3, 1
        asked.kill_visits, asked.sessions = 20, 40
    shop = open_shop(asked.catalog)
    rounds = [load(asked, shop) for _ in range(asked.rounds)]
    phases = {"load": rounds, "kill": [kill(asked, shop)], "memory": [memory(asked, shop)]}
    size = {"catalog": asked.catalog, "workers": asked.workers, "clients": asked.clients, "products": len(shop.catalog)}
    command = "python benchmarks/webshop_load.py"
    write(place("webshop_load", asked.smoke, asked.out), command, **size, phases=phases, table=shown(size, phases))
    return int(any(row["wrong"] for found in phases.values() for row in found))


def shown(size: dict[str, Any], phases: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """One row a phase and round."""
    rows = []
    for phase, row in ((phase, row) for phase, found in phases.items() for row in found):
        failures = sum(count for status, count in row["statuses"].items() if int(status) >= 500)
        times = [f"{row[f'p{at}_ms']:.0f}" for at in (50, 95, 99)]
        cells = [phase, f"{row['visits']:,}", f"{row['steps_per_s']:,.0f}", *times]
        same = f"{row['as_in_the_serial_run']:,} of {row['visits']:,}"
        rows.append([*cells, same, failures, sum(row["faults"].values())])
    samples = phases["memory"][0]["samples"]
    sizes = ", ".join(f"{sum(row['mib']):.0f} at {row['sessions']:,}" for row in samples[:: len(samples) // 4 or 1])
    note = (
        f"{size['clients']} clients, {size['workers']} workers, {size['products']:,} products. MiB of the workers, "
        f"together, by sessions made: {sizes}."
    )
    columns = ["phase", "visits", "steps/s", "ms: p50", "p95", "p99", "as in the serial run", "5xx", "lost answers"]
    return table(columns, rows, note)


def load(asked: argparse.Namespace, shop: Shop) -> dict[str, Any]:
    """All clients; each makes one visit after the other."""
    count = asked.clients * asked.visits
    with server(asked) as process:
        before = worker_memory(process.pid)
        shoppers, spent = visits(asked, process, shop, count)
        after, busy = worker_memory(process.pid), cpu_seconds(process.pid)
    sizes = {"mib_before": list(before.values()), "mib_after": list(after.values())}
    return told("load", {**summary(shoppers, spent, shop, count), **sizes, "worker_cpu_s": list(busy.values())})


def kill(asked: argparse.Namespace, shop: Shop) -> dict[str, Any]:
    """The same, and one worker gets SIGKILL when a third of the visits have begun."""
    count = asked.clients * asked.kill_visits
    facts: dict[str, Any] = {}

    with server(asked) as process:
        before = workers_of(process.pid)

        def watch(begun: int) -> None:
            if "killed_at_visit" not in facts and begun >= count // 3:
                os.kill(before[0], signal.SIGKILL)
                facts.update(killed_at_visit=begun, at=time.perf_counter())
            elif "forked_again_s" not in facts and "at" in facts:
                now = workers_of(process.pid)
                if len(now) == asked.workers and before[0] not in now:
                    facts["forked_again_s"] = time.perf_counter() - facts["at"]

        shoppers, spent = visits(asked, process, shop, count, watch)
        busy = cpu_seconds(process.pid)
    facts.pop("at", None)
    old, new = (sum(busy[pid] for pid in busy if (pid in before) == is_old) for is_old in (True, False))
    cpu = {"survivors": old, "replacement": new}
    return told("kill", {**summary(shoppers, spent, shop, count), **facts, "worker_cpu_s": cpu})


def memory(asked: argparse.Namespace, shop: Shop) -> dict[str, Any]:
    """Short sessions, which their clients do not delete, and the memory of the workers on the way."""
    samples: list[dict[str, Any]] = []
    with server(asked) as process:
        file = session_file(process.pid) if asked.workers > 1 else None

        def sample(begun: int) -> None:
            if begun >= len(samples) * asked.sessions // SAMPLES:
                sizes = list(worker_memory(process.pid).values())
                samples.append({"sessions": begun, "mib": sizes, "file_mib": size_of(file)})

        shoppers, spent = visits(asked, process, shop, asked.sessions, sample, short=True)
        sample(asked.sessions)
        kept = int(re.findall(rb"\nwebshop_sessions (\d+)", fetch(process, "/metrics"))[0])
    totals = [sum(row["mib"]) for row in samples]
    growth = {"second_half_growth_mib": totals[-1] - totals[len(totals) // 2], "sessions_kept": kept}
    return told("memory", {**summary(shoppers, spent, shop, asked.sessions), **growth, "samples": samples})


@contextmanager
def server(asked: argparse.Namespace) -> Iterator[subprocess.Popen[str]]:
    """A server that is ready; its address is in the `args` of the process. It is stopped afterwards."""
    command = [sys.executable, "-m", "webshop_server", "--catalog", asked.catalog, "--port", "0"]
    command += ["--workers", str(asked.workers)]
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
    return {worker: memory_of(worker)["rss_mib"] for worker in workers_of(process)}


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
    asked: argparse.Namespace,
    process: subprocess.Popen[str],
    shop: Shop,
    count: int,
    watch: Callable[[int], None] = lambda begun: None,
    short: bool = False,
) -> tuple[list[Shopper], dict[str, float]]:
    """Lets the clients make `count` visits, and tells `watch` every 20 ms how many have begun."""
    host, _, port = str(process.args).partition(":")
    shoppers = [Shopper((host, int(port)), len(shop.goals), short) for _ in range(asked.clients)]
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
