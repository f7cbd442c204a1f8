"""A whole purchase through the pages in Chromium, with scripts and without.

The browser is driven over its DevTools protocol through a pipe, so that neither Selenium nor a driver is needed. Clicks
and keys are real input events. Skips where there is no Chromium.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import waitress
from bs4 import BeautifulSoup

from tests.support.webshop_server.goals import values_of
from webshop_server import create_app
from webshop_server.goals.goals import Goal
from webshop_server.server.app import open_shop
from webshop_server.store.shop import Shop

SECONDS = 30.0
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}


class Browser:
    """One page of a headless Chromium."""

    def __init__(self, program: str, profile: Path) -> None:
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        arguments = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run")
        # Chromium reads commands from file descriptor 3 and answers on 4; the copies are made out of the way of both.
        script = (
            "import fcntl, os, sys; "
            "commands, answers = (fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]); "
            "os.dup2(commands, 3); os.dup2(answers, 4); os.execv(sys.argv[3], sys.argv[3:])"
        )
        ends = (str(commands), str(answers))
        self._process = subprocess.Popen(
            [sys.executable, "-c", script, *ends, program, *arguments, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._number, self._session, self._left = 0, "", b""
        self.events: list[dict[str, Any]] = []
        page = next(one for one in self.send("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "DOM", "Network", "Log"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            read = os.read(self._read, 1 << 16)
            assert read, "the browser has gone"
            self._left += read
        message, _, self._left = self._left.partition(b"\0")
        parsed: dict[str, Any] = json.loads(message)
        return parsed

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._write, json.dumps(command).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self._number:
                assert "error" not in message, (method, message)
                result: dict[str, Any] = message["result"]
                return result
            self.events.append(message)

    def _loads(self, method: str, **parameters: Any) -> None:
        """Does what leads to another page and waits until that is loaded."""
        self.events = [event for event in self.events if event.get("method") != "Page.loadEventFired"]
        self.send(method, **parameters)
        deadline = time.monotonic() + SECONDS
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            assert time.monotonic() < deadline, method
            self.events.append(self._message())

    def open(self, url: str) -> None:
        self._loads("Page.navigate", url=url)

    def _node(self, selector: str) -> int:
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = int(self.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"])
        assert node, f"there is no {selector}"
        return node

    def click(self, selector: str, loads: bool = True) -> None:
        node = self._node(selector)
        self.send("DOM.scrollIntoViewIfNeeded", nodeId=node)
        quad = self.send("DOM.getContentQuads", nodeId=node)["quads"][0]
        at = {"x": sum(quad[::2]) / 4, "y": sum(quad[1::2]) / 4, "button": "left", "clickCount": 1}
        self.send("Input.dispatchMouseEvent", type="mousePressed", **at)
        release = self._loads if loads else self.send
        release("Input.dispatchMouseEvent", type="mouseReleased", **at)

    def write(self, selector: str, text: str) -> None:
        self.send("DOM.focus", nodeId=self._node(selector))
        self.send("Input.insertText", text=text)

    def page(self) -> BeautifulSoup:
        html = self.send("DOM.getOuterHTML", nodeId=self._node("html"))["outerHTML"]
        return BeautifulSoup(html, "html.parser")


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no chromium; install the package of that name to test the pages in a browser")
    started = Browser(program, tmp_path / "profile")
    yield started
    started.close()


@pytest.fixture(scope="module")
def shop() -> Shop:
    return open_shop("synthetic:300")


@pytest.fixture(scope="module")
def address(shop: Shop) -> Iterator[str]:
    app = create_app(shop.catalog, reward_mode="fixed")
    server = waitress.create_server(app, host="127.0.0.1", port=0, threads=4)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.effective_port}"
    server.close()


@pytest.fixture
def goal(shop: Shop) -> Goal:
    """A task with at least two options to choose."""
    return next(goal for goal in shop.goals if len(values_of(goal)) > 1)


def option_selector(page: BeautifulSoup, value: str) -> str:
    radio = page.find("input", attrs={"type": "radio", "value": value})
    assert radio is not None
    return f'label[for="{radio["id"]}"]'


@pytest.mark.parametrize("scripts", [False, True])
def test_a_whole_purchase(browser: Browser, address: str, goal: Goal, scripts: bool) -> None:
    browser.send("Emulation.setScriptExecutionDisabled", value=not scripts)
    browser.send("Emulation.setDeviceMetricsOverride", **PHONE)
    browser.open(f"{address}/{'with' if scripts else 'without'}_fixed_{goal.id}")
    browser.write("#search_input", goal.name)
    browser.click("#form-buscar button")
    browser.click(f'a.product-link[href*="{goal.asin}"]')
    for value in values_of(goal):
        # With a script a choice loads its page; without, it waits for the next button.
        browser.click(option_selector(browser.page(), value), loads=scripts)
    browser.click(".more form:nth-child(2) button")
    assert browser.page().find(class_="product-info") is not None
    browser.click(".bar form:nth-child(2) button")
    assert {radio["value"] for radio in browser.page().select("input[checked]")} == set(values_of(goal))
    browser.click("button.purchase")
    score = browser.page().select_one("#reward pre")
    assert score is not None and float(score.get_text()) == 1.0
    sent = [event["params"] for event in browser.events if event["method"] == "Network.requestWillBeSent"]
    requested = [parameters["request"]["url"] for parameters in sent]
    assert any(url.endswith("store.css") for url in requested)
    assert [url for url in requested if not url.startswith((address, "data:", "about:"))] == []
    refused = [event["params"]["entry"]["text"] for event in browser.events if event["method"] == "Log.entryAdded"]
    assert refused == []


def test_without_scripts_there_is_a_button_that_chooses(browser: Browser, address: str, goal: Goal) -> None:
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    name = f"choose_fixed_{goal.id}"
    browser.open(f"{address}/{name}")
    browser.open(f"{address}/item_page/{name}/{goal.asin}/x/1/{{}}")
    for value in values_of(goal):
        browser.click(option_selector(browser.page(), value), loads=False)
    browser.click("input.choose")
    assert {radio["value"] for radio in browser.page().select("input[checked]")} == set(values_of(goal))


def test_no_page_is_wider_than_the_screen(browser: Browser, address: str, goal: Goal) -> None:
    for width in (320, 390, 1280):
        browser.send("Emulation.setDeviceMetricsOverride", **{**PHONE, "width": width})
        name = f"width{width}_fixed_{goal.id}"
        paths = (
            f"/{name}",
            f"/search_results/{name}/{goal.name}/1?price_max=500",
            f"/item_page/{name}/{goal.asin}/x/1/{{}}",
            f"/item_sub_page/{name}/{goal.asin}/x/1/Features/{{}}",
            f"/done/{name}/{goal.asin}/{{}}",
            f"/done/{name}/{goal.asin}/{{}}",
        )
        for path in paths:
            browser.open(address + path)
            size = browser.send("Page.getLayoutMetrics")["cssContentSize"]
            assert size["width"] <= width, path
