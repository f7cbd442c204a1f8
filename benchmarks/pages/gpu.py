"""The tables of the GPU campaign."""

from collections.abc import Mapping
from typing import Any

from pages.markdown import commit, head, row, text

# Seconds of a step of 128 trajectories of 0.5 billion parameters on a large GPU, by the share of the groups kept.
GOALS = {1.0: 20, 0.25: 10}


class RehearsalError(ValueError):
    """A rehearsal's file was given for a GPU's."""


def campaign_tables(content: Mapping[str, Any]) -> str:
    """Steps, checks, the kept cache, an update with shared prefixes, and the training run.

    Raises:
        RehearsalError: If the numbers are those of a rehearsal on a CPU.
    """
    if content["rehearsal"] or content["machine"]["gpu"] is None:
        raise RehearsalError("this is a rehearsal on a CPU; only what a GPU measured belongs into benchmarks/results")
    parts = content["parts"]
    done = {name: part["result"] for name, part in parts.items() if part["status"] != "failed"}
    steps = {name: found for name, found in done.items() if name.startswith("step-")}
    blocks = [_steps(steps)] if steps else []
    if "checks" in done:
        found = done["checks"]
        gaps = [float(test["recorded"]["gap_mean"]) for test in found["tests"] if "gap_mean" in test["recorded"]]
        counts = f"{found['passed']} passed, {found['failed'] + found['errors']} failed, {found['skipped']} skipped"
        apart = f"; sampler and trainer are {max(gaps):.1e} nats apart in the mean at most" if gaps else ""
        blocks.append([f"**Checks**: {counts}{apart}."])
    if "rollout" in done:
        blocks.append([f"**Rollout**: {done['rollout']['gpu']['bound']['arithmetic']}."])
    if "sharing" in done:
        blocks.append(_sharing(done["sharing"]["rows"]))
    if "smollm2" in done:
        blocks.append(_training(done["smollm2"]))
    missing = [name for name, part in parts.items() if part["status"] == "failed"]
    foot = f"{content['machine']['gpu']}, torch {content['versions']['torch']}. Commit {commit(content['commit'])}."
    blocks.append([f"{foot} Failed: {', '.join(missing) or 'nothing'}."])
    return text([line for block in blocks for line in ["", *block]][1:])


def _steps(found: Mapping[str, Any]) -> list[str]:
    lines = head(
        ["model", "trained", "kept", "prefixes", "seconds: rollout", "update", "step", "goal", "GiB: rollout", "update"]
        + ["estimated"]
    )
    for step in found.values():
        for prefixes in ("shared", "apart"):
            if prefixes in step:
                times = [f"{step[prefixes][half]:.1f}" for half in ("rollout", "update", "step")]
                memory = [f"{step[prefixes][f'{half}_gib']:.1f}" for half in ("rollout", "update")]
                goal = GOALS[step["filter_ratio"]] if "0.5B" in step["model"] else "–"
                guess = ", ".join(f"{step['estimated_gib'][half]:.1f}" for half in ("rollout", "update"))
                trained = f"LoRA, r = {step['rank']}" if step["rank"] else "all weights"
                kept = f"{step['filter_ratio']:.0%}"
                lines.append(row([step["model"], trained, kept, prefixes, *times, goal, *memory, guess]))
    return lines


def _sharing(rows: list[dict[str, Any]]) -> list[str]:
    lines = head(["an update of SmolLM2", "seconds: apart", "shared", "peak MiB: apart", "shared"])
    for found in rows:
        rank, apart, shared = found["case"]["rank"], found["apart"], found["shared"]
        numbers = [f"{apart['seconds']:.2f}", f"{shared['seconds']:.2f}"]
        numbers += [f"{apart['peak_mib']:,.0f}", f"{shared['peak_mib']:,.0f}"]
        lines.append(row([f"LoRA, r = {rank}" if rank else "all weights", *numbers]))
    return lines


def _training(found: Mapping[str, Any]) -> list[str]:
    ends = {name: f"{end['success']:.2f}" for name, end in found["ends"].items()}
    curve = ", ".join(f"{point['success']:.2f} after {point['step']}" for point in found["curve"])
    seconds = found["seconds"]["step"]
    pace = "" if seconds is None else f", {seconds:.1f} s each"
    said = ", ".join(f"{name} {value}" for name, value in ends.items())
    return [f"**SmolLM2 on Sokoban**: {found['updates']} updates{pace}. Success: {said}; on the way {curve or 'none'}."]
