"""Any server of the Model Context Protocol as an environment, by the official SDK (``pip install 'ragen-trl[mcp]'``).

The server is a process of its own that speaks over its standard input and output. Its tools are the actions; what is to
be done, and whether it was, a server does not know: tasks and a judge are arguments. The SDK is asynchronous, so each
environment has a thread with an event loop.
"""

import json
import shutil
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from ragen_envs.calling.env import Judgement, ToolEnv, as_text
from ragen_envs.calling.tool import Tool, ToolError
from ragen_envs.errors import EnvError
from ragen_envs.text_env import AnyText

# The SDK starts a process group, and leaves it alone if its first process ends when the input closes. So the first one
# is this: it ends what a server that has ended or died has started. On Windows the SDK does that.
_GROUP = "import os, signal, subprocess, sys; subprocess.call(sys.argv[1:]); os.killpg(os.getpid(), signal.SIGKILL)"
_LAUNCHER = [] if sys.platform == "win32" else [sys.executable, "-I", "-c", _GROUP]


START_TIMEOUT = 60.0  # seconds for each of the two or three answers of a start, which may include a download


class McpServerError(EnvError, RuntimeError):
    """A server could not be started, or gave no list of its tools."""


class _NoAnswerError(ToolError):
    """A server has ended, or did not answer in time; who asked is not to blame."""


