"""``report RUN --watch``: the report on an address of this machine alone, made anew when a file of the run has changed.

An open page asks for ``/version`` and loads itself again (``static/page.js``).
"""

import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import waitress  # type: ignore[import-untyped]
from flask import Flask, Response, abort, request

from ragen_trl.errors import OptionError, UserError
from ragen_trl.reporting.report import report

_FILES = ("*.json", "episodes/*.gz", "trajectories/*.gz")


def version_of(folders: Sequence[Path]) -> str:
    """A text that changes with the files that a report is made of."""
    facts = []
    for path in sorted(path for folder in folders for pattern in _FILES for path in folder.glob(pattern)):
        with suppress(OSError):  # it is being replaced
            facts.append((str(path), path.stat().st_mtime_ns, path.stat().st_size))
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def application(folders: Sequence[Path]) -> Flask:
    """The page at ``/``, and its `version_of` at ``/version``."""
    app = Flask(__name__, static_folder=None)

    @app.before_request
    def check_host() -> None:
        # Another site's page could reach this one under a name of its own that leads here.
        if request.host.partition(":")[0] not in ("127.0.0.1", "localhost"):
            abort(403)

    @app.get("/version")
    def version() -> Response:
        return Response(version_of(folders), mimetype="text/plain")

    @app.get("/")
    def page() -> Response:
        version = version_of(folders)  # before the files are read: a page may be older than it is, not newer
        try:
            return Response(report(folders, version))
        except UserError as error:  # nothing is there yet, or a file is damaged
            return Response(str(error), 503, {"Refresh": "3"}, mimetype="text/plain")

    return app


def server(folders: Sequence[Path], port: int) -> Any:
    """A server of the report on 127.0.0.1, for its ``run``; `OptionError` if the port cannot be had."""
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # that a request waits for another is no news
    try:  # one thread, since matplotlib's settings are those of the process
        return waitress.create_server(application(folders), host="127.0.0.1", port=port, threads=1)
    except (OSError, ValueError) as error:
        raise OptionError(f"port is {port}, which cannot be used ({error}); choose another --port") from None
