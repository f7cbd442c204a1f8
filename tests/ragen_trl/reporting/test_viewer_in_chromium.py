"""The page in a real browser: what the viewer shows, by mouse and keyboard, wide and narrow; skipped where is none."""

import importlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ragen_trl.reporting.report import write_report
from tests.support.ragen_trl.recorded_runs import HOSTILE, LAKE, ROOM, SHOP, content, recorded_run


@pytest.fixture(scope="module")
def browser(root: Path) -> Iterator[Any]:
    """One tab for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(root / "benchmarks"))
        chromium = importlib.import_module("measuring.headless_chromium")
    executable = chromium.find_chromium()
    if executable is None:
        pytest.skip("there is no Chromium on the path")
    with chromium.Chromium(executable) as tab:
        tab.size(1280, 900)
        yield tab


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: a lake at two steps; then a room, a shop, and hostile replies."""
    folder = tmp_path_factory.mktemp("runs")
    thought = "<think>go up</think><answer>Up</answer>"
    lakes = [content("FrozenLake-v0", LAKE, [thought] * 40, step) for step in (1, 11)]
    first = recorded_run(folder / "a", 1, *lakes)
    shop = content("WebShop-v0", SHOP, ["a", "b"], 2)
    room = content("Sokoban-v0", ROOM, ["a", "b"], 1, format_is_valid=False, cut=True)
    harm = content(HOSTILE[0], HOSTILE[0], list(HOSTILE), 3, actions=list(HOSTILE))
    return write_report([first, recorded_run(folder / "b", 2, room, shop, harm)], folder / "report.html")


def shown(browser: Any, report: Path, fragment: str = "") -> dict[str, str]:
    """Open the page and wait for the viewer; where it says that it is."""
    browser.open(report, fragment)
    return place(browser)


def place(browser: Any, not_yet: str = "") -> dict[str, str]:
    """Where the viewer is, once it is anywhere, or elsewhere than before."""
    for _ in range(600):
        found = browser.run("document.getElementById('viewer').dataset.ready") or not_yet
        if found != not_yet:
            return dict(pair.split("=") for pair in found.split("&"))
        time.sleep(0.05)
    raise AssertionError("the viewer shows nothing: " + json.dumps(browser.complaints()))


def text(browser: Any, selector: str) -> list[str]:
    found = f"[...document.querySelectorAll({json.dumps(selector)})]"
    return list(browser.run(f"{found}.map((element) => element.textContent)"))


def test_it_opens_at_the_last_step_with_what_the_group_has_to_teach(browser: Any, report: Path) -> None:
    assert shown(browser, report) == {"run": "0", "step": "1", "group": "0", "members": "1,0", "mode": "read"}
    assert text(browser, ".trajectory h4") == ["Member 1", "Member 2"]
    assert text(browser, ".trajectory:first-child .text")[1:] == ["go up", "<answer>Up</answer>"]
    assert browser.complaints()[1:] == []  # asked for nothing but the page itself, and nothing was refused


def test_a_group_shows_what_the_filter_ranks_it_by(browser: Any, report: Path) -> None:
    shown(browser, report)
    heads = ["group", "seed", "success", "trained on", "std", "return"]
    assert text(browser, ".tables > :first-child thead th") == heads
    first = text(browser, ".tables > :first-child tbody tr:first-child > *")
    assert first == ["1", "10", "1 of 2", "yes", "0.707", "0.5 (0 to 1)"]


def test_a_spread_that_is_rounding_is_none(browser: Any, tmp_path: Path) -> None:
    alike = content("FrozenLake-v0", LAKE, ["up"] * 8, 1)
    alike["group_size"] = 8
    for member, trajectory in enumerate(alike["trajectories"]):
        trajectory.update({"group": 0, "member": member, "return": -0.1})  # 1.5e-17 by the formula
    shown(browser, write_report([recorded_run(tmp_path / "run", 1, alike)], tmp_path / "report.html"))
    assert text(browser, ".tables > :first-child tbody td")[3:] == ["0", "−0.1 (−0.1 to −0.1)"]


