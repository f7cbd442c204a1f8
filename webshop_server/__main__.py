"""The command `webshop-server`: serves a store with waitress, in this process, until it is stopped."""

import sys

try:
    import argparse
    import logging
    import signal
    import socket
    from collections.abc import Sequence
    from typing import Any

    import waitress  # type: ignore[import-untyped]

    from webshop_server.goals.reward import REWARD_MODES
    from webshop_server.server.app import MAX_BODY, create_app
    from webshop_server.server.sessions import MAX_SESSIONS
except KeyboardInterrupt:  # while modules load: no traceback
    sys.exit(130)

_CONNECTIONS = 4000  # as many, quiet or not; more are let in as idle ones end

_EPILOG = """\
For several processes use gunicorn, which shares the sessions of one store by itself:
  gunicorn -w 4 --threads 8 -b 127.0.0.1:3000 'webshop_server:create_app("synthetic")'
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; its options are for the server, and those of `create_app` under its names."""
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
    add("--cache", dest="cache_dir", metavar="FOLDER", help="where files made from the catalogue go")
    add("--sessions", metavar="FILE", help="where sessions are kept (default: among the temporary files)")
    add("--max-sessions", type=int, default=MAX_SESSIONS, help="sessions kept (default: 10000)")
    options = vars(parser.parse_args(arguments))
    host, port, threads = (options.pop(name) for name in ("host", "port", "threads"))
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    # Waitress says so whenever more requests have come than there are threads, which is no news under load.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    app: Any = None
    try:
        # One socket: waitress would make a server for each address of a name. Who comes before the app exists waits.
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        server = waitress.create_server(
            lambda environ, start_response: app(environ, start_response),
            sockets=[listener],
            threads=threads,
            connection_limit=_room_for(_CONNECTIONS),
            max_request_body_size=MAX_BODY + 1,  # it takes less than that
            asyncore_use_poll=True,
            ident="webshop",
        )
    except (ValueError, OSError, OverflowError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).partition(" (while")[0]
        told = f"cannot serve at {host}:{port}: {reason}; is a server running there? Choose another --port or --host"
        parser.exit(2, f"webshop-server: {told}\n")
    try:
        app = create_app(**options)
    except (ValueError, OSError) as error:
        parser.exit(2, f"webshop-server: {error}\n")
    except KeyboardInterrupt:
        return 130
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # waitress ends as for Ctrl-C
    address = f"{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
    sys.stdout.write(f"webshop-server: {options['catalog']} at http://{address}; Ctrl-C stops it\n")
    sys.stdout.flush()
    server.run()
    return 0


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


if __name__ == "__main__":
    sys.exit(main())
