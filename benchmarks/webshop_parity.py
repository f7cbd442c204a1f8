"""Does the store do what the original did? Replays everything recorded of it and counts what is the same.

    python benchmarks/webshop_parity.py --data FOLDER   # or RAGEN_WEBSHOP_DATA

Compared are the tokens of every document, every ranking with its printed scores, every recorded purchase, every page of
every episode, and how many goals there are and can be won. The folder has ``webshop1k_products.jsonl``,
``items_ins_v2_1000.json`` and what was recorded (``lucene_*``, ``reward_parts_*``, ``text_env_traj_*``). Without it the
script says so and exits 0; it exits 1 if anything differs. Nothing of the data but counts is written.
"""

import argparse
import json
import math
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from record import HERE, place, table, write

from webshop_server.catalog import Catalog, open_catalog
from webshop_server.goals.goals import Goal, make_goals
from webshop_server.goals.nouns import noun_tagger
from webshop_server.goals.reward import RewardMode, score
from webshop_server.search.index import SearchIndex, document_text
from webshop_server.store.page_text import PageText, observation, url
from webshop_server.store.state import START, Store
from webshop_server.store.winnable import own_options
from webshop_server.text.analyzer import tokens

PRODUCTS = "webshop1k_products.jsonl"
START_URL = "http://127.0.0.1:3000/{session}"
GOALS, HUMAN_GOALS, WINNABLE = 6910, 13, 6452  # of the original, on this set
Counts = dict[str, list[int]]
"""By name of the check: how many are the same, of how many."""


def main() -> int:
    """Replay all; exit status 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the public 1000-product set")
    parser.add_argument("--smoke", action="store_true", help="write to runs/ only")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    beside = HERE.parents[1] / "shared" / "data" / "webshop1k"
    folder = asked.data or Path(os.environ.get("RAGEN_WEBSHOP_DATA", beside))
    if not (folder / PRODUCTS).exists():
        print(f"nothing was compared: there is no {PRODUCTS} in {folder}; name its folder with --data")
        return 0
    counts = compare_all(folder)
    for name, (same, of) in counts.items():
        print(f"{name:60} {same:>6} of {of}{'' if same == of else '   DIFFERENT'}")
    rows = [[name, f"{same:,}", f"{of:,}"] for name, (same, of) in counts.items()]
    shown = table(["compared with the original", "the same", "of"], rows, "Everything is compared exactly.")
    command = "python benchmarks/webshop_parity.py --data FOLDER"
    write(place("webshop_parity", asked.smoke, asked.out), command, same_of=counts, table=shown)
    return int(any(same != of for same, of in counts.values()))


def compare_all(folder: Path) -> Counts:
    """Everything that was recorded."""
    with tempfile.TemporaryDirectory() as cache:
        catalog = open_catalog(folder / PRODUCTS, cache_dir=cache)
        index = SearchIndex.open(catalog)
        counts = compare_tokens(folder, catalog) | compare_rankings(folder, index)
        counts |= compare_purchases(folder, catalog) | compare_episodes(folder, Store(catalog, index))
        return counts | compare_goals(catalog)


class Tally:
    """Counts, by name, how often two things are equal."""

    def __init__(self, group: str) -> None:
        """Starts without counts; names are written after `group`."""
        self._group = group
        self._same: Counter[str] = Counter()
        self._of: Counter[str] = Counter()

    def add(self, name: str, ours: object, recorded: object) -> None:
        """Compares two things, which are of one type where they are equal."""
        self._of[name] += 1
        self._same[name] += type(ours) is type(recorded) and ours == recorded

    def counts(self) -> Counts:
        """What was counted."""
        return {f"{self._group}: {name}": [self._same[name], self._of[name]] for name in self._of}


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON Lines."""
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def compare_tokens(folder: Path, catalog: Catalog) -> Counts:
    """The words that each document is indexed by."""
    tally = Tally("search")
    # Not splitlines: some of the words have characters in them that end lines elsewhere.
    recorded = (folder / "lucene_tokens_1000docs.txt").read_text(encoding="utf-8").split("\n")[:-1]
    for product, words in zip(catalog.products(), recorded, strict=True):
        tally.add("documents with the same tokens", tokens(document_text(product)), words.split())
    return tally.counts()


def compare_rankings(folder: Path, index: SearchIndex) -> Counts:
    """Order of the products that each query finds, and their scores as they were printed."""
    tally = Tally("search")
    for line in (folder / "lucene_golden_top50_500q.tsv").read_text(encoding="utf-8").splitlines():
        query, hits = line.split("\t")
        recorded = [hit.split(":")[0] for hit in hits.split()]
        ours = index.search(query.split(" "))
        tally.add("queries with the same first product", ours[:1], recorded[:1])
        tally.add("queries with the same 10 in order", ours[:10], recorded[:10])
        tally.add("queries with the same 50 in order", ours, recorded)
        scored = index.scores(query)
        printed = zip(scored, as_printed([score for _, score in scored]), strict=True)
        tally.add("queries with the same 50 scores", [f"{asin}:{text}" for (asin, _), text in printed], hits.split())
    return tally.counts()


