"""A store with one page for each sequence of actions, and a connection that can be made to fail."""

import json
from typing import Any

import httpx

from ragen_envs.webshop.client import ShopConnection
from ragen_envs.webshop.session import ShopSession


class FakeStore:
    """Speaks the JSON API. A page is its actions so far; "bad" is no action, "buy" ends.

    Attributes:
        faults: What happens to the next requests, one each: "refuse" (no connection), "lose" (carried out, and the
            answer is lost), "busy" (status 503), "forget" (all sessions are gone), "" (nothing).
        waits: Seconds that the client waited.
        requests: Method and path of each request, tokens included.
        wares: Part of every page.
    """

    def __init__(self, *faults: str) -> None:
        """Starts without sessions."""
        self.faults = list(faults)
        self.waits: list[float] = []
        self.requests: list[str] = []
        self.sessions: dict[str, tuple[int, list[str]]] = {}
        self.wares = "shop"
        self._made = 0

    def connection(self) -> ShopConnection:
        """A connection to it, with short patience."""
        return ShopConnection("http://shop.test", self._client, "start it", (0.1, 0.2, 0.4), self.waits.append)

    def session(self, **request: Any) -> ShopSession:
        """A session in it."""
        return ShopSession(self.connection(), {"mode": "text", "split": "test", "seed": 5, **request})

    def _client(self) -> httpx.Client:
        return httpx.Client(transport=httpx.MockTransport(self._answer), base_url="http://shop.test")

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(f"{request.method} {request.url.path}")
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "refuse":
            raise httpx.ConnectError("refused", request=request)
        if fault == "busy":
            return httpx.Response(503)
        if fault == "forget":
            self.sessions.clear()
        response = self._route(request)
        if fault == "lose":
            raise httpx.ReadError("cut", request=request)
        return response

    def _route(self, request: httpx.Request) -> httpx.Response:
        _, _, _, *rest = request.url.path.split("/")
        if not rest:
            asked = json.loads(request.content)
            self._made += 1
            token = f"t{self._made}"
            goal = asked.get("goal")
            goal = 7 if goal is None else goal
            if goal > 9:
                return httpx.Response(404, json={"error": "unknown_goal", "message": f"there is no goal {goal}"})
            self.sessions[token] = (goal, [])
            return httpx.Response(201, json={"session": token, "goal": goal, "instruction": "buy", **self._page(token)})
        if rest[0] not in self.sessions:
            return httpx.Response(410, json={"error": "session_gone", "message": "over"})
        if request.method == "DELETE":
            del self.sessions[rest[0]]
            return httpx.Response(204)
        if rest[1:] == ["picture"]:
            return httpx.Response(200, text=f"{self._page(rest[0])['observation']}, {request.url.query.decode()}")
        action = json.loads(request.content)["action"]
        if action == "too long":
            return httpx.Response(400, json={"error": "too_long", "message": "write less"})
        if action != "bad":
            self.sessions[rest[0]][1].append(action)
        return httpx.Response(200, json={**self._page(rest[0]), "valid": action != "bad"})

    def _page(self, token: str) -> dict[str, Any]:
        goal, actions = self.sessions[token]
        bought = actions[-1:] == ["buy"]
        return {
            "observation": " ".join([self.wares, str(goal), *actions]),
            "url": f"http://shop.test/{goal}",
            "reward": 0.5 if bought else 0.0,
            "done": bought,
            "valid": False,
            "effective": True,
            "task_score": 0.5 if bought else 0.0,
            "success": False,
            "available_actions": {"has_search_bar": True, "clickables": ["buy"]},
            **({"reward_parts": {"total": 0.5, "options": [1, 0], "mode": "fixed"}} if bought else {}),
        }
