"""How fast is the search, and how close does a plain search library come to Lucene's ranking?

    python benchmarks/webshop_search.py                 # generated catalogues of 1000 and 200,000 products; minutes
    python benchmarks/webshop_search.py --data FOLDER   # also the real products, against what Lucene answered
    python benchmarks/webshop_search.py --install       # first makes a venv for the peer (bm25s) in runs/
    python benchmarks/webshop_search.py --smoke         # 200 products, written to runs/ only

Each catalogue is measured in processes of its own, with one thread, in rounds that take turns. Queries are titles and
instructions of products. The peer lives in ``runs/peer-bm25s``; where it or FOLDER is missing, the result says so.
FOLDER holds ``webshop1k_products.jsonl`` and ``lucene_golden_top50_500q.tsv``. Writes ``results/webshop_search.json``
with every round.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring.processes import answer_of, install_peer, medians, missing_peer, peer_python
from measuring.real_products import PRODUCTS

from webshop_server.catalog import open_catalog
from webshop_server.search.build import document_text
from webshop_server.search.index import LIMIT, SearchIndex
from webshop_server.text.analyzer import tokens

HERE = Path(__file__).parent
PEER = "bm25s"
PEER_PACKAGES = ["bm25s==0.3.16"]
QUERIES = 200  # of each kind


def main() -> int:
    """Measure every catalogue and compare with the peer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="of each catalogue")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--measure", help=argparse.SUPPRESS)  # a catalogue, in a process of its own
    parser.add_argument("--output", type=Path, default=HERE / "results" / "webshop_search.json")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return 0
    if options.smoke:
        options.rounds, options.output = 1, Path("runs/benchmark-webshop-search-smoke.json")
    if options.install and not options.smoke:
        install_peer(PEER, PEER_PACKAGES)
    specs = ["synthetic:200"] if options.smoke else ["synthetic:1000", "synthetic:200000"]
    rounds: dict[str, list[dict[str, float]]] = {spec: [] for spec in specs}
    for _ in range(options.rounds):
        for spec in specs:
            rounds[spec].append(answer_of([sys.executable, __file__, "--measure", spec]))
    results: dict[str, Any] = {"speed": {spec: {**medians(rows), "rounds": rows} for spec, rows in rounds.items()}}
    for spec, row in results["speed"].items():
        print(f"{spec:20} {row['mean_ms']:6.2f} ms a query, built in {row['build_s']:.1f} s, {row['peak_mib']:.0f} MiB")
    results["agreement"] = agreement(options.data, options.smoke)
    # Loads torch, which the processes that measure memory must not.
    from records.results import write_result

    command = "python benchmarks/webshop_search.py" + (" --data FOLDER" if options.data else "")
    write_result(options.output, command, peer=PEER_PACKAGES, **results)
    return 0


def measure(spec: str) -> dict[str, float]:
    """Time to build and to open, time of a query, memory."""
    with tempfile.TemporaryDirectory() as folder:
        # In a file, as a large catalogue is, so that building and opening can be compared.
        catalog = open_catalog(spec, cache_dir=folder, max_in_memory=100)
        start = time.perf_counter()
        SearchIndex.open(catalog)
        built = time.perf_counter()
        index = SearchIndex.open(catalog)
        opened = time.perf_counter()
        step = max(1, len(catalog) // QUERIES)
        products = [catalog.product(asin) for asin in catalog.asins[::step]]
        texts = [text.lower() for item in products for text in (item.title, item.instruction) if text]
        times = [seconds(index, text) for text in texts]
    return {
        "products": len(catalog),
        "build_s": built - start,
        "open_s": opened - built,
        "queries": len(times),
        "mean_ms": 1e3 * statistics.fmean(times),
        "p95_ms": 1e3 * statistics.quantiles(times, n=20)[-1],
        "max_ms": 1e3 * max(times),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def seconds(index: SearchIndex, query: str) -> float:
    """Time of one query."""
    start = time.perf_counter()
    index.search(query.split(" "))
    return time.perf_counter() - start


def agreement(data: Path | None, smoke: bool) -> dict[str, Any] | str:
    """How often each engine ranks as Lucene did on the real products, or why that is not known."""
    if data is None or smoke:
        return "not measured: --data FOLDER gives the real products and Lucene's rankings"
    catalog = open_catalog(data / PRODUCTS)
    lines = (data / "lucene_golden_top50_500q.tsv").read_text(encoding="utf-8").splitlines()
    queries = [line.split("\t")[0] for line in lines]
    wanted = [[hit.split(":")[0] for hit in line.split("\t")[1].split()] for line in lines]
    index = SearchIndex.build(catalog)
    times = [seconds(index, query) for query in queries]
    rows = {"ours": row([index.search(query.split(" ")) for query in queries], wanted, times)}
    if (reason := missing_peer(PEER)) is None:
        documents = [document_text(product) for product in catalog.products()]
        for name, found in run_peer(documents, queries).items():
            rankings = [[catalog.asins[number] for number in ranking] for ranking in found["rankings"]]
            rows[name] = row(rankings, wanted, found["seconds"])
    else:
        print(f"skipped: {PEER}: {reason}")
    for name, figures in rows.items():
        print(f"{name:40}" + "".join(f" {key} {value:.3f}" for key, value in figures.items()))
    return rows


def run_peer(documents: list[str], queries: list[str]) -> dict[str, Any]:
    """What measuring/search_peer.py writes."""
    work = {
        "documents": documents,
        "document_tokens": [tokens(text) for text in documents],
        "queries": queries,
        "query_tokens": [tokens(text) for text in queries],
        "limit": LIMIT,
    }
    with tempfile.TemporaryDirectory() as folder:
        names = [str(Path(folder, name)) for name in ("work.json", "result.json")]
        Path(names[0]).write_text(json.dumps(work), encoding="utf-8")
        command = [str(peer_python(PEER)), str(HERE / "measuring" / "search_peer.py"), *names]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        results: dict[str, Any] = json.loads(Path(names[1]).read_text(encoding="utf-8"))
    return results


def row(rankings: list[list[str]], wanted: list[list[str]], times: list[float]) -> dict[str, float]:
    """Parts of the queries with Lucene's first hit, its first ten and all its fifty in order; time of a query."""
    pairs = list(zip(rankings, wanted, strict=True))
    return {
        "queries": len(pairs),
        "top_1": statistics.fmean(found[:1] == best[:1] for found, best in pairs),
        "order_of_10": statistics.fmean(found[:10] == best[:10] for found, best in pairs),
        "order_of_50": statistics.fmean(found == best for found, best in pairs),
        "mean_ms": 1e3 * statistics.fmean(times),
    }


if __name__ == "__main__":
    sys.exit(main())
