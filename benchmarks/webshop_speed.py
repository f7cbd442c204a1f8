"""How soon is the store ready, how much memory does it take, and how fast do its environments step?

    python benchmarks/webshop_speed.py                 # 1000 and 200,000 generated products; some minutes
    python benchmarks/webshop_speed.py --data FOLDER   # also the public 1000-product set
    python benchmarks/webshop_speed.py --smoke         # 200 products, one short round, written to runs/ only

For each catalogue, in rounds that take turns: `env` is ``gymnasium.make("ragen/WebShop-v0")`` in text mode, with the
Flask app in its process, on one core; `server` is ``webshop-server`` with one worker, until /healthz answers. The
first round makes files of a large catalogue, which the other rounds use; its figures are reported separately. Writes
``results/webshop_speed.json``.
"""

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from measuring.processes import ONE_THREAD, answer_of, medians, resident
from measuring.real_products import PRODUCTS, asked_for

HERE = Path(__file__).parent


def main() -> None:
    """Measure every catalogue; exit status 2 if the folder of the data is named and not there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of the steps of each policy in each round")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="the core of the environments")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--measure", help=argparse.SUPPRESS)  # a catalogue, in a process of its own
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)  # when that process was started
    parser.add_argument("--output", type=Path, default=HERE / "results" / "webshop_speed.json")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.seconds, options.cpu, options.began)))
        return
    catalogs = {"synthetic:1000": "synthetic:1000", "synthetic:200000": "synthetic:200000"}
    if options.smoke:
        catalogs = {"synthetic:200": "synthetic:200"}
        options.rounds, options.seconds, options.output = 1, 0.1, Path("runs/benchmark-webshop-speed-smoke.json")
    with tempfile.TemporaryDirectory() as folder:
        if options.data and (products := asked_for(options.data)):
            # A copy, because files made from a catalogue are put next to it.
            for file in (products, *options.data.glob("items_ins_v2*.json")):
                shutil.copy(file, folder)
            catalogs["real 1000"] = str(Path(folder, PRODUCTS))
        results: dict[str, dict[str, list[dict[str, float]]]] = {name: {"env": [], "server": []} for name in catalogs}
        for done in range(options.rounds):
            print(f"round {done + 1} of {options.rounds}", flush=True)
            for name, catalog in catalogs.items():
                results[name]["env"].append(in_own_process(catalog, options, folder))
                results[name]["server"].append(start_server(catalog, folder))
    # Loads torch, which the process that measures must not, and it is this file too.
    from records.results import write_result

    rows = {name: {**found, "median": medians_of(found)} for name, found in results.items()}
    command = "python benchmarks/webshop_speed.py" + (" --data FOLDER" if options.data else "")
    for name, row in rows.items():
        print(f"{name:18}" + "".join(f"  {key} {value:,.2f}" for key, value in row["median"].items()))
    write_result(options.output, command, catalogs=rows)


def in_own_process(catalog: str, options: argparse.Namespace, folder: str) -> dict[str, float]:
    """What `measure` finds in a new interpreter; caches are in a folder of this run."""
    command = [sys.executable, __file__, "--measure", catalog, "--seconds", str(options.seconds)]
    command += ["--cpu", str(options.cpu), "--began", str(time.time())]
    found: dict[str, float] = answer_of(command, XDG_CACHE_HOME=folder)
    return found


def measure(catalog: str, seconds: float, cpu: int, began: float) -> dict[str, float]:
    """Seconds until the first page, steps and resets a second of two policies, memory."""
    os.sched_setaffinity(0, {cpu})
    import gymnasium
    import numpy as np

    import ragen_envs  # noqa: F401  (registers the ids)
    from ragen_envs.webshop.policies import random_shop_action, scripted_shop_action

    env = gymnasium.make("ragen/WebShop-v0", catalog=catalog)
    env.reset(seed=0)
    found = {"start_s": time.time() - began, "rss_at_start_mib": resident("self")}
    rng = np.random.default_rng(0)
    inner: Any = env.unwrapped
    policies = {"scripted": lambda: scripted_shop_action(inner), "random": lambda: random_shop_action(inner, rng)}
    for name, policy in policies.items():
        play(env, policy, seconds / 20)  # fills caches
        rates = play(env, policy, seconds)
        found |= {f"{name}_{what}": rate for what, rate in rates.items()}
    found["rss_mib"] = resident("self")
    found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def play(env: Any, policy: Callable[[], str], seconds: float) -> dict[str, float]:
    """Whole episodes until their steps have taken so many seconds; the time of the policy does not count."""
    steps = episodes = 0
    stepping = resetting = 0.0
    while stepping < seconds:
        before = time.perf_counter()
        env.reset()
        resetting += time.perf_counter() - before
        episodes += 1
        over = False
        while not over:
            action = policy()
            before = time.perf_counter()
            _, _, terminated, truncated, _ = env.step(action)
            stepping += time.perf_counter() - before
            over = terminated or truncated
            steps += 1
    return {"steps_per_s": steps / stepping, "resets_per_s": episodes / resetting}


def start_server(catalog: str, folder: str) -> dict[str, float]:
    """Seconds from the command until /healthz answers, and memory then."""
    command = [sys.executable, "-m", "webshop_server", "--catalog", catalog, "--port", "0"]
    began = time.perf_counter()
    surroundings = {**os.environ, **ONE_THREAD, "XDG_CACHE_HOME": folder}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=surroundings)
    try:
        assert server.stdout is not None
        ready = re.search(r" at (http://\S+),", server.stdout.readline())
        if ready is None:
            raise SystemExit(f"the server of {catalog} did not start")
        with urlopen(f"{ready[1]}/healthz", timeout=30) as response:
            response.read()
        return {"server_start_s": time.perf_counter() - began, "server_rss_mib": resident(server.pid)}
    finally:
        server.terminate()
        server.wait(30)


def medians_of(found: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    """Of all rounds; of starts and peaks without the first round, which makes files and has figures of its own."""
    rounds = [env | server for env, server in zip(found["env"], found["server"], strict=True)]
    result, later = medians(rounds), medians(rounds[1:] or rounds)
    for name in ("start_s", "server_start_s", "peak_mib"):
        result |= {name: later[name], f"first_{name}": rounds[0][name]}
    return result


if __name__ == "__main__":
    main()
