"""What the tests of bridges share: a lake without slips, and a real OpenEnv server on a free port."""

import functools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium

from ragen_envs import AgentTurns

# Start top left, goal bottom right, no holes, no slipping: Right and Down in any order.
SMALL_LAKE = functools.partial(
    gymnasium.make, "ragen/FrozenLake-v0", size=2, frozen_prob=1.0, is_slippery=False, random_start=False
)
RULES = (
    "Walk over the frozen lake to the goal. A hole ends the game.\n"
    "P you, _ ice, O hole, G goal, X you in a hole, √ you on the goal\n"
    "Actions: Left, Down, Right, Up\n"
)


def small_turns() -> AgentTurns:
    """The small lake for one reply."""
    return AgentTurns(SMALL_LAKE(), max_turns=1)


def answer(*actions: str) -> str:
    """A well-formed reply."""
    return f"<think>hm</think><answer>{' || '.join(actions)}</answer>"


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Runs an ASGI application in a thread; the address, until the block ends."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    give_up = time.monotonic() + 30
    while not server.started:
        assert thread.is_alive() and time.monotonic() < give_up, "the server did not start"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