class McpTools(ToolEnv):
    """Tasks with the tools of an MCP server.

    A call that takes too long is cancelled; its result is then an error, as are those that the server reports and those
    after it has died. `close` ends the process and all that it started; so does the end of the program. An environment
    cannot be copied, because a process cannot.

    Args:
        command: What starts the server: the program and its arguments.
        tasks: Tasks in words; `reset` draws one.
        judge: Called with this environment after each call and after an answer; returns ``(reward, done)``, or
            ``(reward, terminated, info)`` for an end without success, as `ToolEnv._judge` does. It may read `task`,
            `answer` and what `call` returns. If the server has died or does not answer the judge in time, the reward
            is 0 and the task not done; other errors of `call` are the judge's.
        call_timeout: Seconds that a call may take.
        restart: Whether each episode has a new process, so that nothing is left of the last one. If not, a server that
            has died is replaced at the next `reset`.
        variables: Environment variables of the server; it has few others (the SDK's default).
        max_result_length: Characters of a result that are shown.
        render_mode: "ansi", "rgb_array" or None.

    Raises:
        ValueError: If there is no task, or a number is out of its range.
        ImportError: Without the SDK.
        McpServerError: If the server cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        tasks: Sequence[str],
        judge: Callable[["McpTools"], Judgement],
        *,
        call_timeout: float = 30.0,
        restart: bool = True,
        variables: Mapping[str, str] | None = None,
        max_result_length: int = 2000,
        render_mode: str | None = None,
    ) -> None:
        """Starts the server; the arguments are described in the class docstring."""
        if isinstance(command, str) or not command:
            raise ValueError(f"command={command!r} must be a list, such as ['python', 'server.py']")
        if isinstance(tasks, str) or not tasks:
            raise ValueError(f"tasks={tasks!r} must be a list of at least one task")
        super().__init__(render_mode=render_mode, max_result_length=max_result_length)
        self.observation_space = AnyText(max_result_length + max(map(len, tasks)), min_length=0)
        self._tasks, self._judged_by, self._restart = tuple(tasks), judge, restart
        self._command, self._variables, self._call_timeout = tuple(command), dict(variables or {}), call_timeout
        self.answer: str | None = None
        self._end: weakref.finalize[Any, Any] | None = None
        self._has_ended = self._is_fresh = False
        self._connect()

    @property
    def tools(self) -> Sequence[Tool]:
        """The server's tools; it may add and remove some with every call."""
        self._connect()
        return [foreign_tool(name, text, schema, partial(self._run, name)) for name, text, schema in self._described]

    def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> str:
        """Calls a tool for the judge; the model does not see it.

        Raises:
            ToolError: If the server reports an error, or does not answer in time.
        """
        self._connect()
        from anyio import BrokenResourceError, ClosedResourceError
        from mcp.types import CONNECTION_CLOSED  # type: ignore[import-not-found, unused-ignore]

        if self._has_ended:
            raise _NoAnswerError("the server has ended")
        try:
            # The SDK's own limit is later than ours; by default it would be the limit of the start.
            result = self._ask(self._client.call_tool, name, dict(arguments or {}), self._call_timeout + 1.0)
        except TimeoutError:
            raise _NoAnswerError(f"no result within {self._call_timeout:g} seconds") from None
        except Exception as error:  # of the server, or a result that is none, or not of the tool's own schema
            # Servers use the number for errors of their own, too.
            closed = (getattr(error, "code", None), str(error)) == (CONNECTION_CLOSED, "Connection closed")
            if closed or isinstance(error, BrokenResourceError | ClosedResourceError):
                self._has_ended = True
                raise _NoAnswerError("the server has ended") from error
            raise ToolError(f"the server answers: {error}") from error
        with suppress(Exception):  # the call was answered; the next one tells what is wrong
            self._described = self._ask(_listed, self._client)
        text = content_text(result.model_dump(mode="json", by_alias=True, exclude_none=True))
        if result.is_error:
            raise ToolError(text or "the server reports an error")
        return text

    def close(self) -> None:
        """Ends the server and everything that it started."""
        if self._end is not None:
            self._end()
            self._end = None

    def _connect(self) -> None:
        """Starts the server if none runs, also after `close`: Gymnasium's environments may be reset after that."""
        if self._end is not None:
            return
        try:
            from anyio.from_thread import start_blocking_portal
            from mcp import Client, StdioServerParameters  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise ImportError(
                "the official SDK, mcp 2.0 or later, is missing; pip install 'ragen-trl[mcp]' (OpenEnv needs an older "
                "one, and a virtual environment of its own)"
            ) from error
        if shutil.which(self._command[0]) is None:
            raise McpServerError(f"there is no program {self._command[0]!r}; install it, or give its whole path")
        program, *arguments = *_LAUNCHER, *self._command
        # By default the SDK stops reading at a byte that is no UTF-8, and says nothing.
        options: dict[str, Any] = {"env": self._variables, "encoding_error_handler": "replace"}
        server = StdioServerParameters(command=program, args=arguments, **options)
        try:
            with ExitStack() as stack:
                self._portal = stack.enter_context(start_blocking_portal())
                client = Client(server, read_timeout_seconds=START_TIMEOUT)
                self._client = stack.enter_context(self._portal.wrap_async_context_manager(client))
                self._described = self._portal.call(_listed, self._client)
                # At the end of the program too, when daemon threads would just stop and leave the process.
                self._end = weakref.finalize(self, _close, stack.pop_all(), self._portal.call(threading.get_ident))
        except Exception as error:
            cause: BaseException = error
            while inner := getattr(cause, "exceptions", ()):  # groups of groups, of the SDK's tasks
                cause = inner[0]
            raise McpServerError(
                f"the MCP server {' '.join(self._command)!r} could not be started: {cause}; it may have written more "
                "to standard error"
            ) from error
        self._has_ended, self._is_fresh = False, True

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What an asynchronous function returns within the limit of a call."""
        waiting = self._portal.start_task_soon(function, *arguments)
        try:
            return waiting.result(self._call_timeout)
        finally:
            waiting.cancel()

    def _run(self, name: str, /, **arguments: Any) -> str:
        return self.call(name, arguments)

    def _start(self, options: Mapping[str, Any]) -> str:
        if self._end is not None and (self._has_ended or (self._restart and not self._is_fresh)):
            self.close()
        self._connect()
        self._is_fresh, self.answer = False, None
        return self._tasks[self.np_random.integers(len(self._tasks))]

    def _judge(self) -> Judgement:
        try:
            return self._judged_by(self)
        except _NoAnswerError:  # the model may have caused it; an exception would leave the episode out
            return 0.0, False

    def _answered(self, text: str) -> Judgement:
        self.answer = text
        return self._judge()


def _close(opened: ExitStack, thread: int) -> None:
    """Ends a server and waits until it is gone."""
    if threading.get_ident() == thread:  # which collects garbage, and cannot wait for itself
        threading.Thread(target=opened.close).start()
        return
    with suppress(Exception):  # a server that has died is gone
        opened.close()


async def _listed(client: Any) -> list[tuple[str, str | None, Any]]:
    page = await client.list_tools(cache_mode="refresh")
    tools = page.tools
    while page.next_cursor:
        page = await client.list_tools(cursor=page.next_cursor)
        tools += page.tools
    return [(each.name, each.description, each.input_schema) for each in tools]


def foreign_tool(name: str, description: str | None, schema: Any, run: Callable[..., Any]) -> Tool:
    """A tool that a server describes. Servers in Go write ``null`` for lists and maps that are empty; those go."""

    def without_nulls(found: dict[str, Any]) -> dict[str, Any]:
        return {key: each for key, each in found.items() if each is not None or key in ("default", "const")}

    kept = json.loads(json.dumps(schema or {}), object_hook=without_nulls)
    return Tool(name, description or name, {"type": "object", "properties": {}, **kept}, run)


def content_text(result: Mapping[str, Any]) -> str:
    """The text of a tool's result in any form of the protocol: JSON with `content` and `structuredContent`."""
    text = "\n".join(map(_block_text, result.get("content") or ()))
    structured = result.get("structuredContent")
    return text if text or structured is None else as_text(structured)


def _block_text(block: Mapping[str, Any]) -> str:
    """One block of content; of pictures, sounds and other binary data only what they are."""
    match block:
        case {"type": "text"}:
            return str(block.get("text", ""))
        case {"type": "resource", "resource": {"text": text, **inner}}:
            return f"[resource {inner.get('uri')}]\n{text}"
        case {"type": "resource", "resource": binary}:
            return f"[resource {binary.get('uri')}, {binary.get('mimeType', 'binary')}]"
        case {"type": "resource_link"}:
            about = [str(block[key]) for key in ("title", "name", "description", "mimeType") if block.get(key)]
            return f"[link {block.get('uri')}: {', '.join(about)}]"
        case {"type": "image" | "audio" as kind}:
            return f"[{kind}, {block.get('mimeType', 'of an unknown type')}]"
    return as_text(block)
