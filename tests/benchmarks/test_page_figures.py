"""Figures in the prose of pages that no table of theirs holds: times of runs, and rates of a result's other page."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import pytest
import tables
from agents.runs import game_runs
from agents.shops import ON_A_GPU, SHOPS
from claims import read_results
from findings.claims import Pair
from findings.measures import CPU, SUCCESS, Measure
from findings.verdicts import difference

from tests.support.project import ROOT

RATE = re.compile(r"[+-]?\d\.\d\d \[[+-]?\d\.\d\d, [+-]?\d\.\d\d\]")


def prose(page: str) -> str:
    """A page as one line, without what is generated in it."""
    return " ".join(tables.MARKED.sub("", (ROOT / page).read_text(encoding="utf-8")).split())


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    """The runs of SmolLM2 by name."""
    content = json.loads((ROOT / "benchmarks" / "results" / "pretrained.json").read_text(encoding="utf-8"))
    return {name: run for name, run in content["runs"].items()}


def test_the_minutes_of_smollm2_are_those_of_its_runs(trained: dict[str, Any]) -> None:
    """Regression: the warm start of 28 minutes was said to take a quarter of an hour."""

    def minutes(run: str, step: str) -> int:
        return round(trained[f"frozenlake/{run}"]["seconds"][step] / 60)

    page = prose("docs/pretrained.md")
    warm = [minutes(name, "model") for name in ("warm_start", "warm_start (2)")]
    assert "**Demonstrations**: {} minutes, and {} when it was made again".format(*warm) in page
    half = [f"starpo_s_half_as_long-seed{seed}" for seed in (0, 1)]
    asked = [trained[f"frozenlake/{run}"]["settings"]["steps"][0]["options"] for run in half]
    assert [options["bf16"] for options in asked] == [True, True]
    times = [minutes(run, "train") for run in half]
    assert "**Reinforcement learning**: {} and {} minutes with `--bf16 true`".format(*times) in page
    played = [trained[f"frozenlake/{run}"]["seconds"]["sampled"] / 60 for run in half]
    assert "**Evaluation**: 3 to 4 minutes a model" in page and all(3 <= found < 4 for found in played)
    assert f"The run of the second took {minutes('starpo_s-seed0', 'train')} minutes" in page


def test_the_rates_of_smollm2_are_in_the_tables_of_its_experiment() -> None:
    page = (ROOT / "docs" / "experiments" / "pretrained.md").read_text(encoding="utf-8")
    shown = {rate for mark in tables.MARKED.finditer(page) for rate in RATE.findall(mark[0])}
    shown |= {"0.167 [0.151, 0.183]"}  # of 2,048 rooms, in the README
    for told, most in (("docs/pretrained.md", 8), ("docs/experiments/pretrained.md", 40)):
        said = set(RATE.findall(prose(told)))
        assert len(said) >= most
        assert said - shown == set()


def test_echoes_of_smollm2_are_counted_among_the_runs_that_can_echo(trained: dict[str, Any]) -> None:
    """Regression: "five of 23 runs", of 25, six of them with A*-PO, which has no groups."""
    watched = [
        run["training"]["monitor"]["signs"]
        for name, run in trained.items()
        if "monitor" in run.get("training", {}) and "thoughts" not in run["game"] and "astar_po" not in name
    ]
    echoes = sum(any(sign["name"] == "echo" for sign in signs) for signs in watched)
    assert echoes == 5 and f"warns in five of {len(watched)} runs" in prose("docs/experiments/pretrained.md")


def test_the_share_of_memory_that_lora_takes_is_that_of_the_rows() -> None:
    """Regression: 0.7 was said of 2.75 in 3.62 GiB."""
    content = json.loads((ROOT / "benchmarks" / "results" / "model_sizes.json").read_text(encoding="utf-8"))
    full, lora = (row["gib"]["peak"] for row in content["rows"] if row["model"] == "SmolLM2-135M-Instruct")
    assert f"LoRA takes {lora / full:.2f} of the memory at 135 million" in prose("docs/experiments/model_sizes.md")


def test_the_rates_of_shopping_are_in_the_tables_of_its_experiment() -> None:
    """But for those of a paragraph that names the commit of other results."""
    pages = [f"docs/experiments/{name}.md" for name in ("webshop_training", "webshop_gpu", "webshop_baselines")]
    marks = [mark[0] for page in pages for mark in tables.MARKED.finditer((ROOT / page).read_text(encoding="utf-8"))]
    shown = {rate for mark in marks for rate in RATE.findall(mark)}
    for told, most in (("docs/webshop_agent.md", 5), *((page, 10) for page in pages[:2])):
        text = tables.MARKED.sub("", (ROOT / told).read_text(encoding="utf-8"))
        text = text.partition("The embedded model, which")[0]  # what follows names the commit of its results
        parts = [" ".join(part.split()) for part in re.split(r"\n(?=- )|\n\n", text)]
        said = {rate for part in parts if "commit `" not in part for rate in RATE.findall(part)}
        assert len(said) >= most
        assert said - shown == set()


def test_the_commands_of_the_shop_are_those_of_its_runs() -> None:
    """Regression: the page's A*-PO trained on twice as many trajectories as the experiment's."""
    runs = {run.name: run.steps[0].options for run in game_runs("models/SmolLM2-135M-Instruct", SHOPS)}
    page = prose("docs/webshop_agent.md")
    blocks = re.findall(r"```bash python -m ragen_trl (?:warm-start|train) (.*?) ```", page)
    (astar,) = re.findall(r"`(--algo a-star-po .*?)`", page)
    commands = {"warm_start": blocks[0], "starpo_s_higher_rate-seed0": blocks[1], "astar_po_higher_rate-seed0": astar}
    on_a_gpu = ["webshop/warm_start", "webshop/starpo_s-seed0", "webshop_512/warm_start", "webshop_512/astar_po-seed0"]
    for name, words in commands.items():
        assert_the_same(words, {"filter_ratio": 1, **runs[f"webshop/{name}"]})  # all groups, unless it says otherwise
    there = {run.name: run.steps[0].options for run in game_runs("models/SmolLM2-135M-Instruct", ON_A_GPU)}
    begins = {}
    for name, words in zip(on_a_gpu, blocks[2:], strict=False):
        given = assert_the_same(words, {"demo_held_out": 0, **there[name]})
        begins[name] = (given["model"], given["output_dir"])
    for warm, trained in (on_a_gpu[:2], on_a_gpu[2:]):
        assert begins[trained][0] == begins[warm][1]


def assert_the_same(words: str, expected: Mapping[str, Any]) -> dict[str, str]:
    """The options of a command in a page, each of which is that of its run."""
    given = dict(re.findall(r"--(\w+) ([\w./-]+)", words.replace("\\", "")))
    compared = {key: value for key, value in given.items() if key not in ("model", "output_dir", "env")}
    assert len(compared) >= 7
    for key, value in compared.items():
        wanted = True if key == "bf16" else expected[key]
        assert value == wanted or json.loads(value) == wanted, key
    return given


def test_the_minutes_of_the_shop_are_those_that_the_script_lists() -> None:
    """Regression: half an hour was said where the script listed 84 minutes."""
    expected = {run.name: round(run.minutes) for run in game_runs("models/SmolLM2-135M-Instruct", SHOPS)}
    page = prose("docs/webshop_agent.md")
    evaluations = 2 * expected["webshop/downloaded"]
    learning = expected["webshop/warm_start"] - evaluations
    assert f"Expected: {learning} minutes, and {evaluations} more" in page
    assert f"Expected: {expected['webshop/starpo_s_higher_rate-seed0']} minutes, one such" in page
    assert f"expected: {expected['webshop/downloaded']} minutes a model" in page


def test_the_differences_between_settings_of_astar_po_are_those_of_their_runs() -> None:
    """The page's tables have what each ends at, and its prose how that differs from the default and from StarPO."""
    results = read_results(ROOT / "benchmarks" / "results")

    def both(ours: str, theirs: str = "astar_po", measure: Measure = SUCCESS, sign: int = 1) -> list[str]:
        """On FrozenLake and in ToyShop."""
        found = [
            difference(Pair("", "astar_po_settings", ours, theirs, (game,)), game, measure, results)
            for game in ("frozenlake", "toyshop")
        ]
        assert all(found)
        ends = [sorted((sign * each.low, sign * each.mean, sign * each.high)) for each in found if each is not None]
        shown = [[math.exp(end) if measure.ratio else end for end in each] for each in ends]
        return [f"{mean:.2f} [{low:.2f}, {high:.2f}]" for low, mean, high in shown]

    page = prose("docs/experiments/astar_po_settings.md")
    said = [
        "β₁ = 5 is as good: +{} on FrozenLake, +{} in ToyShop".format(*both("beta1_high")),
        "**β₁ = 0.05 is worse**: {} and {}".format(*both("beta1_low")),
        f"Every 8 updates it costs {both('refresh', sign=-1)[0]} on FrozenLake; in ToyShop {both('refresh')[1]}",
        "When it is stale: {} and {}".format(*both("refresh_stale")),
        "end at {} on FrozenLake and at {} in ToyShop".format(*both("fixed_2")),
        "2 to 16 samples (1,620 and 540 trajectories) {} and {}".format(*both("adaptive_2")),
        "5 samples (640) {} and {}".format(*both("fixed_5")),
        "8 samples (1,024) {} and {}".format(*both("fixed_8")),
        "**Two trajectories a prompt do not help**: {}, and {} in ToyShop".format(*both("two")),
    ]
    times, gains = both("astar_po", "starpo", CPU), both("astar_po", "starpo")
    said.append(f"takes {times[0]} times the CPU time of StarPO on FrozenLake and ends {gains[0]} higher")
    said.append(f"in ToyShop {times[1]} times, and ends at {gains[1]}")
    assert [sentence for sentence in said if sentence not in page] == []
    assert len(RATE.findall(page)) == 22
