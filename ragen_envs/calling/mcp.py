"""Any server of the Model Context Protocol as an environment, by the official SDK (``pip install 'ragen-trl[mcp]'``).

The server is a process of its own that speaks over its standard input and output. Its tools are the actions; what is to
be done, and whether it was, a server does not know: tasks and a judge are arguments. The SDK is asynchronous, so each
environment has a thread with an event loop.
"""

import asyncio
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from ragen_envs.any_text import AnyText
from ragen_envs.arguments import check_flags, check_integer
from ragen_envs.calling.env import Judgement, ToolEnv
from ragen_envs.calling.tool import Call, Tool, ToolError
from ragen_envs.errors import EnvError

_SHUTDOWN = 15.0  # seconds; the SDK waits for 2, then ends the process and what it started, and then kills them
_LOOK_EVERY = 0.1  # seconds between two looks at whether the server still runs
_LAST_WORDS = 0.5  # seconds; an answer may still be in the pipe when its server has ended


class McpServerError(EnvError, RuntimeError):
    """A server could not be started, or gave no list of its tools."""


class _NoAnswerError(ToolError):
    """A server has ended, or did not answer in time; who asked is not to blame."""


class McpTools(ToolEnv):
    """Tasks with the tools of an MCP server.

    Each episode has a new process of the server, so that nothing is left of the last one, unless `restart` is False; a
    server that has died is then replaced at the next `reset`. A call that takes too long is cancelled; its result is
    then an error, as are those that the server reports and those after the server has died. `close` ends the process
    and all that it started; so does the end of the program. An environment cannot be copied, because a process cannot.

    Args:
        command: What starts the server: the program and its arguments.
        tasks: Tasks in words; `reset` draws one.
        judge: Called with this environment after each call and after an answer; returns ``(reward, done)``, or
            ``(reward, terminated, info)`` for an end without success, as `ToolEnv._judge` does. It may read `task`,
            `answer` and what `call` returns. If the server has died or does not answer the judge in time, the reward
            is 0 and the task not done; other errors of `call` are the judge's.
        call_timeout: Seconds that a call may take.
        start_timeout: Seconds that the server may take to list its tools.
        restart: Whether each episode has a new process.
        variables: Environment variables of the server; it has few others (the SDK's default).
        cwd: Its working directory.
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
        start_timeout: float = 30.0,
        restart: bool = True,
        variables: Mapping[str, str] | None = None,
        cwd: str | None = None,
        max_result_length: int = 2000,
        render_mode: str | None = None,
    ) -> None:
        """Starts the server; the arguments are described in the class docstring."""
        if isinstance(command, str) or not command:
            raise ValueError(f"command={command!r} must be a list, such as ['python', 'server.py']")
        if isinstance(tasks, str) or not tasks:
            raise ValueError(f"tasks={tasks!r} must be a list of at least one task")
        for name, value in (("call_timeout", call_timeout), ("start_timeout", start_timeout)):
            if not value > 0:
                raise ValueError(f"{name}={value!r} must be a number of seconds above 0")
        check_flags(restart=restart)
        check_integer("max_result_length", max_result_length, 40, "leaves no room for a result")
        super().__init__(render_mode=render_mode, max_result_length=max_result_length)
        self.observation_space = AnyText(max_result_length + max(map(len, tasks)), min_length=0)
        self._tasks, self._judged_by, self._restart = tuple(tasks), judge, restart
        self.answer: str | None = None
        self._connect = partial(_Connection, list(command), variables, cwd, call_timeout, start_timeout)
        self._connection: _Connection | None = self._connect()
        self._is_fresh = True

    @property
    def tools(self) -> Sequence[Tool]:
        """The server's tools."""
        return self._live().tools

    def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> str:
        """Calls a tool for the judge; the model does not see it.

        Raises:
            ToolError: If the server reports an error, or does not answer in time.
        """
        return self._live().call(name, **(arguments or {}))

    def close(self) -> None:
        """Ends the server and everything that it started."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _live(self) -> "_Connection":
        if self._connection is None:  # closed; Gymnasium's environments may be reset after that
            self._connection, self._is_fresh = self._connect(), True
        return self._connection

    def _start(self, options: Mapping[str, Any]) -> str:
        has_died = self._connection is not None and not self._connection.is_alive
        if has_died or (self._restart and not self._is_fresh):
            self.close()
        self._live()
        self._is_fresh, self.answer = False, None
        self._task = self._tasks[self.np_random.integers(len(self._tasks))]
        return self._task

    def _judge(self) -> Judgement:
        try:
            return self._judged_by(self)
        except _NoAnswerError:  # the model may have caused it; an exception would leave the episode out
            return 0.0, False

    def _answered(self, text: str) -> Judgement:
        self.answer = text
        return self._judge()


class _Connection:
    """A server process and the thread that talks to it."""

    def __init__(
        self,
        command: list[str],
        variables: Mapping[str, str] | None,
        cwd: str | None,
        call_timeout: float,
        start_timeout: float,
    ) -> None:
        try:
            from mcp import Client, StdioServerParameters  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise ImportError(
                "the official SDK, mcp 2.0 or later, is missing; pip install 'ragen-trl[mcp]' (OpenEnv and verifiers "
                "need an older one, and a virtual environment of their own)"
            ) from error
        parameters = StdioServerParameters(
            command=command[0],
            args=command[1:],
            env=dict(variables) if variables else None,
            cwd=cwd,
            encoding_error_handler="replace",  # with "strict" the SDK stops reading, and says nothing
        )
        self._talk = _Talk(Client(parameters, read_timeout_seconds=start_timeout), call_timeout)
        self._thread = threading.Thread(target=self._talk.run, name=f"mcp {command[0]}", daemon=True)
        # At the end of the program too, when daemon threads would just stop and leave a server that ignores the end.
        self._finalizer = weakref.finalize(self, _end, self._talk, self._thread)
        self._thread.start()
        try:
            started = self._talk.ready.wait(start_timeout)
        except BaseException:  # Ctrl-C
            self.close()
            raise
        if not started or self._talk.failure is not None:
            self.close()
            why, failure = f"it did not list its tools within {start_timeout:g} seconds", None
            if started:
                failure = self._talk.failure
                why = f"{_innermost(failure)}; it may have written more to standard error"
            raise McpServerError(f"the MCP server {' '.join(command)!r} could not be started: {why}") from failure
        self.tools = tuple(
            Tool(found.name, found.description or found.name, found.input_schema, partial(self._talk.call, found.name))
            for found in self._talk.listed
        )

    @property
    def is_alive(self) -> bool:
        """Whether the server still runs, and the thread still talks to it."""
        return self._thread.is_alive() and not self._talk.is_broken and not self._talk.server_has_ended

    def call(self, name: str, /, **arguments: Any) -> str:
        """The text of a result."""
        return self._talk.call(name, **arguments)

    def close(self) -> None:
        """Ends the server; a second time does nothing."""
        self._finalizer()


class _Loop(asyncio.SelectorEventLoop if sys.platform != "win32" else asyncio.ProactorEventLoop):  # type: ignore[misc]
    """An event loop that knows which processes it has started, and whether the last one has ended.

    The SDK (2.3) starts a server in a process group of its own, and leaves the group alone if the server itself ends
    when its input closes. What the server started would then live on.
    """

    def __init__(self) -> None:
        super().__init__()
        self._started: list[asyncio.SubprocessTransport] = []

    @property
    def process_has_ended(self) -> bool:
        """Whether the last process has ended, even if another one holds its output."""
        return bool(self._started) and self._started[-1].get_returncode() is not None

    async def subprocess_exec(self, *arguments: Any, **options: Any) -> Any:
        """As in asyncio."""
        transport, protocol = await super().subprocess_exec(*arguments, **options)
        self._started.append(transport)
        return transport, protocol

    def end_groups(self) -> None:
        """Kill what is left of the groups; on Windows the SDK does that."""
        for transport in self._started if sys.platform != "win32" else ():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(transport.get_pid(), signal.SIGKILL)


def _innermost(failure: BaseException | None) -> BaseException | None:
    """The first exception in groups of groups, as the SDK's task groups raise them."""
    while exceptions := getattr(failure, "exceptions", ()):  # of an ExceptionGroup, which Python 3.10 has not
        failure = exceptions[0]
    return failure


