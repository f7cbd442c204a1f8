"""A small real HTTP server that speaks ``/v1/chat/completions``, with faults to order."""

import json
import socket
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flask import Flask, Response, request
from werkzeug.serving import WSGIRequestHandler, make_server

Payload = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """What is answered instead: a status with a body, or a closed connection."""

    status: int = 500
    body: str = '{"error": {"message": "out of order"}}'
    hangs_up: bool = False


def completion(text: str) -> str:
    """The JSON of an answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
    return json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage})


class OpenAIServer:
    """Answers in threads of its own, from construction until the ``with`` block ends.

    ``fault`` says what to do instead, given the body and how often the same one came before. ``key`` is the only one
    that is accepted, or ``None``.
    """

    def __init__(
        self,
        answer: Callable[[Payload], str] = lambda payload: "hello",
        fault: Callable[[Payload, int], Fault | None] = lambda payload, attempt: None,
        key: str | None = None,
    ) -> None:
        self.answer, self.fault, self.key = answer, fault, key
        self.asked: list[Payload] = []
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()
        app = Flask(__name__)
        app.post("/v1/chat/completions")(self._reply)
        self._server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
        self.url = f"http://127.0.0.1:{self._server.port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def __enter__(self) -> "OpenAIServer":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _reply(self) -> Response:
        payload = request.get_json()
        with self._lock:
            self.asked.append(payload)
            content = json.dumps(payload, sort_keys=True)
            fault = self.fault(payload, self._seen[content])
            self._seen[content] += 1
        given = request.headers.get("Authorization", "")
        if self.key is not None and given != f"Bearer {self.key}":
            fault = Fault(401, json.dumps({"error": {"message": f"Incorrect API key provided: {given}"}}))
        if fault is None:
            return Response(completion(self.answer(payload)), content_type="application/json")
        if fault.hangs_up:
            request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return Response(fault.body, fault.status, content_type="application/json")


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: object) -> None:
        """Say nothing."""
