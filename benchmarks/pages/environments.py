"""The tables of the environments: how hard they are, how fast they are, and how large a report over them gets."""

import statistics
from typing import Any

from pages.markdown import commit, head, ratios, row, text

# Our workloads, and those of gym-sokoban, GEM and Gymnasium that do the same.
_COMPARED: dict[str, tuple[str | None, ...]] = {
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
    "tools step, as made": (None, None, None),
    "tools reset": (None, None, None),
}


def baselines_table(content: dict[str, Any]) -> str:
    """One row an environment: success of random play and of the oracle."""
    listed = [found for found in content["rows"] if not found["env_kwargs"]]  # docs/tools.md has the other splits
    rows = {(found["env"], found["policy"]): found for found in listed}
    lines = head(["id", "actions", "random", "oracle"])
    for env in dict.fromkeys(found["env"] for found in listed):
        pair = [rows[env, policy] for policy in ("random", "oracle")]
        cells = [f"{found['success']:.3f} [{found['low']:.3f}, {found['high']:.3f}]" for found in pair]
        lines.append(row([f"`{env}`", pair[0]["horizon"], *cells]))
    first = content["rows"][0]
    last_seed = first["first_seed"] + first["n"] - 1
    foot = f"Success [95 % interval], seeds {first['first_seed']} to {last_seed}. Commit {commit(content['commit'])}."
    return text([*lines, "", foot])


def worlds_table(content: dict[str, Any]) -> str:
    """A row a size with both policies, and a row a way of playing with its rate."""
    rows = {(found["env_kwargs"]["size"], found["policy"]): found for found in content["rows"]}
    lines = head(["size", "games", "actions", "random", "oracle", "actions of the oracle"])
    for size in dict.fromkeys(size for size, _ in rows):
        random, oracle = (rows[size, policy] for policy in ("random", "oracle"))
        cells = [f"{found['success']:.3f} [{found['low']:.3f}, {found['high']:.3f}]" for found in (random, oracle)]
        games = random["env_kwargs"]["games"]
        lines.append(row([f"`{size}`", games, random["horizon"], *cells, f"{oracle['mean_length']:.2f}"]))
    speed, first = content["speed"], content["rows"][0]
    lines += ["", *head(["random play, resets included", "steps a CPU second", "times TextWorld's own"])]
    for name, found in speed.items():
        ratio = statistics.median(ratios(found["rounds"], speed["textworld"]["rounds"]))
        lines.append(row([name, f"{found['median']:,.0f}", f"{ratio:,.1f}"]))
    foot = (
        f"Success [95 % interval], n = {first['n']}, seeds from {first['first_seed']}. Speed in `{content['timed']}`, "
        f"medians of {len(speed['textworld']['rounds'])} rounds. Commit {commit(content['commit'])}."
    )
    return text([*lines, "", foot])


def throughput_table(content: dict[str, Any]) -> str:
    """One row a workload of ours: its rate, and how many times that of each peer that does the same."""
    results = content["results"]
    lines = head(["on one core, per second", "ours", "gym-sokoban", "GEM", "Gymnasium"])
    for name, peers in _COMPARED.items():
        ours = results[name]
        cells = [f"{ours['median']:,.0f}"]
        for peer in peers:
            if peer is None:
                cells.append("")
            elif peer not in results:
                cells.append("not measured")
            else:
                ratio = statistics.median(ratios(ours["rounds"], results[peer]["rounds"]))
                cells.append(f"{results[peer]['median']:,.0f} (ours {ratio:,.1f} ×)")
        lines.append(row([name, *cells]))
    rounds = len(next(iter(results.values()))["rounds"])
    foot = (
        f"Medians of {rounds} rounds that took turns; ratios are medians of the rounds' ratios. Commit "
        f"{commit(content['commit'])}."
    )
    return text([*lines, "", foot])


def report_table(content: dict[str, Any]) -> str:
    """One row a length of the thoughts: what is recorded, how large the page is, and how long it takes to open."""
    lines = head(
        [
            *("thoughts", "tokens a trajectory", "rollouts: recorded", "in the page", "MB: recorded", "the page"),
            *("page written in", "loaded after: median (range)", "first trajectories after"),
        ]
    )
    for name, found in content["cases"].items():
        sizes = [f"{found[key]:.1f}" for key in ("recorded_megabytes", "page_megabytes")]
        counts = [found["rollouts_recorded"], found["rollouts_in_page"]]
        waits = [_seconds(found.get(key)) for key in ("seconds_to_load", "seconds_to_first_trajectories")]
        written = f"{found['seconds_writing_the_page']:.0f} s"
        lines.append(row([name, f"{found['tokens_a_trajectory']:.0f}", *counts, *sizes, written, *waits]))
    loads = ", ".join(f"{found.get('load_average', 0):.0f}" for found in content["cases"].values())
    foot = (
        f"3 runs; {next(iter(content['cases'].values()))['trajectories_recorded']:,} trajectories. The system's load "
        f"was {loads} on {content['machine']['cpus']} cores: the times are upper bounds. Commit "
        f"{commit(content['commit'])}."
    )
    return text([*lines, "", foot])


def _seconds(found: dict[str, Any] | None) -> str:
    if found is None:
        return "no browser"
    return f"{found['median']:.1f} s ({min(found['all']):.1f} to {max(found['all']):.1f})"
