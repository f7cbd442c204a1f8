"""A small real HTTP server that speaks ``/v1/chat/completions``, with faults to order."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

Payload = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """What is answered instead: a status with a body, nothing for a while, or a closed connection."""

    status: int = 500
    body: str = '{"error": {"message": "out of order"}}'
    headers: dict[str, str] = field(default_factory=dict)
    silent_for: float = 0.0
    hangs_up: bool = False


def completion(text: str | None, cut: bool = False, usage: tuple[int, int] | None = (10, 3)) -> str:
    """The JSON of an answer."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "length" if cut else "stop"}
    body: dict[str, Any] = {"object": "chat.completion", "choices": [choice]}
    if usage is not None:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return json.dumps(body)


def no_fault(payload: Payload, attempt: int) -> Fault | None:
    """Everything is answered."""
    return None


class OpenAIServer:
    """Answers in threads of its own, from construction until the ``with`` block ends.

    Args:
        answer: Writes a reply, given the request's body; may block.
        fault: What to do instead, given the body and how often the same one came before; ``None`` to answer.
        key: The only key that is accepted; ``None`` for any or none.
    """

    def __init__(
        self,
        answer: Callable[[Payload], str] = lambda payload: "hello",
        fault: Callable[[Payload, int], Fault | None] = no_fault,
        key: str | None = None,
    ) -> None:
        self.answer, self.fault, self.key = answer, fault, key
        self.asked: list[Payload] = []
        self.answered: list[Payload] = []
        self.times: list[float] = []
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._server = _Listener(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> "OpenAIServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def note(self, payload: Payload) -> int:
        """Write down a request; returns how often the same one came before."""
        with self._lock:
            self.asked.append(payload)
            self.times.append(time.monotonic())
            content = json.dumps(payload, sort_keys=True)
            self._seen[content] += 1
            return self._seen[content] - 1


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a connection that is kept open would be waited for
    request_queue_size = 128
    owner: OpenAIServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def do_POST(self) -> None:
        owner = self.server.owner
        payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = owner.fault(payload, owner.note(payload))
        if owner.key is not None and self.headers.get("Authorization") != f"Bearer {owner.key}":
            given = self.headers.get("Authorization", "")
            fault = Fault(401, json.dumps({"error": {"message": f"Incorrect API key provided: {given}"}}))
        if self.path != "/v1/chat/completions":
            fault = Fault(404, "no such page")
        if fault is None:
            text = owner.answer(payload)
            owner.answered.append(payload)
            self._send(200, completion(text), {})
            return
        time.sleep(fault.silent_for)
        if fault.hangs_up:
            self.close_connection = True
            return
        self._send(fault.status, fault.body, fault.headers)

    def _send(self, status: int, body: str, headers: dict[str, str]) -> None:
        content = body.encode()
        try:
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except OSError:  # the client has gone
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