def as_printed(scores: Sequence[float]) -> list[str]:
    """Scores as pyserini gives them: four decimals, and a millionth less for each that is as good as the one before."""
    printed: list[np.float32] = []
    equal = 0
    for value in scores:
        rounded = np.float32(math.floor(value * 10_000 + 0.5) / 10_000)
        equal = equal + 1 if printed and printed[-1] - rounded <= np.float32(1e-4) else 0
        printed.append(rounded - np.float32(1e-6) * np.float32(equal) if equal else rounded)
    return [f"{value:.6f}" for value in printed]


class OneNoun:
    """Finds the same noun in all titles: the recorded parts are those that depend on no tagger, with r_type = 1."""

    name = "one"

    def nouns(self, title: str, known: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """See `NounTagger`."""
        return ("thing",)


def compare_purchases(folder: Path, catalog: Catalog) -> Counts:
    """Every part of the original's formula for every recorded purchase."""
    tally = Tally("reward")
    for record in records(folder / "reward_parts_golden_2000.jsonl"):
        goal = recorded_goal(catalog, record["goal"])
        bought = catalog.product(record["asin"])
        parts = score(bought, record["options"], goal, OneNoun(), "webshop", record["price"])
        ours = {
            "query_match": parts.query_match,
            "category_match": parts.category_match,
            "num_attr": sum(parts.attributes_met),
            "num_opt": sum(parts.options_met),
            "r_option": parts.as_info().get("r_option"),
            "r_price": parts.r_price,
            "reward_if_r_type_1": parts.total,
        }
        for name, value in ours.items():
            tally.add(f"purchases with the same {name}", value, record[name])
        tally.add("purchases with all parts the same", ours, {name: record[name] for name in ours})
    return tally.counts()


def recorded_goal(catalog: Catalog, record: dict[str, Any]) -> Goal:
    """A goal as the original had it; each process of the original drew a new price bound."""
    own = catalog.product(record["asin"])
    options = record["goal_options"]
    return Goal(
        id=0,
        asin=own.asin,
        category=own.category,
        query=own.query,
        name=own.title,
        product_category=own.product_category,
        instruction=record.get("instruction_text", ""),
        attributes=tuple(record["attributes"]),
        price_upper=record["price_upper"],
        options=tuple(options) if isinstance(options, list) else options,
        weight=1.0,
    )


def compare_episodes(folder: Path, store: Store) -> Counts:
    """Every page of every episode, invalid actions included."""
    tally = Tally("pages")
    for number, episode in enumerate(records(folder / "text_env_traj_golden_30.jsonl")):
        session, state, whole = str(2 * number), START, True  # recorded is every other goal, named by its number
        for step in episode["steps"]:
            if step["action"] is not None:
                state, _ = store.act(state, step["action"], parity=True)
            # The page after a purchase shows the score, and the recorded one has the nouns of another tagger in it.
            paid = step["reward"] if step.get("done") else None
            page = PageText(episode["goal"]["instruction_text"], session, paid, parity=True)
            offered = {
                "has_search_bar": state.kind == "start",
                "clickables": store.clickables(state, parity=True),
            }
            address = step.get("url", START_URL.format(session=session))
            pairs = {
                "observation": (observation(store, state, page, episode["mode"]), step["obs"]),
                "clickables": (offered, step["avail"]),
                "URL": (url(state, session), address),
                "end of the episode": (state.kind == "done", step.get("done", False)),
            }
            for name, (ours, recorded) in pairs.items():
                tally.add(f"steps with the same {name}", ours, recorded)
            whole = whole and all(ours == recorded for ours, recorded in pairs.values())
            # The recorded score of another product depends on the tagger.
            if step.get("done") and state.asin == episode["goal"]["asin"]:
                bought, chosen = store.catalog.product(state.asin), dict(state.options)
                goal = recorded_goal(store.catalog, episode["goal"])
                paid_by_us = score(bought, chosen, goal, noun_tagger("every_word"), "webshop").total
                tally.add("purchases of the goal's product with the same reward", paid_by_us, step["reward"])
        tally.add("episodes with all the same", whole, True)
    return tally.counts()


def compare_goals(catalog: Catalog) -> Counts:
    """How many goals there are, and how many are won by buying their own product with its own options."""
    counts = {
        "goals: generated ones": [len(make_goals(catalog, human=False)), GOALS],
        "goals: those that people wrote": [len(make_goals(catalog, human=True)), HUMAN_GOALS],
    }
    modes: tuple[tuple[RewardMode, int], ...] = (("webshop", WINNABLE), ("fixed", GOALS))
    for mode, winnable in modes:
        for nouns in (noun_tagger("every_word"), noun_tagger("rules")):
            goals = make_goals(catalog, human=False)
            owned = ((catalog.product(goal.asin), goal) for goal in goals)
            won = sum(score(own, own_options(own, goal), goal, nouns, mode).success for own, goal in owned)
            counts[f"goals: winnable in {mode}, nouns by {nouns.name}"] = [won, winnable]
    return counts


if __name__ == "__main__":
    sys.exit(main())
