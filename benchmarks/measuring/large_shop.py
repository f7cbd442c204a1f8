"""One measurement of benchmarks/webshop_size.py, in a process of its own, so that its memory is that of the work.

    cd benchmarks
    python -m measuring.large_shop build CATALOG

Prints JSON as the last line. Files of a generated catalogue are in the user's cache folder, which XDG_CACHE_HOME names.
"""

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measuring.processes import memory_of
from webshop_server.catalog import Catalog, open_catalog
from webshop_server.catalog.array_file import open_file
from webshop_server.catalog.product import Product
from webshop_server.catalog.synthetic.generator import synthetic_products
from webshop_server.goals.goals import make_goals
from webshop_server.search.index import LIMIT, SearchIndex
from webshop_server.search.ranking import Term, best

QUERIES = 200  # of each kind
ZIPF_SEED = 0


def timed(stages: dict[str, dict[str, float]], name: str, work: Callable[[], Any]) -> Any:
    """What `work` returns; its seconds and its processor time go into `stages`."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    stages[name] = {"seconds": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    return result


def build(spec: str) -> dict[str, Any]:
    """The first opening, part by part; what it leaves on the disk."""
    stages: dict[str, dict[str, float]] = {}
    catalog: Catalog = timed(stages, "catalogue", lambda: open_catalog(spec, max_in_memory=0))
    timed(stages, "index", lambda: SearchIndex.open(catalog))
    goals = timed(stages, "goals", lambda: make_goals(catalog, human=False))
    totals = {what: sum(stage[what] for stage in stages.values()) for what in ("seconds", "cpu_s")}
    assert catalog.folder is not None
    patterns = {"catalogue": "*.sqlite", "index": "search-*", "goals": "goals-*"}
    sizes = {name: disk(catalog.folder, pattern) for name, pattern in patterns.items()}
    peak = {"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    return {"products": len(catalog), "goals": len(goals), **totals, "stages": stages, **peak, "disk_mib": sizes}


def disk(folder: Path, pattern: str) -> float:
    """Size of the files of a folder that match, in MiB."""
    return sum(path.stat().st_size for path in folder.glob(pattern)) / 2**20


def opening(spec: str) -> dict[str, Any]:
    """Seconds until the first page of an environment, imports not counted, and memory then."""
    import gymnasium

    import ragen_envs  # noqa: F401  (registers the ids)

    began = time.perf_counter()
    gymnasium.make("ragen/WebShop-v0", catalog=spec).reset(seed=0)
    return {"open_s": time.perf_counter() - began, **memory_of("self")}


def steps(spec: str) -> dict[str, Any]:
    """Steps a second of two policies in the environment, milliseconds of a step, and memory afterwards.

    Args:
        spec: Seconds that the steps of each policy take, a slash, and the catalogue.
    """
    import gymnasium

    import ragen_envs  # noqa: F401  (registers the ids)
    from ragen_envs.webshop.policies import random_shop_action, scripted_shop_action

    seconds, _, catalog = spec.partition("/")
    env = gymnasium.make("ragen/WebShop-v0", catalog=catalog)
    env.reset(seed=0)
    found: dict[str, Any] = {}
    rng = np.random.default_rng(0)
    inner: Any = env.unwrapped
    policies = {"scripted": lambda: scripted_shop_action(inner), "random": lambda: random_shop_action(inner, rng)}
    for name, policy in policies.items():
        times: dict[str, list[float]] = {"search": [], "other": []}
        while sum(map(sum, times.values())) < float(seconds):
            env.reset()
            over = False
            while not over:
                action = policy()
                before = time.perf_counter()
                _, _, terminated, truncated, _ = env.step(action)
                times["search" if action.startswith("search") else "other"].append(time.perf_counter() - before)
                over = terminated or truncated
        every = [*times["search"], *times["other"]]
        kinds = {f"{kind}_step": milliseconds(part) for kind, part in times.items()}
        found[name] = {"steps_per_s": len(every) / sum(every), **kinds}
    return {**found, **memory_of("self")}


def milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    """Median and 95th percentile in ms."""
    median, p95 = statistics.median(seconds), float(np.quantile(np.array(seconds), 0.95))
    return {"n": len(seconds), "median_ms": 1e3 * median, "p95_ms": 1e3 * p95, "max_ms": 1e3 * max(seconds)}


def search(spec: str) -> dict[str, Any]:
    """Milliseconds of a query of four kinds, next to the plain sum over all postings."""
    catalog = open_catalog(spec, max_in_memory=0)
    goals = make_goals(catalog, human=False)
    numbers = np.random.default_rng(0).choice(len(goals), min(QUERIES, len(goals)), replace=False).tolist()
    asked = [(goal, catalog.product(goal.asin)) for goal in (goals[number] for number in numbers)]
    kinds = {
        "search phrase": [product.query for _, product in asked],
        "title": [product.title for _, product in asked],
        "request": [product.instruction or "" for _, product in asked],
        "instruction with options and price": [goal.instruction for goal, _ in asked],
    }
    index = SearchIndex.open(catalog)
    return {"rows": {kind: compared(index, queries) for kind, queries in kinds.items()}, **memory_of("self")}


def compared(index: SearchIndex, queries: Sequence[str]) -> dict[str, Any]:
    """Times of a search and of the plain sum, which take turns, and in how many queries they find the same."""
    ours: list[float] = []
    plain: list[float] = []
    cpu: list[tuple[float, float]] = []
    same = postings = 0
    scratch, totals = np.zeros(len(index), np.float32), np.zeros(len(index))
    for query in queries:
        terms = index.terms(query)
        postings += sum(len(term.documents) for term in terms)
        begun, begun_cpu = time.perf_counter(), time.thread_time()
        found = best(terms, LIMIT, scratch) if terms else (np.zeros(0, np.int32), np.zeros(0, np.float32))
        between, between_cpu = time.perf_counter(), time.thread_time()
        wanted = plain_best(terms, LIMIT, totals)
        ended, ended_cpu = time.perf_counter(), time.thread_time()
        same += dict(zip(*map(list, found), strict=True)) == dict(zip(*map(list, wanted), strict=True))
        plain.append(ended - between)
        cpu.append((between_cpu - begun_cpu, ended_cpu - between_cpu))
        begun = time.perf_counter()
        index.search(query.lower().split(" "))
        ours.append(time.perf_counter() - begun)
    ratio = statistics.median(first / second for first, second in cpu)
    cpu_ms = {name: milliseconds([row[at] for row in cpu]) for at, name in enumerate(("cpu", "plain_cpu"))}
    shown = {"search": milliseconds(ours), "plain": milliseconds(plain), **cpu_ms, "cpu_of_plain": ratio}
    return {"queries": len(queries), "same": same, "postings": postings / len(queries), **shown}


def plain_best(
    terms: Sequence[Term], limit: int, totals: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """The sum of every posting, as the store made it before."""
    totals.fill(0)
    for term in terms:
        totals[term.documents] += term.gains[term.codes]
    matches = np.flatnonzero(totals)
    scores = totals[matches].astype(np.float32)
    if len(scores) > limit:
        good = scores >= np.partition(scores, -limit)[-limit]
        return matches[good], scores[good]
    return matches, scores


def zipf(spec: str) -> dict[str, Any]:
    """Searches in drawn texts as long and as rich as real ones; `spec` is the number of documents and a folder."""
    from measuring.zipf_text import build_index, drawn_queries

    count, _, folder = spec.partition(":")
    path = Path(folder) / f"zipf-{count}.index"
    if not path.exists():
        build_index(path, int(count), ZIPF_SEED)
    facts, arrays = open_file(path)
    index = SearchIndex(facts, arrays)
    sizes = {"documents": len(index), "terms": len(arrays["term_starts"]) - 1, "all_postings": len(arrays["documents"])}
    row = compared(index, drawn_queries(min(QUERIES, int(count) // 10), ZIPF_SEED))
    return {**sizes, "index_mib": path.stat().st_size / 2**20, **row, **memory_of("self")}


def official(spec: str) -> dict[str, Any]:
    """Writes generated products in the form of the official files; `spec` is their number and a folder."""
    count, _, place = spec.partition(":")
    folder = Path(place)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "items_shuffle.json").open("w") as items, (folder / "items_ins_v2.json").open("w") as hidden:
        for number, product in enumerate(synthetic_products(int(count))):
            items.write(("," if number else "[") + json.dumps(raw(product)) + "\n")
            hidden.write(f"{',' if number else '{'}{json.dumps(product.asin)}: {json.dumps(told(product))}\n")
        items.write("]")
        hidden.write("}")
    return {"products": int(count), "source_mib": disk(folder, "items_*.json")}


def raw(product: Product) -> dict[str, Any]:
    """A product as `items_shuffle.json` has it."""
    prices = product.option_prices
    return {
        "asin": product.asin,
        "name": product.title,
        "category": product.category,
        "query": product.query,
        "product_category": product.product_category,
        "pricing": " - ".join(f"${price:.2f}" for price in product.pricing),
        "full_description": product.description,
        "small_description": list(product.bullet_points),
        "images": [],
        "customization_options": {
            name: [{"value": value, "price": prices.get(value, 0)} for value in values]
            for name, values in product.options.items()
        },
    }


def told(product: Product) -> dict[str, Any]:
    """A product as `items_ins_v2.json` has it."""
    return {
        "attributes": list(product.attributes),
        "instruction": product.instruction or "",
        "instruction_attributes": list(product.instruction_attributes),
    }


PARTS = {part.__name__: part for part in (build, opening, steps, search, zipf, official)}


def main() -> None:
    """Measure what the arguments name, and print the result as the last line."""
    part, spec = sys.argv[1:]
    print(json.dumps(PARTS[part](spec)))


if __name__ == "__main__":
    main()
