"""How large is a report over many trajectories, and how long does it take to open?

    python benchmarks/report_size.py            # 3 runs x 200 steps x 128 trajectories; needs Chromium for the times
    python benchmarks/report_size.py --smoke    # a few steps, written to runs/ only

Episodes are really played: random actions on frozen lakes, with a thought of random words (``--words``) before each
answer if wanted. Every step takes 16 groups of 8 from them, and gives each trajectory an advantage; the logged rows are
made up. What is measured is the recorder, the report, and a browser that opens the page: until its load event, and
until the viewer has unpacked and drawn its first trajectories. The browser is started before. Writes
``results/report_size.json``; with ``--words`` the result is added to the file under its own name.
"""

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from measuring.headless_chromium import Chromium, find_chromium
from records.results import write_result

from ragen_trl import StarPOConfig, Trajectory, Turn, make_turns
from ragen_trl.policies.tiny_model import build_tiny_tokenizer
from ragen_trl.reporting.figures import PANELS
from ragen_trl.reporting.recorded import recording_path, write_recording
from ragen_trl.reporting.recorder import packed, turns_of
from ragen_trl.reporting.report import write_report
from ragen_trl.reporting.token_pieces import TokenPieces
from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.provenance import provenance

ENV, GROUPS, GROUP_SIZE = "ragen/FrozenLake-v0", 16, 8
WORDS = "the hole is left of me so I go down then right towards goal and must not slip on ice near it".split()


