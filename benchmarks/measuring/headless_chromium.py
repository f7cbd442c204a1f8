"""A headless Chromium that a script drives over two pipes, by Chromium's own DevTools protocol.

What measuring and testing one page takes, with nothing to install but the browser: open a page, ask JavaScript, set
the size, save a picture. Left out: everything else that a driver like Playwright does.
"""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)


def find_chromium() -> str | None:
    """The browser on the path, if there is one."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


class Chromium:
    """One tab; use it in a ``with`` statement.

    Args:
        executable: As `find_chromium` gives it.
    """

    def __init__(self, executable: str) -> None:
        self._executable = executable
        self._count = 0
        self._session = ""

    def __enter__(self) -> Self:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        command = [self._executable, *_FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        theirs, ours = os.pipe(), os.pipe()  # read and write ends
        # Above 9, so that neither is 3 or 4, where the browser looks for its pipes.
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs[0], ours[1])]

        def place() -> None:
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            command, close_fds=False, preexec_fn=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for end in (*high, theirs[0], ours[1]):
            os.close(end)
        self._to, self._from = os.fdopen(theirs[1], "wb"), os.fdopen(ours[0], "rb")
        self._events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")
        self.ask("Page.setLifecycleEventsEnabled", enabled=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._to.close()
        self._from.close()
        self._profile.cleanup()

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events that come first are kept.

        Raises:
            RuntimeError: If the browser refuses.
        """
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        self._to.flush()
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])
            self._events.append(answer)

    def open(self, page: Path, fragment: str = "") -> None:
        """Load a file and wait for its load event."""
        self.ask("Page.navigate", url="about:blank")  # or another fragment of the same page would load nothing
        self._events.clear()
        address = f"{page.resolve().as_uri()}{'#' if fragment else ''}{fragment}"
        loader = self.ask("Page.navigate", url=address)["loaderId"]
        while not any(
            event.get("method") == "Page.lifecycleEvent"
            and (event["params"]["loaderId"], event["params"]["name"]) == (loader, "load")
            for event in self._events
        ):
            self._events.append(self._next())

    def run(self, code: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for.

        Raises:
            RuntimeError: If it throws.
        """
        answer = self.ask("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"].get("exception", {}).get("description", answer)))
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """What the console and the security policy said, and every address that was asked for, since `open`."""
        self.run("0")  # all earlier events are reported before the answer to this
        said = []
        for event in self._events:
            parameters = event.get("params", {})
            if event.get("method") == "Network.requestWillBeSent" and parameters["documentURL"] != "about:blank":
                said.append(parameters["request"]["url"])
            elif event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
                said.append(json.dumps(parameters))
        return said

    def size(self, width: int, height: int) -> None:
        """Set the window's inner size in CSS pixels; below 600 it is a phone's."""
        phone = width < 600
        scale = 2 if phone else 1
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )

    def picture(self, file: Path, whole: bool = False) -> None:
        """Save what is in the window, or the whole page, as PNG."""
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(shot["data"]))

    def press(self, key: str, shift: bool = False) -> None:
        """Press and release a key by its name, such as "ArrowDown"."""
        codes = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        for kind in ("rawKeyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=codes.get(key, 0),
                modifiers=8 if shift else 0,
            )

    def _next(self) -> dict[str, Any]:
        buffer = bytearray()
        while not buffer.endswith(b"\0"):
            byte = self._from.read1(1) if not buffer else self._rest()
            if not byte:
                raise RuntimeError("the browser has ended")
            buffer += byte
        return dict(json.loads(buffer[:-1]))

    def _rest(self) -> bytes:
        """Up to the next NUL and not further: the pipe's reader keeps what follows."""
        ahead = self._from.peek()
        end = ahead.find(b"\0")
        return self._from.read1(end + 1 if end >= 0 else max(1, len(ahead)))