class _Talk:
    """What happens in the thread. It knows nothing of the connection, which may be forgotten while this goes on."""

    def __init__(self, client: Any, call_timeout: float) -> None:
        self._client, self._call_timeout = client, call_timeout
        self.ready = threading.Event()
        self.failure: BaseException | None = None
        self.is_broken = False
        self._is_launched = False
        self.listed: list[Any] = []
        self._loop = _Loop()
        self._over = asyncio.Event()
        self._holding = self._loop.create_task(self._hold())

    def run(self) -> None:
        """The thread: until `stop` is called or the connection fails."""
        try:
            self._loop.run_until_complete(self._holding)
        except BaseException as error:  # a thread has nobody to tell; who waits for `ready` raises it
            self.failure = error
        finally:
            self.is_broken = True
            self._loop.end_groups()
            self.ready.set()
            self._loop.close()

    @property
    def server_has_ended(self) -> bool:
        """Whether the process of the server has ended."""
        return self._loop.process_has_ended and not self._is_launched

    def stop(self) -> None:
        """Lets the thread end the server, and give up one that has not listed its tools yet."""
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._over.set if self.ready.is_set() else self._holding.cancel)

    def call(self, name: str, /, **arguments: Any) -> str:
        """The text of a result; in the caller's thread."""
        if self.is_broken or self.server_has_ended:
            raise _NoAnswerError("the server has ended")
        waiting = asyncio.run_coroutine_threadsafe(self._called(Call(name, arguments)), self._loop)
        try:
            result = waiting.result(self._call_timeout + 1.0)
        except TimeoutError:
            waiting.cancel()
            raise _NoAnswerError(f"no result within {self._call_timeout:g} seconds") from None
        text = "\n".join(getattr(block, "text", f"[{block.type}]") for block in result.content)
        if result.is_error:
            raise ToolError(text or "the server reports an error")
        return text

    async def _hold(self) -> None:
        async with self._client as client:
            cursor = None
            while True:
                page = await client.list_tools(cursor=cursor)
                self.listed += page.tools
                cursor = page.next_cursor
                if not cursor:
                    break
            self._is_launched = self._loop.process_has_ended
            self.ready.set()
            await self._over.wait()

    async def _called(self, call: Call) -> Any:
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED  # type: ignore[import-not-found, unused-ignore]

        try:
            # Later than ours; by default it would be the limit of the start.
            limit = self._call_timeout + 1.0
            calling = self._client.call_tool(call.name, dict(call.arguments), read_timeout_seconds=limit)
            return await asyncio.wait_for(self._or_ended(calling), self._call_timeout)
        except MCPError as error:
            # Servers use the number for errors of their own, too.
            if (error.code, error.message) == (CONNECTION_CLOSED, "Connection closed"):
                self.is_broken = True  # for ever
                raise _NoAnswerError("the server has ended") from error
            raise ToolError(f"the server answers: {error}") from error

    async def _or_ended(self, calling: Coroutine[Any, Any, Any]) -> Any:
        """The result, or the news that the server has ended, which the SDK has not while a child holds its output."""
        answer = asyncio.ensure_future(calling)
        try:
            while not answer.done() and not self.server_has_ended:
                await asyncio.wait({answer}, timeout=_LOOK_EVERY)
            await asyncio.wait({answer}, timeout=_LAST_WORDS)
            if not answer.done():
                raise _NoAnswerError("the server has ended")
            return answer.result()
        finally:
            answer.cancel()


def _end(talk: _Talk, thread: threading.Thread) -> None:
    """Ends the server and waits until it is gone."""
    talk.stop()
    if thread is not threading.current_thread():  # which may collect the garbage
        thread.join(_SHUTDOWN)
