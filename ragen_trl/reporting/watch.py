"""``report RUN --watch``: the report on an address of this machine alone, made anew when a file of the run has changed.

An open page asks for ``/version`` and loads itself again (``static/page.js``).
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

from ragen_trl.errors import OptionError, UserError
from ragen_trl.reporting.report import report

_FILES = ("*.json", "episodes/*.gz", "trajectories/*.gz", "checkpoint-*/trainer_state.json")


def version_of(folders: Sequence[Path]) -> str:
    """A text that changes with the files that a report is made of."""
    facts = []
    for path in sorted(path for folder in folders for pattern in _FILES for path in folder.glob(pattern)):
        with suppress(OSError):  # it is being replaced
            facts.append((str(path), path.stat().st_mtime_ns, path.stat().st_size))
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def server(folders: Sequence[Path], port: int) -> ThreadingHTTPServer:
    """A server of the report on 127.0.0.1, for its ``serve_forever``; `OptionError` if the port cannot be had."""
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, _Pages(folders)))
    except (OSError, OverflowError) as error:
        raise OptionError(f"port is {port}, which cannot be used ({error}); choose another --port") from None


class _Pages:
    """The newest page, made when it is asked for."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders
        self._lock, self._version, self._page = Lock(), "", ""

    def newest(self) -> str:
        with self._lock:
            if (version := version_of(self.folders)) != self._version:
                self._page, self._version = report(self.folders, version), version
            return self._page


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, pages: _Pages, *args: object) -> None:
        self._pages = pages
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        # Another site's page could reach this one under a name of its own that leads here.
        if self.headers.get("Host", "").rpartition(":")[0] not in ("127.0.0.1", "localhost"):
            self._answer(403, "text/plain", "Ask 127.0.0.1 or localhost.")
        elif self.path == "/version":
            self._answer(200, "text/plain", version_of(self._pages.folders))
        elif self.path != "/":
            self._answer(404, "text/plain", "There is only one page here.")
        else:
            try:
                self._answer(200, "text/html", self._pages.newest())
            except UserError as error:  # nothing is there yet, or a file is damaged
                self._answer(503, "text/plain", f"{error}\n")

    def _answer(self, status: int, kind: str, text: str) -> None:
        content = text.encode("utf-8")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        if status == 503:
            self.send_header("Refresh", "3")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Say nothing: a page asks every two seconds."""
