"""Which findings of the papers agree with the results here? Claims and verdicts, with intervals.

Run it: ``python benchmarks/claims.py``, after a question has new results; it takes seconds and trains nothing. It reads
``results/*.json``, writes ``results/claims.json`` and draws the papers' values beside those measured here.
"""

import argparse
import json
import math
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from everything import PAPERS
from findings import astar_po, credit, ragen, ragen2, ragen_play, signs
from findings.claims import GAMES, Pair
from findings.matched import WARM_START, aggregate, groups, matched
from findings.pictures import draw_comparison, draw_gradients, draw_profiles
from findings.published import COMPARISONS
from findings.sign_pictures import draw_signs, draw_turns
from findings.verdicts import Results, examined
from learning.spec import Question
from learning.tasks import game_of
from records.committed import every_log
from records.results import write_result

HERE = Path(__file__).parent
CLAIMS = (*ragen.CLAIMS, *ragen_play.CLAIMS, *ragen2.CLAIMS, *credit.CLAIMS, *astar_po.CLAIMS)
# Questions about the difference between tasks, such as with thoughts and without.
_ACROSS = {pair.question for claim in CLAIMS for pair in claim.pairs if pair.other_task != "{}"}
# By the question: games; of its variants, those that were trained in all of them are aggregated.
AGGREGATED = {"learning_curves": ("bandit", "frozenlake", "sokoban"), "starpo_s": GAMES}


def main() -> None:
    """Judge every claim by the results that are there."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    results = read_results(HERE / "results")
    target = HERE / "results" / "claims.json"
    content = judged(results)
    write_result(target, "python benchmarks/claims.py", **content)
    for path in draw(results, content, target.parent):
        print(f"written: {path}")


def read_results(folder: Path) -> dict[str, Any]:
    """The results of all training questions, by name; runs with what is kept of their logs."""
    contents = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    found = {name: content for name, content in contents.items() if is_question(content)}
    logs = every_log(folder)
    for content in found.values():
        add_logs(content, logs)
    return found


def add_logs(content: Mapping[str, Any], logs: Mapping[str, Any]) -> None:
    """Put the series of a run's log into the run; logs are kept by the digest of its settings."""
    variants = [variant for task in content["tasks"].values() for variant in task["variants"].values()]
    for run in (run for variant in variants for run in variant["runs"]):
        run.update(logs.get(run.get("digest"), {}))


def is_question(content: Mapping[str, Any]) -> bool:
    """Whether it is the result of a training question, with runs by task and variant."""
    return "question" in content and isinstance(content.get("tasks"), dict)


def judged(results: Results) -> dict[str, Any]:
    """All that the page shows."""
    return {
        "claims": [examined(claim, results, planned) for claim in CLAIMS],
        "asked": [asked(name, results[name]) for name in PAPERS if name in results],
        "matched": [row for name, content in results.items() for row in at_equal_cost(name, content)],
        "signs": sign_counts(results),
        "aggregates": [
            {"question": name, "games": games, "variants": aggregate(results[name], games)}
            for name, games in AGGREGATED.items()
        ],
    }


def asked(name: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """In which games and forms a question has runs, and with how many seeds a variant: the fewest and the most."""
    games: dict[str, dict[str, tuple[float, int]]] = {}
    for task in content["tasks"].values():
        game = games.setdefault(game_of(task["prepared"]["settings"]), {})
        for variant in task["variants"].values():
            form = "PPO" if "gae" in variant["options"].get("advantage", "") else "GRPO"
            seeds, (fewest, most) = len(variant["runs"]), game.get(form, (math.inf, 0))
            game[form] = (min(fewest, seeds), max(most, seeds))
    return {"question": name, "games": games}


def planned(pair: Pair, game: str) -> int:
    """How many seeds the place of a claim is to have; 0 of a game that the question does not have yet."""
    question: Question = import_module(pair.question).QUESTION
    sides = [(game, pair.ours), (pair.other_task.format(game), pair.theirs)]
    known = [(task, variant) for task, variant in sides if task in question.tasks and variant in question.variants]
    return min((len(question.tasks[task].seeds_of(variant)) for task, variant in known), default=0)


def draw(results: Results, content: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw what the pages show; returns the files."""
    written = [folder / "claims_profiles.png"]
    draw_profiles(content["aggregates"], written[0])
    for game in content["signs"]["games"]:
        task = results["collapse"]["tasks"][game]
        variants = {variant["label"]: variant["runs"] for variant in task["variants"].values()}
        written.append(folder / f"claims_signs_{game}.png")
        draw_signs(f"{task['prepared']['settings']['env']} ({game})", variants, written[-1])
    for comparison in COMPARISONS:
        path = folder / comparison.picture
        written += [path] * draw_comparison(comparison, results, path)
    measured = {game: task["variants"].get("measured") for game, task in results["variance_filter"]["tasks"].items()}
    written.append(folder / "variance_filter_gradients.png")
    draw_gradients({game: variant["runs"] for game, variant in measured.items() if variant}, written[-1])
    written.append(folder / "claims_signs_published.png")
    draw_turns(results, written[-1])
    return written


def sign_counts(results: Results) -> dict[str, Any]:
    """The counts of signs and drops over all runs, and a row for each run that dropped."""
    rows = signs.judged(signs.every_run(results))
    fallen = [row for row in rows if row["drop"] is not None]
    games = list(results["collapse"]["tasks"])
    by_game = {game: signs.counts(chosen, signs.SHARES[:1]) for game, chosen in signs.by_game(rows).items()}
    return {"games": games, "runs": len(rows), "counts": signs.counts(rows), "by_game": by_game, "dropped": fallen}


def at_equal_cost(name: str, content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A question's rankings, one a group of variants."""
    episodes = {task: each["prepared"]["settings"]["episodes"] for task, each in content["tasks"].items()}
    fewest = min(episodes.values(), default=0)
    found = []
    for group, variants in groups(content, name in _ACROSS).items():
        task, _, _ = group.partition(WARM_START)
        found.append({"question": name, "group": group, **matched(variants, episodes.get(task, fewest))})
    return found


if __name__ == "__main__":
    main()
