"""The tables of the store: comparison with the original, how far rules get, tokens of pages, speeds, load."""

import json
from pathlib import Path
from typing import Any

from pages.markdown import commit, head, row, text
from pages.pretrained import pretrained_tables
from pages.transcripts import transcripts


def parity_table(content: dict[str, Any]) -> str:
    """One row a check: how many are the same, of how many."""
    rows = [row([name, f"{same:,}", f"{of:,}"]) for name, (same, of) in content["same_of"].items()]
    foot = f"Commit {commit(content['commit'])}."
    return text([*head(["compared with the original", "the same", "of"]), *rows, "", foot])


def baselines_table(content: dict[str, Any]) -> str:
    """One row a split: mean score and success of every policy, in percent."""
    names = ("env", "catalog", "rules", "split", "policy")
    rows = {tuple(found[name] for name in names): found for found in content["rows"]}
    policies = ("random", "scripted", "demonstrator", "oracle")
    lines = head(["id", "catalogue", "rules", "split", "n", *policies])
    for env, catalog, rules, split in dict.fromkeys(key[:4] for key in rows):
        found = [rows.get((env, catalog, rules, split, policy)) for policy in policies]
        count = rows[env, catalog, rules, split, "random"]["n"]
        lines.append(row([f"`{env}`", catalog, rules, split, count, *(_score(one) if one else "" for one in found)]))
    foot = f"Score / success [95 % interval of success], in percent. Commit {commit(content['commit'])}."
    return text([*lines, "", foot])


def _score(found: dict[str, Any]) -> str:
    low, high = found["success_interval"]
    return f"{100 * found['score']:.1f} / {100 * found['success']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def shopping_tables(content: dict[str, Any]) -> str:
    """The runs of a pretrained model in the shops, and how far a rule gets that sees what a model sees."""
    path = Path(__file__).resolve().parents[1] / "results" / "webshop_baselines.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    wanted = {"catalog": "synthetic", "rules": "fixed", "split": "test_by_product"}
    found = {one["policy"]: one for one in rows if all(one[name] == value for name, value in wanted.items())}
    rule, shown = found["scripted"], found["demonstrator"]
    note = (
        f"The same {rule['n']} requests of the generated products, score / success in percent: the scripted rule "
        f"{_score(rule)}, the shopper of demonstrations {_score(shown)}."
    )
    return f"{pretrained_tables(content)}\n{note}\n\n{transcripts(content)}"


def observations_table(content: dict[str, Any]) -> str:
    """One row a mode of each catalogue: tokens of an episode and of each kind of page."""
    kinds = ("start", "results", "item", "sub page", "reply")
    lines = head(["catalogue", "mode", "tokens an episode: mean", "p95", "first message", *kinds[1:]])
    for found in content["rows"]:
        mode = f"`{found['mode']}`" + ", actions shown" * found["show_actions"]
        numbers = [found["tokens"], found["tokens_p95"], *(found["pages"].get(kind, 0) for kind in kinds)]
        lines.append(row([found["catalog"], mode, *(f"{number:,.0f}" for number in numbers)]))
    episodes = {found["n"] for found in content["rows"]}
    foot = f"{max(episodes)} episodes a row, tokens of {content['model']}. Commit {commit(content['commit'])}."
    return text([*lines, "", foot])


def search_table(content: dict[str, Any]) -> str:
    """One row a catalogue: time of a query, of building and opening, memory; then one row an engine."""
    lines = head(["products", "ms a query: mean", "p95", "largest", "built in", "opened in", "peak memory"])
    for found in content["speed"].values():
        times = [f"{found[name]:.2f}" for name in ("mean_ms", "p95_ms", "max_ms")]
        rest = [f"{found['build_s']:.1f} s", f"{1e3 * found['open_s']:.0f} ms", f"{found['peak_mib']:.0f} MiB"]
        lines.append(row([f"{found['products']:,} generated", *times, *rest]))
    if isinstance(content["agreement"], dict):
        lines += ["", *head(["on the real 1000, as Lucene", "first hit", "order of 10", "order of 50", "ms a query"])]
        for name, found in content["agreement"].items():
            shares = [f"{100 * found[key]:.1f} %" for key in ("top_1", "order_of_10", "order_of_50")]
            lines.append(row([name, *shares, f"{found['mean_ms']:.2f}"]))
    rounds = len(next(iter(content["speed"].values()))["rounds"])
    return text([*lines, "", f"One thread; medians of {rounds} rounds. Commit {commit(content['commit'])}."])


def speed_table(content: dict[str, Any]) -> str:
    """One row a catalogue: steps a second, seconds until the first page, memory."""
    lines = head(
        [
            *("catalogue", "steps/s: scripted", "random", "resets/s", "first page after", "server ready after"),
            *("memory: environment", "server"),
        ]
    )
    for name, catalog in content["catalogs"].items():
        found = catalog["median"]
        what = ("scripted_steps_per_s", "random_steps_per_s", "scripted_resets_per_s")
        rates = [f"{found[key]:,.0f}" for key in what]
        starts = [
            f"{found[key]:.1f} s (first time {found[f'first_{key}']:.1f} s)" for key in ("start_s", "server_start_s")
        ]
        size = f"{found['rss_mib']:.0f} MiB (peak {found['first_peak_mib']:.0f})"
        lines.append(row([name, *rates, *starts, size, f"{found['server_rss_mib']:.0f} MiB"]))
    rounds = len(next(iter(content["catalogs"].values()))["env"])
    foot = f"On one core; medians of {rounds} rounds that took turns. Commit {commit(content['commit'])}."
    return text([*lines, "", foot])