def test_grids_are_squares_and_shops_break_at_their_separators(browser: Any, report: Path) -> None:
    shown(browser, report)
    squares = "[...document.querySelector('.grid').children].map((square) => square.className.replace('square ', ''))"
    assert browser.run(squares) == "you floor hole floor floor target floor floor floor".split()
    assert browser.run("document.querySelector('.grid').getAttribute('aria-label')") == "P_O / __G / ___"
    shown(browser, report, "run=1&step=0")  # other symbols, as the legend says
    assert browser.run(squares)[4:8] == ["wall", "you", "box", "target"]
    assert text(browser, ".trajectory:first-child .flag") == ["unreadable reply", "cut at the token limit"]
    shown(browser, report, "run=1&step=1")
    assert text(browser, ".trajectory:first-child .text")[0] == SHOP
    height = browser.run("document.querySelector('.text').getBoundingClientRect().height")
    assert height > 2.5 * browser.run("parseFloat(getComputedStyle(document.querySelector('.text')).lineHeight)")


def test_tokens_have_the_colour_of_their_advantage_and_say_it(browser: Any, report: Path) -> None:
    shown(browser, report, "mode=all&members=0")
    tokens = browser.run(
        "[...document.querySelectorAll('.trajectory .token')]"
        ".map((token) => [token.textContent, token.title, token.style.backgroundColor])"
    )
    assert [token[:2] for token in tokens][:3] == [
        ["ask", "environment, masked; token 0"],
        ["◌", "sampled, advantage −1; token 1"],
        ["né", "sampled, advantage 0; token 2"],
    ]
    assert [token[2] for token in tokens[:3]] == ["", "rgba(221, 107, 16, 0.8)", "transparent"]
    assert tokens[3][1:] == ["sampled, advantage +0.5; token 3", "rgba(33, 113, 190, 0.46)"]


def test_keys_and_buttons_move(browser: Any, report: Path) -> None:
    def state() -> str:
        return str(browser.run("document.getElementById('viewer').dataset.ready"))

    shown(browser, report, "members=0")
    browser.run("document.getElementById('viewer').focus()")
    for key, shift, name, value in (
        ("ArrowDown", False, "members", "1"),
        ("ArrowRight", False, "group", "1"),
        ("ArrowLeft", False, "group", "0"),
        ("ArrowLeft", True, "step", "0"),
    ):
        before = state()
        browser.press(key, shift)
        assert place(browser, before)[name] == value, key
    before = state()
    browser.run("document.getElementById('groups-on').click()")
    assert place(browser, before)["group"] == "8"
    assert len(text(browser, ".tables > :first-child tbody tr")) == 8
    before = state()
    browser.run("document.getElementById('member-0').click()")
    assert place(browser, before)["members"] == "1"  # it was open and closed


@pytest.mark.parametrize("mode", ["read", "tokens", "all"])
def test_hostile_replies_are_shown_and_do_nothing(browser: Any, report: Path, mode: str) -> None:
    for group in range(3):
        shown(browser, report, f"run=1&step=2&group={group}&members=0,1&mode={mode}")
        assert browser.run("document.querySelectorAll('#viewer img, #viewer script').length") == 0
        assert browser.run("document.title") != "owned"
        assert browser.complaints()[1:] == []
        assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")
    shown(browser, report, f"run=1&step=2&group=1&members=0&mode={mode}")
    written = "".join(text(browser, ".trajectory .text"))
    assert "␀ nul, ␛[31m, [U+202E]turned[U+202C], [U+2028], &lt;b&gt;" in written
    shown(browser, report, f"run=1&step=2&group=0&members=0&mode={mode}")
    assert HOSTILE[0] in "".join(text(browser, ".trajectory .text"))


def test_nothing_is_wider_than_a_phone(browser: Any, report: Path) -> None:
    try:
        browser.size(390, 844)
        for fragment in ("", "mode=all", "run=1&step=0", "run=1&step=1", "run=1&step=2&group=0&members=0,1"):
            shown(browser, report, fragment)
            assert browser.run("document.documentElement.scrollWidth") == 390, fragment
    finally:
        browser.size(1280, 900)
