"""Which findings of the papers agree with the results here? Claims and verdicts, with intervals.

Run it: ``python benchmarks/claims.py``, after a question has new results; it takes seconds and trains nothing. It reads
``results/*.json``, writes ``results/claims.json`` and draws the papers' values beside those measured here.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from findings import astar_po, credit, ragen, ragen2
from findings.matched import aggregate, groups, matched
from findings.verdicts import Results, examined

from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.provenance import provenance

HERE = Path(__file__).parent
CLAIMS = (*ragen.CLAIMS, *ragen2.CLAIMS, *credit.CLAIMS, *astar_po.CLAIMS)
# Games that all algorithms were trained in.
AGGREGATED = ("bandit", "frozenlake", "sokoban")


def main() -> None:
    """Judge every claim by the results that are there."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    results = read_results(HERE / "results")
    target = HERE / "results" / "claims.json"
    content = {**provenance(), "command": "python benchmarks/claims.py", **judged(results)}
    write_atomically(target, json.dumps(content, indent=1))
    print(f"written: {target}")


def read_results(folder: Path) -> dict[str, Any]:
    """The results of all training questions, by name."""
    contents = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    return {name: content for name, content in contents.items() if is_question(content)}


def is_question(content: Mapping[str, Any]) -> bool:
    """Whether it is the result of a training question, with runs by task and variant."""
    return "question" in content and isinstance(content.get("tasks"), dict)


def judged(results: Results) -> dict[str, Any]:
    """All that the page shows."""
    return {
        "claims": [examined(claim, results) for claim in CLAIMS],
        "matched": [row for name, content in results.items() for row in at_equal_cost(name, content)],
        "aggregate": {"games": AGGREGATED, "variants": aggregate(results["learning_curves"], AGGREGATED)},
    }


def at_equal_cost(name: str, content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A question's rankings, one a group of variants."""
    settings = next(iter(content["tasks"].values()))["prepared"]["settings"]
    return [
        {"question": name, "group": group, **matched(variants, settings["episodes"])}
        for group, variants in groups(content).items()
    ]


if __name__ == "__main__":
    main()
