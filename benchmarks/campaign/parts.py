"""The parts of the GPU campaign, in the order of their worth, each a command that writes one answer."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

BENCHMARKS = Path(__file__).resolve().parents[1]
ROOT = BENCHMARKS.parent
HALF, LARGE = "Qwen2.5-0.5B-Instruct", "Qwen2.5-1.5B-Instruct"
REHEARSAL: dict[str, Any] = {"model": None, "rows": 4, "trajectories": 16, "turns": 2, "tokens": 8, "steps": 1}


@dataclass(frozen=True)
class Part:
    """One measurement.

    Attributes:
        name: Of its file.
        asks: In a few words.
        limit: Seconds that it may take.
        at_least: Seconds without which it is not begun.
        needs_model: Whether it plays SmolLM2-135M-Instruct.
        goes_on: Whether what its limit cuts off continues with the next command.
        answers: Exit statuses with which its answer is one; a test that fails is a finding and no reason to repeat it.
        rehearsed: Whether a rehearsal has it; parts that differ in numbers only have the same one.
    """

    name: str
    asks: str
    limit: float
    at_least: float
    needs_model: bool = False
    goes_on: bool = False
    answers: tuple[int, ...] = (0,)
    rehearsed: bool = True


PARTS = (
    Part("checks", "does training on the GPU agree with its sampler, in every form?", 180, 60, answers=(0, 1)),
    Part("step-half-all", "a step of 0.5B, all kept, shared prefixes on and off", 200, 90),
    Part("step-half-quarter", "a step of 0.5B, a quarter kept", 100, 60, rehearsed=False),
    Part("step-large-all", "a step of 1.5B, all kept", 150, 90, rehearsed=False),
    Part("step-large-quarter", "a step of 1.5B, a quarter kept", 120, 80, rehearsed=False),
    Part("rollout", "a kept KV cache against generate and TRL's loop, 0.5B", 220, 150),
    Part("step-half-lora", "a step of 0.5B with LoRA, a quarter kept", 100, 60),
    Part("sharing", "an update with shared prefixes on and off, SmolLM2", 80, 45, needs_model=True),
    Part("smollm2", "StarPO-S of SmolLM2 on Sokoban, as many updates as fit", 350, 90, needs_model=True, goes_on=True),
)
_A_FEW = "every_form and sdpa or as_the_cpu_does"
_STEPS: dict[str, dict[str, Any]] = {
    "step-half-all": {"model": HALF, "steps": 4, "compares_sharing": True},
    "step-half-quarter": {"model": HALF, "filter_ratio": 0.25},
    "step-large-all": {"model": LARGE},
    "step-large-quarter": {"model": LARGE, "filter_ratio": 0.25},
    "step-half-lora": {"model": HALF, "filter_ratio": 0.25, "rank": 64},
}


def command(part: Part, answer: Path, folder: Path, model: Path | None, rehearses: bool) -> list[str]:
    """What is run: with the answer's file, the campaign's folder and the pretrained model's."""
    if part.name == "checks":
        options = ["-q", "-p", "no:cacheprovider", f"--junitxml={answer}"]
        options += ["-k", _A_FEW] if rehearses else []
        return [sys.executable, "-m", "pytest", str(ROOT / "tests" / "gpu"), *options]
    if part.name == "rollout":
        script = [sys.executable, str(BENCHMARKS / "rollout_throughput.py"), "--gpu", "--output", str(answer)]
        return [*script, *(["--smoke"] if rehearses else ["--rounds", "2"])]
    if part.name == "sharing":
        script = [sys.executable, str(BENCHMARKS / "shared_prefixes.py"), "--gpu", "--output", str(answer)]
        return [*script, *(["--smoke"] if rehearses else ["--model", str(model)])]
    if part.name == "smollm2":
        asked = {"model": str(model), "folder": str(folder / "smollm2"), "rehearses": rehearses}
        return [sys.executable, "-m", "campaign.smollm2", json.dumps(asked), str(answer)]
    step = {**_STEPS[part.name], **(REHEARSAL if rehearses else {})}
    return [sys.executable, "-m", "campaign.steps", json.dumps(step), str(answer)]


def answer_of(part: Part, path: Path) -> Any:
    """What a part wrote; ``None`` if it wrote nothing that can be read."""
    try:
        text = path.read_text(encoding="utf-8")
        return tests_of(text) if part.name == "checks" else json.loads(text)
    except (OSError, ValueError, ElementTree.ParseError):
        return None


def tests_of(junit: str) -> dict[str, Any]:
    """The tests of a report in JUnit's format: what came out of each, and what it recorded.

    Example:
        >>> tests_of('<testsuites><testsuite><testcase name="a" time="1.5"><skipped message="no vLLM"/></testcase>'
        ...          '</testsuite></testsuites>')["tests"]
        [{'name': 'a', 'outcome': 'skipped', 'seconds': 1.5, 'message': 'no vLLM', 'recorded': {}}]
    """
    rows = []
    for case in ElementTree.fromstring(junit).iter("testcase"):
        bad = next((each for each in case if each.tag in ("failure", "error", "skipped")), None)
        rows.append(
            {
                "name": case.get("name"),
                "outcome": "passed" if bad is None else {"failure": "failed"}.get(bad.tag, bad.tag),
                "seconds": float(case.get("time", "0")),
                "message": None if bad is None else (bad.get("message") or "")[:600],
                "recorded": {each.get("name"): each.get("value") for each in case.iter("property")},
            }
        )
    counts = {outcome: sum(row["outcome"] == outcome for row in rows) for outcome in ("passed", "failed", "skipped")}
    return {**counts, "errors": sum(row["outcome"] == "error" for row in rows), "tests": rows}