def load_table(content: dict[str, Any]) -> str:
    """One row a phase of each round: rate, latency, what was wrong."""
    lines = head(["phase", "visits", "steps/s", "ms: p50", "p95", "p99", "as in the serial run", "5xx", "lost answers"])
    for phase, rounds in content["phases"].items():
        for found in rounds:
            times = [f"{found[name]:.0f}" for name in ("p50_ms", "p95_ms", "p99_ms")]
            failures = sum(count for status, count in found["statuses"].items() if status >= "500")
            same = f"{found['as_in_the_serial_run']:,} of {found['visits']:,}"
            rates = [f"{found['visits']:,}", f"{found['steps_per_s']:,.0f}"]
            lines.append(row([phase, *rates, *times, same, failures, sum(found["faults"].values())]))
    memory = content["phases"]["memory"][0]["samples"]
    shown = memory[:: max(1, len(memory) // 4)]
    sizes = ", ".join(f"{sum(sample['mib']):.0f} at {sample['sessions']:,}" for sample in shown)
    foot = (
        f"{content['clients']} clients, {content['workers']} workers, {content['products']:,} products. MiB of the "
        f"workers, together, by sessions made: {sizes}. Commit {commit(content['commit'])}."
    )
    return text([*lines, "", foot])


def size_table(content: dict[str, Any]) -> str:
    """What a store of the official size costs: to build, to open, to search, to step and to serve."""
    parts = content["parts"]
    lines = [*_built(parts), "", *_opened(parts), "", *_searched(parts), "", *_played(parts)]
    zipf = parts["zipf"]
    made: dict[str, list[str]] = {}
    for name, part in parts.items():
        made.setdefault(commit(part["commit"]), []).append(name)
    commits = "; ".join(f"{which} ({', '.join(names)})" for which, names in made.items())
    foot = (
        f"{content['products']:,} products. CPU: seconds or milliseconds of processor time, which other work on the "
        f"machine changes less than the time on the clock. Drawn texts: {zipf['terms']:,} different terms, "
        f"{zipf['all_postings']:,} postings, an index of {zipf['index_mib']:,.0f} MiB. "
        f"Commits of the parts: {commits}."
    )
    return text([*lines, "", foot])


def _built(parts: dict[str, Any]) -> list[str]:
    stages = ("catalogue", "index", "goals")
    lines = head(["first build", "s", "CPU s", *(f"{stage}: CPU s" for stage in stages), "peak MiB", "disk MiB"])
    for name, found in (("generated", parts["build"]), ("official files", parts["official"]["build"])):
        cpu = [f"{found['stages'][stage]['cpu_s']:.0f}" for stage in stages]
        sizes = [f"{found['peak_mib']:,.0f}", f"{sum(found['disk_mib'].values()):,.0f}"]
        lines.append(row([name, f"{found['seconds']:.0f}", f"{found['cpu_s']:.0f}", *cpu, *sizes]))
    return lines


def _opened(parts: dict[str, Any]) -> list[str]:
    found = parts["open"]
    lines = head(["then", "opened after", "resident MiB", "after play"])
    environment = [f"{found['env_open_s']:.2f} s", f"{found['env_rss_mib']:.0f}", f"{parts['steps']['rss_mib']:.0f}"]
    lines.append(row(["environment", *environment]))
    after = " and ".join(f"{mib:.0f}" for mib in parts["load"]["mib_after"])
    lines.append(
        row(["server", f"{found['server_start_s']:.2f} s", f"{found['server_rss_mib']:.0f}", f"{after} (two workers)"])
    )
    return lines


def _searched(parts: dict[str, Any]) -> list[str]:
    sums = ("plain sum, CPU ms: median", "p95", "same results")
    lines = head(["queries", "postings", "ms: median", "p95", "CPU ms: median", "p95", *sums])
    for kind, found in {**parts["search"]["rows"], "drawn texts, as long as instructions": parts["zipf"]}.items():
        times = [f"{found[who][at]:.1f}" for who in ("search", "cpu", "plain_cpu") for at in ("median_ms", "p95_ms")]
        same = f"{found['same']:,} of {found['queries']:,}"
        lines.append(row([kind, f"{found['postings']:,.0f}", *times, same]))
    return lines


def _played(parts: dict[str, Any]) -> list[str]:
    lines = head(["steps", "a second", "ms of a search: median", "p95", "ms of another step: median", "p95"])
    for policy in ("scripted", "random"):
        found = parts["steps"][policy]
        times = [f"{found[kind][at]:.1f}" for kind in ("search_step", "other_step") for at in ("median_ms", "p95_ms")]
        lines.append(row([policy, f"{found['steps_per_s']:,.0f}", *times]))
    alone = parts["alone"]
    times = [f"{alone[name]:.1f}" for name in ("search_p50_ms", "search_p95_ms")]
    lines.append(row(["one client over HTTP, 1 worker", f"{alone['steps_per_s']:,.0f}", *times, "", ""]))
    load = parts["load"]
    name = f"{load['clients']} clients over HTTP, {load['workers']} workers"
    every = f"all steps: median {load['p50_ms']:.0f}, p95 {load['p95_ms']:.0f} ms"
    return [*lines, row([name, f"{load['steps_per_s']:,.0f}", every, "", "", ""])]