def main() -> None:
    """Make the runs, write the page, open it, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="recorded steps of each run")
    parser.add_argument("--words", type=int, default=0, help="words of thought a turn")
    parser.add_argument("--rounds", type=int, default=5, help="how often the page is opened")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "report_size.json")
    options = parser.parse_args()
    if options.smoke:
        options.steps, options.rounds = 3, 1
        options.output = Path("runs") / "benchmark-report-size-smoke.json"
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options.steps, options.words, options.rounds)
    name = f"{options.words} words of thought a turn"
    old = json.loads(options.output.read_text(encoding="utf-8"))["cases"] if options.output.exists() else {}
    print(json.dumps(found, indent=2))
    asked = f"--steps {options.steps} --words {options.words} --rounds {options.rounds}"
    write_result(options.output, f"python benchmarks/report_size.py {asked}", cases={**old, name: found})


def measure(folder: Path, steps: int, words: int, rounds: int) -> dict[str, Any]:
    """Three runs of so many steps, their page, and what it takes to open it."""
    random = np.random.default_rng(0)
    pieces = TokenPieces(build_tiny_tokenizer())
    episodes = play(random, words)
    began = time.perf_counter()
    runs = [write_run(folder / f"seed{seed}", seed, steps, episodes, pieces, random) for seed in range(3)]
    recording = time.perf_counter() - began
    began = time.perf_counter()
    page = write_report(runs, folder / "report.html")
    found: dict[str, Any] = {
        "trajectories_recorded": 3 * steps * GROUPS * GROUP_SIZE,
        "rollouts_in_page": page.read_text(encoding="utf-8").count('<script type="text/plain"'),
        "rollouts_recorded": 3 * steps,
        "tokens_a_trajectory": statistics.fmean(
            sum(len(turn["prompt"]) + len(turn["tokens"]) for turn in episode["turns"]) for episode in episodes
        ),
        "recorded_megabytes": sum(file.stat().st_size for file in folder.rglob("*.gz")) / 1e6,
        "page_megabytes": page.stat().st_size / 1e6,
        "seconds_recording_a_rollout": recording / (3 * steps),
        "seconds_writing_the_page": time.perf_counter() - began,
    }
    executable = find_chromium()
    if executable is None:
        print("there is no Chromium on the path: times of opening are left out")
        return found
    found["load_average"] = os.getloadavg()[0]  # other programs make the browser wait
    with Chromium(executable) as browser:
        browser.size(1280, 900)
        opened = [times(browser, page) for _ in range(rounds)]
    for place, name in enumerate(("seconds_to_load", "seconds_to_first_trajectories")):
        found[name] = {"median": statistics.median(o[place] for o in opened), "all": [o[place] for o in opened]}
    return found


def times(browser: Chromium, page: Path) -> tuple[float, float]:
    """Seconds from the start of the navigation to the load event, and to the first trajectories."""
    browser.open(page)
    while not browser.run("document.getElementById('viewer').dataset.ready"):
        time.sleep(0.02)
    loaded = browser.run("performance.getEntriesByType('navigation')[0].loadEventEnd")
    drawn = browser.run("performance.getEntriesByName('trajectories drawn')[0].startTime")
    return loaded / 1000, drawn / 1000


def play(random: np.random.Generator, words: int) -> list[dict[str, Any]]:
    """Episodes of random actions, as the recorder describes them: so many a start state, without advantages."""
    tokenizer = build_tiny_tokenizer()
    env = make_turns(ENV, StarPOConfig(output_dir="", report_to="none", use_cpu=True, bf16=False, think=words > 0))
    episodes = []
    for number in range(64 * GROUP_SIZE * 2):
        turns, seed, over = [], number // (GROUP_SIZE * 2), False
        observation, info = env.reset(seed=seed, options={"outcome_seed": number})
        while not over:
            assert env.actions is not None
            actions = [str(action) for action in random.choice(env.actions, size=random.integers(1, 4))]
            reply = env.format_reply(actions, " ".join(random.choice(WORDS, size=words)))
            ids = (tuple(tokenizer.encode(observation)), (*tokenizer.encode(reply), tokenizer.eos_token_id))
            shown = observation
            observation, reward, terminated, truncated, info = env.step(reply)
            turns.append(Turn(*ids, (), shown, reply, float(reward), info))
            over = terminated or truncated
        trajectory = Trajectory(tuple(turns), seed, number, terminated, truncated, info["limit"])
        episodes.append(described(trajectory))
    return episodes


def described(trajectory: Trajectory) -> dict[str, Any]:
    """As ``recorder.describe`` says it of a trajectory in a rollout."""
    return {
        "env": "FrozenLake-v0",
        "seed": trajectory.seed,
        "outcome_seed": trajectory.outcome_seed,
        "return": trajectory.episode_return,
        "success": trajectory.success,
        "kept": True,
        "end": trajectory.limit,
        "turns": turns_of(trajectory, None),
    }


def write_run(
    folder: Path,
    seed: int,
    steps: int,
    episodes: list[dict[str, Any]],
    pieces: TokenPieces,
    random: np.random.Generator,
) -> Path:
    """A run folder as training leaves it."""
    for step in range(1, steps + 1):
        rollout = []
        for group in range(GROUPS):
            first = GROUP_SIZE * 2 * int(random.integers(64))
            for member, place in enumerate(random.permutation(GROUP_SIZE * 2)[:GROUP_SIZE]):
                episode, advantage = episodes[first + int(place)], float(f"{random.normal():.6g}")
                turns = [{**turn, "advantage": advantage} for turn in episode["turns"]]
                rollout.append({"group": group, "member": member, **episode, "turns": turns})
        head = {"step": step, "rollout": 1, "group_size": GROUP_SIZE}
        write_recording(recording_path(folder, step), packed(head, rollout, pieces))
    metrics = [metric for panel in PANELS for metric in panel.metrics]
    curve = [{m: 0.5 + 0.4 * math.sin(step / 30) + 0.05 * random.normal() for m in metrics} for step in range(steps)]
    write_atomically(folder / "history.json", json.dumps([{"step": n + 1, **row} for n, row in enumerate(curve)]))
    share = {"n": 512, "success": 0.5, "success_low": 0.46, "success_high": 0.54}
    result = {**share, "mean_return": 0.5, "return_stderr": 0.02, "format_valid": 1.0, "turns": 3.0}
    summary = {
        **provenance(),
        "seed": seed,
        "env": ENV,
        "env_kwargs": {},
        "algo": "starpo-s",
        "model": "none: random actions",
        "parameters": 0,
        "config": {},
        "results": dict.fromkeys(("random", "before", "trained", "oracle"), result),
        "seconds": {},
        "trajectories": {},
    }
    write_atomically(folder / "summary.json", json.dumps(summary))
    return folder


if __name__ == "__main__":
    main()
