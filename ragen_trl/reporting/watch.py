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
from typing import Any
from urllib.parse import urlsplit

from ragen_trl.errors import OptionError, UserError
from ragen_trl.reporting.report import report

_FILES = ("*.json", "episodes/*.gz", "trajectories/*.gz", "checkpoint-*/trainer_state.json")

_DRAWING = Lock()  # matplotlib's settings are those of the process


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
        return ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, folders))
    except (OSError, OverflowError) as error:
        raise OptionError(f"port is {port}, which cannot be used ({error}); choose another --port") from None


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, folders: Sequence[Path], *args: Any) -> None:
        self._folders = folders
        super().__init__(*args)

    def do_GET(self) -> None:
        # Another site's page could reach this one under a name of its own that leads here.
        if urlsplit(f"//{self.headers.get('Host', '')}").hostname not in ("127.0.0.1", "localhost"):
            self._answer(403, "text/plain", "Ask 127.0.0.1 or localhost.")
        elif self.path == "/version":
            self._answer(200, "text/plain", version_of(self._folders))
        elif self.path != "/":
            self._answer(404, "text/plain", "There is only one page here.")
        else:
            version = version_of(self._folders)  # before the files are read: a page may be older than it is, not newer
            try:
                with _DRAWING:
                    page = report(self._folders, version)
                self._answer(200, "text/html", page)
            except UserError as error:  # nothing is there yet, or a file is damaged
                self._answer(503, "text/plain", str(error))

    def _answer(self, status: int, kind: str, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(text.encode())))
        self.send_header("Cache-Control", "no-store")
        if status == 503:
            self.send_header("Refresh", "3")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: object) -> None:
        """Say nothing: a page asks every two seconds."""
