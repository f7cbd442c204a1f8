"""Rollouts of verifiers that wait for replies from outside: a client, an event loop in a thread, and texts of messages.

Verifiers' environments run a rollout to its end and ask a client for each reply. The client here passes the question on
and waits for the next reply.
"""

import asyncio
import functools
import json
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragen_envs.bridges.foreign import ForeignEnvError
from ragen_envs.calling.tool import Call


class Asked:
    """What a client is asked for a reply with."""

    def __init__(self, messages: Sequence[Any], tools: Sequence[Any]) -> None:
        self.messages, self.tools = messages, tools


class Rollout:
    """A rollout of verifiers that waits, in the loop's thread, for replies from this one."""

    def __init__(self, env: Any, row: dict[str, Any], loop: asyncio.AbstractEventLoop, timeout: float) -> None:
        self._loop, self._timeout = loop, timeout
        self._said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._replies: asyncio.Queue[tuple[str | None, Call | None]] = asyncio.Queue()
        self._running = asyncio.run_coroutine_threadsafe(self._run(env, row), loop)

    def next(self) -> Any:
        """The next request for a reply, or the state at the end."""
        try:
            found = self._said.get(timeout=self._timeout)
        except queue.Empty:
            self.cancel()
            raise ForeignEnvError(f"verifiers gives no answer within {self._timeout:g} seconds") from None
        if isinstance(found, BaseException):
            raise ForeignEnvError(f"a rollout of verifiers failed: {found!r}; see its cause") from found
        return found

    def reply(self, words: str | None, call: Call | None) -> None:
        """Answers the last request."""
        self._loop.call_soon_threadsafe(self._replies.put_nowait, (words, call))

    def cancel(self) -> None:
        """Ends the rollout; its own cleaning up is done."""
        self._running.cancel()

    async def _run(self, env: Any, row: dict[str, Any]) -> None:
        vf = verifiers_package()
        try:
            state = await env.rollout(row, _client(self._answered), "ragen_envs", {})
            error = state["error"]
            # A call that a tool cannot read or carry out is the model's mistake; the rubric scores it.
            if error is not None and not isinstance(error, vf.ToolError):
                raise error
            await (env.rubric.score_rollout(state) if env.score_rollouts else env.rubric.dummy_score_rollout(state))
            await env.rubric.cleanup(state)
            self._said.put(state)
        except Exception as error:  # a thread has nobody to tell; `next` raises it
            self._said.put(error)

    async def _answered(self, messages: Sequence[Any], tools: Sequence[Any]) -> tuple[str | None, Call | None]:
        self._said.put(Asked(messages, tools))
        return await self._replies.get()


def verifiers_package() -> Any:
    """The package, in a version that has environments with rollouts."""
    try:
        import verifiers  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise ImportError("verifiers is not installed; pip install 'ragen-trl[verifiers]'") from error
    if not hasattr(verifiers, "MultiTurnEnv"):
        version = getattr(verifiers, "__version__", "unknown")
        raise ImportError(f"verifiers {version} has no MultiTurnEnv; pip install 'ragen-trl[verifiers]', which is 0.2")
    return verifiers


@functools.cache
def shared_loop() -> asyncio.AbstractEventLoop:
    """The event loop of all rollouts, in a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="verifiers", daemon=True).start()
    return loop


def _client(ask: Callable[..., Any]) -> Any:
    """A client of verifiers that asks `ask` for each reply."""
    vf = verifiers_package()
    from verifiers.types import ResponseMessage  # type: ignore[import-not-found, unused-ignore]

    base: Any = vf.Client

    class Waiting(base):
        def setup_client(self, config: Any) -> Any:
            return None

        async def to_native_tool(self, tool: Any) -> Any:
            return tool

        async def to_native_prompt(self, messages: Any) -> tuple[Any, dict[str, Any]]:
            return messages, {}

        async def get_native_response(
            self, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **more: Any
        ) -> Any:
            words, call = await ask(prompt, tools or ())
            calls = None
            if call is not None:
                number = sum(message.role == "assistant" for message in prompt)
                arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
                calls = [vf.ToolCall(id=f"call_{number}", name=call.name, arguments=arguments)]
            reason = "tool_calls" if calls else "stop"
            message = ResponseMessage(content=words, tool_calls=calls, finish_reason=reason, is_truncated=False)
            return vf.Response(id="ragen_envs", created=0, model=model, usage=None, message=message)

        async def raise_from_native_response(self, response: Any) -> None:
            return None

        async def from_native_response(self, response: Any) -> Any:
            return response

        async def close(self) -> None:
            return None

    return Waiting(None)


def latest(messages: Sequence[Any]) -> Sequence[Any]:
    """What follows the last message of the assistant."""
    last = max((place for place, message in enumerate(messages) if message.role == "assistant"), default=-1)
    return messages[last + 1 :]


def joined(messages: Sequence[Any]) -> str:
    """Texts of messages, with their roles where the assistant is among them, as in examples."""
    named = any(message.role == "assistant" for message in messages)
    return "\n\n".join(
        f"{message.role}: {message_text(message)}" if named else message_text(message) for message in messages
    )


def message_text(message: Any) -> str:
    """The text of a message.

    Raises:
        TypeError: If it has a picture or a sound.
    """
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    parts = [part if isinstance(part, Mapping) else part.model_dump() for part in content]
    if any(part.get("type") != "text" for part in parts):
        kinds = sorted({str(part.get("type")) for part in parts})
        raise TypeError(f"a message of verifiers has {', '.join(kinds)}; only text can be played")
    return "".join(str(part["text"]) for part in parts)
