"""A server that speaks as much of vLLM's HTTP as training on an adapter needs, and that dies and comes back.

It is `fake_vllm.FakeModel` after real sockets: TRL's own ``VLLMGeneration`` and our own client talk to it.
"""

import copy
import json
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

import pytest
from peft import PeftModel

from tests.support.ragen_trl.fake_vllm import FakeModel
from tests.support.ragen_trl.trainers import small_model


class HttpServer:
    """A server with a base and adapters.

    Attributes:
        asked: The body of every request for a reply that was answered.
        loaded: Folders of adapters, as they were loaded.
        dies_at: It dies before it answers this request for a reply, counted from 0 over all its lives.
        returns_after: Seconds after which it is started again, ``None``: never.
    """

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.loaded: list[str] = []
        self.dies_at = -1
        self.returns_after: float | None = None
        self._lock = threading.Lock()
        self._number, self._life = count(), 0
        self._alive = False
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen, with the base alone."""
        self._life += 1
        self._alive = True
        self._models = {"base": FakeModel(small_model())}
        self._server = _Sockets(("127.0.0.1", self._port), self)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Close all its sockets, without an answer to what was asked."""
        self._server.shutdown()
        self._server.close_all()

    def die(self) -> None:
        """Stop, and perhaps start again without adapters."""
        self.stop()
        if self.returns_after is not None:
            threading.Timer(self.returns_after, self.start).start()

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any] | None:
        """Status and content; ``None`` if it is dead, from the request on that it dies of."""
        if not self._alive:  # its sockets may still be open: the thread that closes them has only been started
            return None
        if path.startswith("/health"):
            return 200, {}
        if path.startswith("/v1/models"):
            return 200, {"data": [{"id": "base"}]}
        if path.startswith("/server_info"):
            model = {"max_model_len": 2048, "logprobs_mode": "processed_logprobs"}
            return 200, {"vllm_config": {"instance_id": str(self._life), "model_config": model}}
        if path.endswith("/load_lora_adapter"):
            return self._load(body["lora_name"], body["lora_path"])
        if path.endswith("/unload_lora_adapter"):
            self._models.pop(body["lora_name"], None)
            return 200, {}
        with self._lock:  # one model, which samples one row after the other
            if not self._alive:  # it died while this request waited
                return None
            if next(self._number) == self.dies_at:
                self._alive = False
                threading.Thread(target=self.die).start()
                return None
            return self._reply(body)

    def _load(self, name: str, folder: str) -> tuple[int, Any]:
        if name in self._models:
            return 400, {"error": f"{name} has already been loaded"}
        fake = FakeModel(small_model())
        fake.model = PeftModel.from_pretrained(copy.deepcopy(fake.model), folder).eval()
        self._models[name] = fake
        self.loaded.append(folder)
        return 200, "Success"

    def _reply(self, body: dict[str, Any]) -> tuple[int, Any]:
        if body["model"] not in self._models:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
        (ids,) = body["prompt"]
        ids, values = self._models[body["model"]].sample(
            ids, body["seed"], body["max_tokens"], body["temperature"], body["stop_token_ids"], body.get("stop", [])
        )
        self.asked.append(body)
        tokens = [f"token_id:{token}" for token in ids]
        logprobs = {"tokens": tokens, "token_logprobs": values, "top_logprobs": [None] * len(ids)}
        assert all(map(math.isfinite, values))
        return 200, {"choices": [{"prompt_token_ids": body["prompt"][0], "token_ids": ids, "logprobs": logprobs}]}


class _Sockets(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], server: HttpServer) -> None:
        self.open: list[Any] = []
        self.vllm = server
        super().__init__(address, _Handler)

    def get_request(self) -> Any:
        made = super().get_request()
        self.open.append(made[0])
        return made

    def handle_error(self, *_: Any) -> None:
        """A connection that `close_all` has closed."""

    def close_all(self) -> None:
        self.server_close()
        for connection in self.open:
            try:
                connection.shutdown(2)
            except OSError:  # closed by the other side
                pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or the body waits 40 ms for the client's delayed ACK of the headers
    server: _Sockets

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}"))

    def _answer(self, body: dict[str, Any]) -> None:
        answer = self.server.vllm.answer(self.path, body)
        if answer is None:
            self.close_connection = True
            return
        content = json.dumps(answer[1]).encode()
        self.send_response(answer[0])
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing on the screen."""


def no_vllm_needed(patch: pytest.MonkeyPatch) -> None:
    """Let TRL's client be made where vLLM is not installed."""
    for module in ("vllm_client", "vllm_generation"):
        patch.setattr(f"trl.generation.{module}.is_vllm_available", lambda *_, **__: True)
