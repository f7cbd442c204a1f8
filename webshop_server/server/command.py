"""The command `webshop-server`: serves a store until it is stopped.

With one worker everything is in this process, and waitress serves it (`one_process.py`). With several, gunicorn forks
them, replaces one that dies and hands out the connections (`several_processes.py`).
"""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from flask import Flask

from webshop_server.catalog.json_stream import CatalogError
from webshop_server.goals.nouns import NounTaggerError
from webshop_server.goals.reward import REWARD_MODES
from webshop_server.goals.sources import GoalError
from webshop_server.server.app import create_app
from webshop_server.server.metrics import Metrics
from webshop_server.server.one_process import serve_alone
from webshop_server.server.serving import MakeApp, ServeError, Serving, bind
from webshop_server.server.sessions import DEFAULT_MAX_SESSIONS, DEFAULT_TTL, Sessions, SessionStore, Tokens

# Environment variables that gunicorn takes as settings, some of them when it is imported. The store's settings are the
# options of its command, so these must not change them.
_READ_BY_GUNICORN = (
    *("FORWARDED_ALLOW_IPS", "GUNICORN_CMD_ARGS", "GUNICORN_FD", "GUNICORN_PID", "LISTEN_FDS", "LISTEN_PID"),
    *("NOTIFY_SOCKET", "PORT", "SCRIPT_NAME", "SENDFILE", "WEB_CONCURRENCY"),
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="webshop-server", description="Serves a WebShop store: pages for people and a JSON API for programs."
    )
    add = parser.add_argument
    add("--catalog", default="synthetic", help="toy, synthetic, synthetic:N, or a path to the public data")
    add("--host", default="127.0.0.1", help="address to bind to (default: this machine only)")
    add("--port", type=_whole(0, 65535), default=3000, help="port; 0 takes a free one (default: 3000)")
    add("--workers", type=_whole(1, 64), default=1, help="processes (default: 1)")
    add("--threads", type=_whole(1, 256), default=4, help="threads in each process (default: 4)")
    add("--seed", type=int, default=0, help="seed of prices and of the bundled catalogues (default: 0)")
    add("--human-goals", action="store_true", help="tasks that people wrote, where the catalogue has them")
    add("--reward", choices=REWARD_MODES, default="webshop", help="how the classic pages score (default: webshop)")
    add("--nouns", help="noun tagger: precomputed, rules, every_word, spacy or spacy:MODEL (default: what there is)")
    add("--attrs", action="store_true", help="show the attributes of products, as the original's --attrs")
    add("--reveal-goals", action="store_true", help="tell the goal on the page of a purchase, as the original does")
    add("--cache", metavar="FOLDER", help="where files made from the catalogue go (default: beside it)")
    add("--log", metavar="FOLDER", help="write what happens in sessions there, as JSON Lines")
    add("--max-sessions", type=_whole(1, 10**7), default=DEFAULT_MAX_SESSIONS, help="sessions kept (default: 10000)")
    add("--ttl", type=float, default=DEFAULT_TTL, help="seconds without use until a session ends (default: 3600)")
    return parser


def _whole(lowest: int, highest: int) -> Any:
    """A converter for argparse that takes whole numbers of a range."""

    def whole(text: str) -> int:
        number = int(text)
        if not lowest <= number <= highest:
            raise argparse.ArgumentTypeError(f"{number} is not from {lowest} to {highest}")
        return number

    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        arguments: Of the command line; None takes the program's own.

    Returns:
        Exit status: 0 after a signal, 2 if the server could not start.
    """
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    # Waitress says so whenever more requests have come than there are threads, which is no news under load.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)

    def make_app(sessions: SessionStore[Any] | None, tokens: Tokens | None, metrics: Metrics) -> Flask:
        if sessions is None:
            sessions = Sessions(options.max_sessions, options.ttl)
        return create_app(
            options.catalog,
            seed=options.seed,
            human_goals=options.human_goals,
            reward_mode=options.reward,
            nouns=options.nouns,
            show_attributes=options.attrs,
            reveal_goals=options.reveal_goals,
            cache_dir=options.cache,
            log=options.log,
            sessions=sessions,
            tokens=tokens,
            metrics=metrics,
        )

    def ready(address: str) -> None:
        count = "1 worker" if options.workers == 1 else f"{options.workers} workers"
        sys.stdout.write(f"webshop-server: {options.catalog} at {address}, {count}; Ctrl-C stops it\n")
        sys.stdout.flush()

    serving = Serving(options.host, options.port, options.workers, options.threads, options.max_sessions, options.ttl)
    try:
        serve(serving, make_app, ready)
    except (CatalogError, GoalError, NounTaggerError, ServeError, ValueError, OSError) as error:
        sys.stderr.write(f"webshop-server: {error}\n")
        return 2
    return 0


def serve(serving: Serving, make_app: MakeApp, ready: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT comes, and answers what has come before it returns.

    Args:
        serving: How.
        make_app: Makes the application. It is called once, in this process.
        ready: Told the address once requests are answered.

    Raises:
        ServeError: If the address is taken, or several workers are asked for where there is no fork.
        Exception: What `make_app` raises.
    """
    listener = bind(serving.host, serving.port)
    with listener:
        host, port = listener.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        if serving.workers == 1:
            serve_alone(serving, make_app, listener, lambda: ready(address))
        elif sys.platform == "win32":
            raise ServeError("several workers need a system with fork; use --workers 1")
        else:
            for name in _READ_BY_GUNICORN:
                os.environ.pop(name, None)
            from webshop_server.server.several_processes import serve_with_workers  # gunicorn needs fork to load

            serve_with_workers(serving, make_app, listener, lambda: ready(address))
