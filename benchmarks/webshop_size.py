"""What does a store of the official size cost: to build, to open, to search, to step?

    python benchmarks/webshop_size.py [--smoke]   # 1,180,000 products; half an hour and 7 GB of disk

Parts: `build` (first opening of the generated catalogue, into an empty folder), `open` (an environment's first page,
with everything built), `search` (four kinds of queries), `steps` (an environment played by the scripted rule and by a
random policy). Each runs in a process of its own.
"""

import argparse
import json
import resource
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from record import answer_of, memory_of, place, table, write

PRODUCTS = 1_180_000
QUERIES = 200  # of each kind


def main() -> int:
    """Measure the parts; ``--measure`` is one of them, in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--products", type=int, default=PRODUCTS)
    parser.add_argument("--folder", type=Path, default=Path("runs") / "webshop-size", help="for the built files")
    parser.add_argument("--rounds", type=int, default=5, help="of the part `open`")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the steps of each policy")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        name, spec = asked.measure
        print(json.dumps(PARTS[name](spec)))
        return 0
    if asked.smoke:
        asked.products, asked.rounds, asked.seconds, asked.folder = 300, 1, 0.2, Path("runs/webshop-size-smoke")
    shutil.rmtree(asked.folder / "ragen-webshop", ignore_errors=True)
    asked.folder.mkdir(parents=True, exist_ok=True)
    catalog = f"synthetic:{asked.products}"

    def measured(part: str, spec: str) -> Any:
        command = [sys.executable, __file__, "--measure", part, spec]
        return answer_of(command, XDG_CACHE_HOME=str(asked.folder.resolve()))

    found = {"build": measured("build", catalog)}
    rounds = [measured("open", catalog) for _ in range(asked.rounds)]
    found["open"] = {name: statistics.median(row[name] for row in rounds) for name in rounds[0]}
    found["search"] = measured("search", catalog)
    found["steps"] = measured("steps", f"{asked.seconds}/{catalog}")
    command = "python benchmarks/webshop_size.py"
    shown = shown_of(asked.products, found)
    write(place("webshop_size", asked.smoke, asked.out), command, products=asked.products, parts=found, table=shown)
    return 0


def shown_of(products: int, found: dict[str, Any]) -> dict[str, Any]:
    """One row a kind of query; the other parts are the note."""
    rows = []
    for kind, row in found["search"]["rows"].items():
        times = [f"{row[name][at]:.1f}" for name in ("search", "cpu") for at in ("median_ms", "p95_ms")]
        rows.append([kind, *times])
    build, opened, steps = found["build"], found["open"], found["steps"]
    note = (
        f"{products:,} products: built in {build['seconds']:.0f} s ({build['peak_mib']:,.0f} MiB at most, "
        f"{sum(build['disk_mib'].values()):,.0f} MiB of disk), opened in {opened['open_s']:.2f} s "
        f"({opened['rss_mib']:.0f} MiB), {steps['scripted']['steps_per_s']:,.0f} steps/s of the scripted rule, "
        f"{steps['rss_mib']:.0f} MiB after play."
    )
    return table(["queries", "ms: median", "p95", "CPU ms: median", "p95"], rows, note)


def build(catalog: str) -> dict[str, Any]:
    """The first opening, part by part; what it leaves on the disk."""
    from webshop_server.catalog import open_catalog
    from webshop_server.goals.goals import make_goals
    from webshop_server.search.index import SearchIndex

    stages: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = work()
        stages[name] = time.perf_counter() - began
        return result

    opened = timed("catalogue", lambda: open_catalog(catalog, max_in_memory=0))
    timed("index", lambda: SearchIndex.open(opened))
    goals = timed("goals", lambda: make_goals(opened, human=False))
    index = opened.beside("search")
    assert index is not None
    patterns = {"catalogue": "*.sqlite", "index": "*.search-*/*", "goals": "*.goals-*/*"}
    sizes = {
        name: sum(path.stat().st_size for path in index.parent.glob(pattern)) / 2**20
        for name, pattern in patterns.items()
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    total = {"seconds": sum(stages.values()), "stages": stages, "peak_mib": peak, "disk_mib": sizes}
    return {"products": len(opened), "goals": len(goals), **total}


def opening(catalog: str) -> dict[str, Any]:
    """Seconds until the first page of an environment, imports not counted, and memory then."""
    import gymnasium

    import ragen_envs  # noqa: F401  (registers the ids)

    began = time.perf_counter()
    gymnasium.make("ragen/WebShop-v0", catalog=catalog).reset(seed=0)
    return {"open_s": time.perf_counter() - began, **memory_of()}


def steps(spec: str) -> dict[str, Any]:
    """Steps a second of two policies in the environment, and memory afterwards; SECONDS/CATALOG."""
    import gymnasium
    import numpy as np

    import ragen_envs  # noqa: F401  (registers the ids)
    from ragen_envs.webshop.shoppers import random_shop_action, scripted_shop_action

    seconds, _, catalog = spec.partition("/")
    env = gymnasium.make("ragen/WebShop-v0", catalog=catalog)
    env.reset(seed=0)
    inner, rng, found = env.unwrapped, np.random.default_rng(0), {}
    policies = {"scripted": lambda: scripted_shop_action(inner), "random": lambda: random_shop_action(inner, rng)}
    for name, policy in policies.items():
        times: list[float] = []
        while sum(times) < float(seconds):
            env.reset()
            over = False
            while not over:
                action = policy()
                began = time.perf_counter()
                _, _, terminated, truncated, _ = env.step(action)
                times.append(time.perf_counter() - began)
                over = terminated or truncated
        found[name] = {"steps_per_s": len(times) / sum(times), **milliseconds(times)}
    return {**found, **memory_of()}


def search(catalog: str) -> dict[str, Any]:
    """Milliseconds of a query of four kinds."""
    import numpy as np

    from webshop_server.catalog import open_catalog
    from webshop_server.goals.goals import make_goals
    from webshop_server.search.index import SearchIndex

    opened = open_catalog(catalog, max_in_memory=0)
    goals = make_goals(opened, human=False)
    numbers = np.random.default_rng(0).choice(len(goals), min(QUERIES, len(goals)), replace=False).tolist()
    asked = [(goal, opened.product(goal.asin)) for goal in (goals[number] for number in numbers)]
    kinds = {
        "search phrase": [product.query for _, product in asked],
        "title": [product.title for _, product in asked],
        "request": [product.instruction or "" for _, product in asked],
        "instruction with options and price": [goal.instruction for goal, _ in asked],
    }
    index = SearchIndex.open(opened)
    return {"rows": {kind: searched(index, queries) for kind, queries in kinds.items()}, **memory_of()}


def searched(index: Any, queries: Sequence[str]) -> dict[str, Any]:
    """Times of a search, on the clock and of the processor."""
    whole: list[float] = []
    cpu: list[float] = []
    for query in queries:
        began, worked = time.perf_counter(), time.thread_time()
        index.search(query.lower().split(" "))
        whole.append(time.perf_counter() - began)
        cpu.append(time.thread_time() - worked)
    return {"queries": len(queries), "search": milliseconds(whole), "cpu": milliseconds(cpu)}


def milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    """Median and 95th percentile."""
    ordered = sorted(seconds)
    p95 = ordered[int(0.95 * len(ordered))]
    return {"n": len(ordered), "median_ms": 1e3 * statistics.median(ordered), "p95_ms": 1e3 * p95}


PARTS: dict[str, Callable[[str], dict[str, Any]]] = {"build": build, "open": opening, "search": search, "steps": steps}

if __name__ == "__main__":
    sys.exit(main())
