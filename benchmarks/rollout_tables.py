"""The tables of results/rollout_throughput.json: trajectories a second, and what late turns cost."""

import statistics
from collections.abc import Sequence
from typing import Any


def rollout_tables(content: dict[str, Any]) -> str:
    """Of the CPU and of the GPU; "not run" where there is none yet."""
    cpu, gpu = content["cpu"], content["gpu"]
    parts = [
        "**On the CPU**: not run.\n" if cpu is None else cpu_part(cpu),
        "**On a GPU**: not run.\n" if gpu is None else gpu_part(gpu),
    ]
    return "\n".join(parts)


def cpu_part(measured: dict[str, Any]) -> str:
    """Rates of the games, ratios of the turns."""
    lines = ["**On the CPU**, the embedded model:", "", *game_rows(measured), ""]
    costs = measured["turn_cost"]
    short, long = next(iter(costs["rounds"].values()))
    added = f"{costs['tokens_added_a_turn']} tokens shown and {costs['tokens']} sampled a turn"
    lines += [f"| {added} | {long} turns cost, in terms of {short} |", "|---|---|"]
    names = {"ours": "ours", "generate": "`model.generate`"}
    lines += [
        f"| {names[name]} | {spread(ratios(by_turns[long], by_turns[short]))} |"
        for name, by_turns in costs["rounds"].items()
    ]
    return "\n".join([*lines, "", foot(measured)]) + "\n"


def gpu_part(measured: dict[str, Any]) -> str:
    """Rates, and how far from what memory allows."""
    lines = [f"**On {measured['machine']['gpu']}**, the shape of Qwen2.5-0.5B, bfloat16:", "", *game_rows(measured), ""]
    return "\n".join([*lines, f"Bound by memory: {measured['bound']['arithmetic']}.", "", foot(measured)]) + "\n"


def game_rows(measured: dict[str, Any]) -> list[str]:
    """One row a game: trajectories a second of each way, and how many times as fast ours is."""
    lines = [
        "| trajectories a second | ours | `model.generate` on the whole history | TRL's loop | environments |",
        "|---|---|---|---|---|",
    ]
    for env, game in measured["games"].items():
        rounds = game["rounds"]
        rates = {name: game["trajectories"] / statistics.median(seconds) for name, seconds in rounds.items()}
        what = f"`{env}`: {game['trajectories']} × {game['turns']} turns, {game['length']['ours']:.0f} tokens each"
        others = [
            f"{rates[name]:.1f} (ours {spread(ratios(rounds[name], rounds['ours']))})" for name in ("generate", "trl")
        ]
        cells = [what, f"{rates['ours']:.1f}", *others, f"{100 * game['env_share']:.1f} % of ours"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def foot(measured: dict[str, Any]) -> str:
    """How the numbers came about."""
    rounds = len(next(iter(measured["games"].values()))["rounds"]["ours"])
    name, _, changes = (measured["commit"] or "unknown").partition("+")
    commit = name[:9] + ("+" + changes if changes else "")
    return (
        f"{measured['tokens']} tokens sampled a turn. Medians of {rounds} rounds that took turns; ratios are medians "
        f"of the rounds' ratios, and their range. Commit `{commit}`."
    )


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Round by round."""
    return [a / b for a, b in zip(above, below, strict=True)]


def spread(values: Sequence[float]) -> str:
    """``2.1 × (1.9 to 2.4)``."""
    return f"{statistics.median(values):.1f} × ({min(values):.1f} to {max(values):.1f})"
