"""A small MCP server for tests, run as ``python mcp_server.py FILE``: it keeps a counter, and does what servers may do.

It starts a child that outlives a closed pipe, and writes the numbers of both processes to FILE.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(sys.argv[1]).write_text(f"{os.getpid()} {child.pid}")
    if "--silent" in sys.argv:
        time.sleep(600)

from mcp.server.mcpserver import MCPServer  # noqa: E402 - takes seconds, and a silent server does not get so far
from mcp.types import EmbeddedResource, TextResourceContents  # noqa: E402

server = MCPServer("counter")
counter = {"value": 0}


@server.tool()
def add(number: int, times: int = 1) -> str:
    """Add a number to the counter."""
    counter["value"] += number * times
    return f"the counter is {counter['value']}"


@server.tool()
def read() -> str:
    """Read the counter."""
    return f"{counter['value']} → ✓"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("nothing to be done")


@server.tool()
async def sleep(seconds: float) -> str:
    """Sleep."""
    import anyio

    await anyio.sleep(seconds)
    return "awake"


@server.tool()
def garble() -> str:
    """Write a line that is no message, and no UTF-8."""
    os.write(1, b"\xff\n")
    return "garbled"


@server.tool(structured_output=False)
def learn() -> EmbeddedResource:
    """Add a tool and remove this one; tells what was learnt."""
    server.add_tool(lambda: "recalled", name="recall", description="Recall.")
    server.remove_tool("learn")
    inner = TextResourceContents(uri="memo://1", mime_type="text/plain", text="recall what you learn")
    return EmbeddedResource(type="resource", resource=inner)


@server.tool()
def stop() -> str:
    """End the server without an answer."""
    os._exit(3)


if __name__ == "__main__":
    server.run()
