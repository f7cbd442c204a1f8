"""The command `webshop-server`: serves a store with waitress, in this process, until it is stopped."""

import argparse
import logging
import signal
import socket
import sys
from collections.abc import Sequence

import waitress  # type: ignore[import-untyped]

from webshop_server.goals.reward import REWARD_MODES
from webshop_server.server.app import create_app
from webshop_server.server.requests import MAX_BODY
from webshop_server.server.sessions import MAX_SESSIONS

_CONNECTIONS = 4000  # as many, quiet or not; more are let in as idle ones end

_EPILOG = """\
For several processes use gunicorn, which shares the sessions of one store by itself:
  gunicorn -w 4 --threads 8 -b 127.0.0.1:3000 'webshop_server:create_app("synthetic")'
"""


def _parser() -> argparse.ArgumentParser:
    """Options for the server, and those of `create_app` under its names."""
    parser = argparse.ArgumentParser(
        prog="webshop-server",
        description="Serves a WebShop store: pages for people and for programs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--catalog", default="synthetic", help="toy, synthetic, synthetic:N, or a path to the public data")
    add("--host", default="127.0.0.1", help="address to bind to (default: this machine only)")
    add("--port", type=int, default=3000, help="port; 0 takes a free one (default: 3000)")
    add("--threads", type=int, default=4, help="threads (default: 4)")
    add("--seed", type=int, default=0, help="seed of prices and of the bundled catalogues (default: 0)")
    add("--human-goals", action="store_true", help="tasks that people wrote, where the catalogue has them")
    add("--reward", dest="reward_mode", choices=REWARD_MODES, default="webshop", help="how purchases are scored")
    add("--nouns", help="noun tagger: precomputed, rules, every_word, spacy or spacy:MODEL (default: what there is)")
    add("--attrs", dest="show_attributes", action="store_true", help="show the attributes of products")
    add("--reveal-goals", action="store_true", help="tell the goal on the page of a purchase, as the original does")
    add("--cache", dest="cache_dir", metavar="FOLDER", help="where files made from the catalogue go")
    add("--sessions", metavar="FILE", help="where sessions are kept (default: among the temporary files)")
    add("--max-sessions", type=int, default=MAX_SESSIONS, help="sessions kept (default: 10000)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command."""
    options = vars(_parser().parse_args(arguments))
    host, port, threads = (options.pop(name) for name in ("host", "port", "threads"))
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    # Waitress says so whenever more requests have come than there are threads, which is no news under load.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    try:
        listener = _bound(host, port)  # before the catalogue is opened, which may take minutes
        app = create_app(**options)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"webshop-server: {error}\n")
        return 2
    server = waitress.create_server(
        app,
        sockets=[listener],
        threads=threads,
        connection_limit=_room_for(_CONNECTIONS),
        max_request_body_size=MAX_BODY + 1,  # it takes less than that
        asyncore_use_poll=True,
        ident="webshop",
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # waitress ends as for Ctrl-C
    bound = listener.getsockname()[1]
    address = f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"
    sys.stdout.write(f"webshop-server: {options['catalog']} at http://{address}; Ctrl-C stops it\n")
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
