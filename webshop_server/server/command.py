"""The command `webshop-server`: serves a store with waitress, in this process, until it is stopped."""

import argparse
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

import waitress  # type: ignore[import-untyped]

from webshop_server.goals.reward import REWARD_MODES
from webshop_server.server.app import create_app
from webshop_server.server.requests import MAX_BODY
from webshop_server.server.sessions import MAX_SESSIONS, TTL

_IDLE_SECONDS = 120  # that a connection may be idle
_CONNECTIONS = 4000  # as many, quiet or not; more are let in as idle ones end

_EPILOG = """\
For several processes use gunicorn, which shares the sessions of one store by itself:
  gunicorn -w 4 --threads 8 -b 127.0.0.1:3000 'webshop_server:create_app("synthetic")'
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="webshop-server",
        description="Serves a WebShop store: pages for people and for programs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--catalog", default="synthetic", help="toy, synthetic, synthetic:N, or a path to the public data")
    add("--host", default="127.0.0.1", help="address to bind to (default: this machine only)")
    add("--port", type=_whole(0, 65535), default=3000, help="port; 0 takes a free one (default: 3000)")
    add("--threads", type=_whole(1, 256), default=4, help="threads (default: 4)")
    add("--seed", type=int, default=0, help="seed of prices and of the bundled catalogues (default: 0)")
    add("--human-goals", action="store_true", help="tasks that people wrote, where the catalogue has them")
    add("--reward", choices=REWARD_MODES, default="webshop", help="how purchases are scored (default: webshop)")
    add("--nouns", help="noun tagger: precomputed, rules, every_word, spacy or spacy:MODEL (default: what there is)")
    add("--attrs", action="store_true", help="show the attributes of products, as the original's --attrs")
    add("--reveal-goals", action="store_true", help="tell the goal on the page of a purchase, as the original does")
    add("--cache", metavar="FOLDER", help="where files made from the catalogue go (default: beside it)")
    add("--log", metavar="FOLDER", help="write what happens in sessions there, as JSON Lines")
    add("--sessions", metavar="FILE", help="where sessions are kept (default: among the temporary files)")
    add("--max-sessions", type=_whole(1, 10**7), default=MAX_SESSIONS, help="sessions kept (default: 10000)")
    add("--ttl", type=float, default=TTL, help="seconds without use until a session ends (default: 3600)")
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
    try:
        listener = _bound(options.host, options.port)  # before the catalogue is opened, which may take minutes
        app = create_app(
            options.catalog,
            seed=options.seed,
            human_goals=options.human_goals,
            reward_mode=options.reward,
            nouns=options.nouns,
            show_attributes=options.attrs,
            reveal_goals=options.reveal_goals,
            cache_dir=options.cache,
            log=options.log,
            sessions=options.sessions,
            max_sessions=options.max_sessions,
            ttl=options.ttl,
        )
    except (ValueError, OSError) as error:
        sys.stderr.write(f"webshop-server: {error}\n")
        return 2
    server = waitress.create_server(
        app,
        sockets=[listener],
        threads=options.threads,
        channel_timeout=_IDLE_SECONDS,
        connection_limit=_room_for(_CONNECTIONS),
        max_request_body_size=MAX_BODY + 1,  # it takes less than that
        asyncore_use_poll=True,
        ident="webshop",
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # waitress ends as for Ctrl-C
    host, port = listener.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    sys.stdout.write(f"webshop-server: {options.catalog} at http://{address}; Ctrl-C stops it\n")
    sys.stdout.flush()
    server.run()
    return 0


def _bound(host: str, port: int) -> socket.socket:
    """A socket that has taken an address, and does not listen yet, so that nobody waits for a store that is loading.

    Raises:
        OSError: If the address is not available; it says what to do.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        taken = socket.socket(family, kind, protocol)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address)
        taken.listen(1)  # of two servers that start, one finds out here
        return taken
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OSError(
            f"cannot serve at {host}:{port}: {reason}; is a server running there? Choose another --port or --host"
        ) from error


def _room_for(connections: int) -> int:
    """How many connections may be open, once the system's limit for this process was raised as far as it goes."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 100
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return connections if soft == resource.RLIM_INFINITY else max(100, max(soft, most) - 100)
