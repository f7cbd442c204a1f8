"""What does a store of the official size cost: to build, to open, to search, to step, to serve?

    python benchmarks/webshop_size.py                 # 1,180,000 products; an hour on a busy laptop, 7 GB of disk
    python benchmarks/webshop_size.py --only search   # one part again; the others stay as they were measured
    python benchmarks/webshop_size.py --smoke         # 300 products, written to runs/ only

Parts: `build` (first opening of the generated catalogue, into an empty folder), `open` (environment and server, in
rounds that take turns), `search` (four kinds of queries, each next to the plain sum over all postings, whose results
must be the same), `steps` (environment, two policies), `load` (64 clients over HTTP, answers compared with a serial
run), `alone` (one client over HTTP), `zipf` (searches in drawn texts as long and rich as real ones), `official` (the
same products as `items_shuffle.json` with `items_ins_v2.json`). Each runs in processes of its own; files and finished
parts are in ``--folder``. Writes ``results/webshop_size.json``.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import webshop_load
import webshop_speed
from measuring.processes import answer_of_module, medians

HERE = Path(__file__).parent
PRODUCTS = 1_180_000


def main() -> int:
    """Measure the parts; exit status 1 if a search or an answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--products", type=int, default=PRODUCTS)
    parser.add_argument("--folder", type=Path, default=Path("runs") / "webshop-size")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=[], help="measure these parts, again if need be")
    parser.add_argument("--rounds", type=int, default=5, help="of the part `open`")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the steps of each policy")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--visits", type=int, default=10, help="of each client")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "webshop_size.json")
    options = parser.parse_args()
    if options.smoke:
        options.products, options.rounds, options.seconds = 300, 1, 0.2
        options.clients, options.visits = 2, 1
        options.folder, options.output = Path("runs/webshop-size-smoke"), Path("runs/benchmark-webshop-size-smoke.json")
        shutil.rmtree(options.folder, ignore_errors=True)
    options.folder = options.folder.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    os.environ["XDG_CACHE_HOME"] = str(options.folder)
    fresh = [name for name in PARTS if name in options.only or not part_file(name, options).exists()]
    found = {name: finished(name, part, options) for name, part in PARTS.items()}
    # Loads torch, which processes that are measured must not.
    from records.results import write_result

    from ragen_trl.system.provenance import provenance

    for name in fresh:
        found[name]["commit"] = provenance()["commit"]
        part_file(name, options).write_text(json.dumps(found[name], indent=1), encoding="utf-8")
    command = "python benchmarks/webshop_size.py"
    write_result(options.output, command, products=options.products, seeds=[0], parts=found)
    searches = [*found["search"]["rows"].values(), found["zipf"]]
    wrong = found["load"]["wrong"] + found["alone"]["wrong"]
    return int(wrong > 0 or any(row["same"] < row["queries"] for row in searches))


def finished(name: str, part: Callable[[argparse.Namespace], dict[str, Any]], options: argparse.Namespace) -> Any:
    """A part's figures: those of an earlier run, or new ones."""
    path = part_file(name, options)
    if name in options.only or not path.exists():
        began = time.perf_counter()
        path.write_text(json.dumps(part(options), indent=1), encoding="utf-8")
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    return json.loads(path.read_text(encoding="utf-8"))


def part_file(name: str, options: argparse.Namespace) -> Path:
    """Where the figures of a part are kept."""
    return Path(options.folder / f"{name}.json")


def spec_of(options: argparse.Namespace) -> str:
    """The generated catalogue."""
    return f"synthetic:{options.products}"


def measured(part: str, spec: str) -> Any:
    """What a part of measuring/large_shop.py finds in a process of its own."""
    return answer_of_module("measuring.large_shop", part, spec)


def build(options: argparse.Namespace) -> dict[str, Any]:
    """The first opening."""
    shutil.rmtree(options.folder / "ragen-webshop", ignore_errors=True)
    return dict(measured("build", spec_of(options)))


def opened(options: argparse.Namespace) -> dict[str, Any]:
    """Environment and server, with everything built."""
    rounds: list[dict[str, float]] = []
    for _ in range(options.rounds):
        env = measured("opening", spec_of(options))
        server = webshop_speed.start_server(spec_of(options), str(options.folder))
        rounds.append({**{f"env_{name}": value for name, value in env.items()}, **server})
    worst = {"largest_open_s": max(max(row["env_open_s"], row["server_start_s"]) for row in rounds)}
    return {**medians(rounds), **worst, "rounds": rounds}


def search(options: argparse.Namespace) -> dict[str, Any]:
    """Queries in the generated catalogue."""
    return dict(measured("search", spec_of(options)))


def steps(options: argparse.Namespace) -> dict[str, Any]:
    """The environment at play."""
    return dict(measured("steps", f"{options.seconds}/{spec_of(options)}"))


def load(options: argparse.Namespace) -> dict[str, Any]:
    """Many clients of two workers."""
    return _served(options, options.clients, options.visits, workers=2)


def alone(options: argparse.Namespace) -> dict[str, Any]:
    """One client, whose steps wait for nobody."""
    return _served(options, 1, options.clients * options.visits, workers=1)


def _served(options: argparse.Namespace, clients: int, visits: int, workers: int) -> dict[str, Any]:
    counts = {"clients": clients, "workers": workers}
    asked = argparse.Namespace(catalog=spec_of(options), visits=visits, products=options.products, **counts)
    return {**counts, **webshop_load.load(asked, webshop_load.open_shop(asked.catalog))}


def zipf(options: argparse.Namespace) -> dict[str, Any]:
    """Queries in drawn texts."""
    return dict(measured("zipf", f"{options.products}:{options.folder}"))


def official(options: argparse.Namespace) -> dict[str, Any]:
    """The same products from the official files' form."""
    folder = options.folder / "official"
    shutil.rmtree(folder, ignore_errors=True)
    written = measured("official", f"{options.products}:{folder}")
    built = measured("build", str(folder))
    rounds = [measured("opening", str(folder)) for _ in range(options.rounds)]
    return {**written, "build": built, "open_s": statistics.median(row["open_s"] for row in rounds), "rounds": rounds}


PARTS = {"build": build, "open": opened, "search": search, "steps": steps, "load": load, "alone": alone}
PARTS |= {"zipf": zipf, "official": official}


if __name__ == "__main__":
    sys.exit(main())
