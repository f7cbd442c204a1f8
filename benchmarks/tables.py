"""Write the tables of README.md and benchmarks/README.md from the committed results.

    python benchmarks/tables.py            # rewrite what stands between the marks
    python benchmarks/tables.py --check    # exit status 1 if that would change something

A table stands between ``<!-- table: benchmarks/results/NAME.json -->`` and ``<!-- end of table -->``.
"""

import argparse
import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from learning.sign_tables import signs_table
from learning.tables import learning_tables, question_section
from rollout_tables import rollout_tables
from update_tables import update_tables

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "benchmarks/README.md", "docs/warning_signs.md")
# Workloads of ours, and those of gym-sokoban, GEM and Gymnasium that do the same.
COMPARED: dict[str, tuple[str | None, ...]] = {
    "sokoban step, unwrapped": ("gym-sokoban step", "gem sokoban step", None),
    "sokoban step, as made": ("gym-sokoban step", "gem sokoban step", None),
    "sokoban reset": ("gym-sokoban reset", "gem sokoban reset", None),
    "sokoban vector, sync": (None, "gem sokoban vector", None),
    "sokoban vector, own": (None, "gem sokoban vector", None),
    "frozen lake step, unwrapped": (None, None, "gymnasium frozen lake step"),
    "frozen lake step, as made": (None, None, "gymnasium frozen lake step"),
    "frozen lake reset": (None, None, "gymnasium frozen lake reset"),
    "frozen lake vector, sync": (None, None, None),
    "frozen lake vector, own": (None, None, None),
    "large sokoban step, as made": (None, None, None),
    "large sokoban reset": (None, None, None),
}
MARKED = re.compile(r"(<!-- table: (benchmarks/results/(\w+)\.json) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def main() -> int:
    """Rewrite or check every page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale = []
    for page in (ROOT / name for name in PAGES if (ROOT / name).exists()):
        text = page.read_text(encoding="utf-8")
        fresh = MARKED.sub(lambda mark: f"{mark[1]}{table(ROOT / mark[2], mark[3])}{mark[4]}", text)
        if fresh != text:
            stale.append(page.name)
            if not options.check:
                page.write_text(fresh, encoding="utf-8")
    if stale and options.check:
        print(f"not what the results say: {', '.join(stale)}; run python benchmarks/tables.py", file=sys.stderr)
        return 1
    return 0


def table(path: Path, name: str) -> str:
    """The Markdown table of a result file."""
    makers = {
        "train": train_table,
        "learning_curves": learning_tables,
        "warning_signs": signs_table,
        "step_time": step_time_table,
        "train_step": update_tables,
        "rollout_stepping": stepping_table,
        "rollout_throughput": rollout_tables,
        "env_throughput": throughput_table,
        "baselines": baselines_table,
        "webshop_parity": parity_table,
        "webshop_baselines": shop_baselines_table,
        "webshop_search": search_table,
        "webshop_speed": shop_speed_table,
        "webshop_load": load_table,
    }
    if not path.exists():
        return "No result yet.\n"
    content = json.loads(path.read_text(encoding="utf-8"))
    return makers.get(name, question_section)(content)


def train_table(content: dict[str, Any]) -> str:
    """One row a seed: success and its 95 % interval of every policy on the same held-out start states."""
    lines = ["| seed | random | warm start | trained | oracle | trained, unseen states | step | whole run |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for run in content["runs"]:
        results, seconds = run["results"], run["seconds"]
        cells = [success(results[name]) for name in ("random", "before", "trained", "oracle")]
        unseen = run["unseen"]["trained"]
        times = [f"{seconds['step_median']:.2f} s", f"{seconds['total'] / 60:.1f} min"]
        cells = [str(run["seed"]), *cells, f"{success(unseen)} (n={unseen['n']})", *times]
        lines.append(f"| {' | '.join(cells)} |")
    first = content["runs"][0]
    count = first["results"]["trained"]["n"]
    lines += ["", f"Success [95 % interval], n = {count} held-out start states, sampled at temperature 1. Commit "
              f"`{commit(first)}`, {first['machine']['cpus']} CPU cores, no GPU."]
    return "\n".join(lines) + "\n"


def commit(run: dict[str, Any]) -> str:
    """The commit a run was made with, shortened; a checkout with changes says so."""
    name, _, changes = (run["commit"] or "unknown").partition("+")
    return name[:9] + ("+" + changes if changes else "")


def step_time_table(content: dict[str, Any]) -> str:
    """One row a group shape: seconds of a step and how much of it is play."""
    lines = ["| 128 trajectories as | seconds a step: median [quartiles] | of which rollout | steps |"]
    lines.append("|---|---|---|---|")
    for shape in content["shapes"]:
        step, rollout = shape["step"], shape["rollout"]
        times = f"{step['median']:.2f} [{step['low']:.2f}, {step['high']:.2f}] | {rollout['median']:.2f}"
        lines.append(f"| {shape['groups']} groups of {shape['group_size']} | {times} | {shape['steps']} |")
    return "\n".join(lines) + "\n"


def stepping_table(content: dict[str, Any]) -> str:
    """What environments that wait cost a turn; then one row an environment that computes: its share of a rollout."""
    waiting = content["waiting"]
    turn = {name: measured["median"] for name, measured in waiting["seconds_a_turn"].items()}
    what = f"{waiting['environments']} environments of {1e3 * waiting['wait']:.0f} ms"
    lines = [f"| {what} | side by side | one by one |", "|---|---|---|"]
    lines += [f"| seconds a turn | {turn['side by side']:.3f} | {turn['one by one']:.2f} |", ""]
    lines += ["| environments that compute | rows | tokens a row | rollout | their share: threads | no threads |"]
    lines.append("|---|---|---|---|---|---|")
    for row in content["computing"]:
        shares = " | ".join(f"{100 * row['share'][name]['median']:.1f} %" for name in ("threads", "no threads"))
        rollout = f"{row['seconds']['threads']['median']:.2f} s"
        lines.append(f"| `{row['env']}` | {row['rows']} | {row['tokens']:.0f} | {rollout} | {shares} |")
    rounds = len(waiting["seconds_a_turn"]["side by side"]["rounds"])
    lines += ["", f"Medians of {rounds} rounds that took turns. Commit `{commit(content)}`."]
    return "\n".join(lines) + "\n"


def baselines_table(content: dict[str, Any]) -> str:
    """One row an environment: success of random play and of the oracle."""
    rows = {(row["env"], row["policy"]): row for row in content["rows"]}
    lines = ["| id | actions | random | oracle |", "|---|---|---|---|"]
    for env in dict.fromkeys(row["env"] for row in content["rows"]):
        cells = [
            f"{row['success']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
            for row in (rows[env, "random"], rows[env, "oracle"])
        ]
        lines.append(f"| `{env}` | {rows[env, 'random']['horizon']} | {' | '.join(cells)} |")
    first = content["rows"][0]
    last_seed = first["first_seed"] + first["n"] - 1
    lines += ["", f"Success [95 % interval], seeds {first['first_seed']} to {last_seed}. Commit `{commit(content)}`."]
    return "\n".join(lines) + "\n"


def throughput_table(content: dict[str, Any]) -> str:
    """One row a workload of ours: its rate, and how many times that of each peer that does the same."""
    results = content["results"]
    lines = ["| on one core, per second | ours | gym-sokoban | GEM | Gymnasium |", "|---|---|---|---|---|"]
    for name, peers in COMPARED.items():
        cells = [f"{results[name]['median']:,.0f}"]
        for peer in peers:
            if peer is None:
                cells.append("")
            elif peer not in results:
                cells.append("not measured")
            else:
                pairs = zip(results[name]["rounds"], results[peer]["rounds"], strict=True)
                ratio = statistics.median(ours / theirs for ours, theirs in pairs)
                cells.append(f"{results[peer]['median']:,.0f} (ours {ratio:,.1f} ×)")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    rounds = len(next(iter(results.values()))["rounds"])
    lines += ["", f"Medians of {rounds} rounds that took turns; ratios are medians of the rounds' ratios. Commit "
              f"`{commit(content)}`."]
    return "\n".join(lines) + "\n"


def parity_table(content: dict[str, Any]) -> str:
    """One row a check: how many are the same, of how many."""
    lines = ["| compared with the original | the same | of |", "|---|---|---|"]
    lines += [f"| {name} | {same:,} | {of:,} |" for name, (same, of) in content["same_of"].items()]
    return "\n".join([*lines, "", f"Commit `{commit(content)}`."]) + "\n"


def shop_baselines_table(content: dict[str, Any]) -> str:
    """One row a split: mean score and success of every policy, in percent."""
    rows = {(row["env"], row["catalog"], row["rules"], row["split"], row["policy"]): row for row in content["rows"]}
    lines = ["| id | catalogue | rules | split | n | random | scripted | oracle |", "|---|---|---|---|---|---|---|---|"]
    for env, catalog, rules, split in dict.fromkeys(key[:4] for key in rows):
        found = [rows[env, catalog, rules, split, policy] for policy in ("random", "scripted", "oracle")]
        cells = [
            f"{100 * row['score']:.1f} / {100 * row['success']:.1f} "
            f"[{100 * row['success_interval'][0]:.1f}, {100 * row['success_interval'][1]:.1f}]"
            for row in found
        ]
        lines.append(f"| `{env}` | {catalog} | {rules} | {split} | {found[0]['n']} | {' | '.join(cells)} |")
    lines += ["", f"Score / success [95 % interval of success], in percent. Commit `{commit(content)}`."]
    return "\n".join(lines) + "\n"


def search_table(content: dict[str, Any]) -> str:
    """One row a catalogue: time of a query, of building and opening, memory; then one row an engine."""
    lines = ["| products | ms a query: mean | p95 | largest | built in | opened in | peak memory |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row in content["speed"].values():
        times = " | ".join(f"{row[name]:.2f}" for name in ("mean_ms", "p95_ms", "max_ms"))
        rest = f"{row['build_s']:.1f} s | {1e3 * row['open_s']:.0f} ms | {row['peak_mib']:.0f} MiB"
        lines.append(f"| {row['products']:,} generated | {times} | {rest} |")
    if isinstance(content["agreement"], dict):
        lines += ["", "| on the real 1000, as Lucene | first hit | order of 10 | order of 50 | ms a query |"]
        lines.append("|---|---|---|---|---|")
        for name, row in content["agreement"].items():
            shares = " | ".join(f"{100 * row[key]:.1f} %" for key in ("top_1", "order_of_10", "order_of_50"))
            lines.append(f"| {name} | {shares} | {row['mean_ms']:.2f} |")
    rounds = len(next(iter(content["speed"].values()))["rounds"])
    lines += ["", f"One thread; medians of {rounds} rounds. Commit `{commit(content)}`."]
    return "\n".join(lines) + "\n"


def shop_speed_table(content: dict[str, Any]) -> str:
    """One row a catalogue: steps a second, seconds until the first page, memory."""
    heads = ("catalogue", "steps/s: scripted", "random", "resets/s", "first page after", "server ready after")
    lines = [f"| {' | '.join(heads)} | memory: environment | server |", "|---|---|---|---|---|---|---|---|"]
    for name, found in content["catalogs"].items():
        row = found["median"]
        what = ("scripted_steps_per_s", "random_steps_per_s", "scripted_resets_per_s")
        rates = " | ".join(f"{row[key]:,.0f}" for key in what)
        starts = " | ".join(
            f"{row[key]:.1f} s (first time {row[f'first_{key}']:.1f} s)" for key in ("start_s", "server_start_s")
        )
        sizes = f"{row['rss_mib']:.0f} MiB (peak {row['first_peak_mib']:.0f}) | {row['server_rss_mib']:.0f} MiB"
        lines.append(f"| {name} | {rates} | {starts} | {sizes} |")
    rounds = len(next(iter(content["catalogs"].values()))["env"])
    lines += ["", f"On one core; medians of {rounds} rounds that took turns. Commit `{commit(content)}`."]
    return "\n".join(lines) + "\n"


def load_table(content: dict[str, Any]) -> str:
    """One row a phase of each round: rate, latency, what was wrong."""
    lines = ["| phase | visits | steps/s | ms: p50 | p95 | p99 | as in the serial run | 5xx | lost answers |"]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for phase, rounds in content["phases"].items():
        for row in rounds:
            times = " | ".join(f"{row[name]:.0f}" for name in ("p50_ms", "p95_ms", "p99_ms"))
            failures = sum(count for status, count in row["statuses"].items() if status >= "500")
            same, faults = f"{row['as_in_the_serial_run']:,} of {row['visits']:,}", sum(row["faults"].values())
            checks = f"{same} | {failures} | {faults}"
            lines.append(f"| {phase} | {row['visits']:,} | {row['steps_per_s']:,.0f} | {times} | {checks} |")
    memory = content["phases"]["memory"][0]["samples"]
    sizes = ", ".join(f"{sum(sample['mib']):.0f} at {sample['sessions']:,}" for sample in memory[:: len(memory) // 4])
    asked = f"{content['clients']} clients, {content['workers']} workers, {content['products']:,} products"
    lines += ["", f"{asked}. MiB of the workers, together, by sessions made: {sizes}. Commit `{commit(content)}`."]
    return "\n".join(lines) + "\n"


def success(result: dict[str, Any]) -> str:
    """``0.80 [0.76, 0.83]``."""
    return f"{result['success']:.2f} [{result['success_low']:.2f}, {result['success_high']:.2f}]"


if __name__ == "__main__":
    sys.exit(main())
