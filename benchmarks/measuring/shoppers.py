"""Shoppers for webshop_load.py: clients that are as light as possible, and the serial run to compare their visits with.

A visit is one episode: a search with a word of its own, so that no two visits have the same addresses; the first
product; its features; two options; the purchase. The actions follow only from the number of the visit and the answers,
so a shop without sessions, HTTP or threads can say what every answer should have been, byte for byte.
"""

import hashlib
import json
import random
import socket
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from webshop_server.store.shop import Rules, Shop

WAITS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0)  # seconds before each further attempt to connect
OPTIONS = 2  # chosen on the product's page, where it has any


@dataclass
class Visit:
    """What happened in one episode.

    Attributes:
        number: Which one.
        goal: Number of the goal, as the server said it.
        digests: Of the body of every answer to an action; of the first one too, without the session's name.
        reward: Of the purchase; None if it did not come to one.
        refusals: Status and code of every request that was refused.
    """

    number: int
    goal: int = -1
    digests: list[bytes] = field(default_factory=list)
    reward: float | None = None
    refusals: list[str] = field(default_factory=list)


@dataclass
class Shopper:
    """One client: its connection, and what it counted.

    Attributes:
        address: Host and port of the server.
        goals: How many the store has.
        short: Whether to buy the first product as it is.
        latencies: Seconds of every step that was answered; waits for a lost connection are not in it.
        searches: Those of them that were searches.
        statuses: Of all answers.
        faults: Requests without an answer, by what happened to the action.
        visits: Those that are over.
    """

    address: tuple[str, int]
    goals: int
    short: bool = False
    latencies: list[float] = field(default_factory=list)
    searches: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    visits: list[Visit] = field(default_factory=list)
    _socket: socket.socket | None = None

    def visit(self, number: int) -> None:
        """Plays one episode to its end, or to the first refusal."""
        visit = Visit(number)
        self.visits.append(visit)
        request = {"goal": goal_of(number, self.goals), "reward": "fixed"}
        status, body = self._surely("POST", "/api/sessions", request)
        if status != 201:
            visit.refusals.append(refusal(status, body))
            return
        answer = json.loads(body)
        path = f"/api/sessions/{answer['session']}"
        visit.goal, instruction = answer["goal"], answer["instruction"]
        visit.digests.append(digest(opening(answer)))
        played: list[str] = []
        while (action := next_action(number, instruction, played, answer, self.short)) is not None:
            status, body = self._step(path, action, answer["url"])
            if status != 200:
                visit.refusals.append(refusal(status, body))
                return
            answer = json.loads(body)
            visit.digests.append(digest(body))
            played.append(action)
        if answer["done"]:
            visit.reward = answer["reward"]

    def _step(self, path: str, action: str, url: str) -> tuple[int, bytes]:
        """Takes an action; where no answer comes, asks the session whether it was taken before sending it again.

        An action leads to another address, which shows that it was carried out; or it chooses an option, which may be
        done twice.
        """
        for _ in WAITS:
            began = time.perf_counter()
            try:
                answered = self._send("POST", f"{path}/step", {"action": action})
            except OSError:
                self._drop()
            else:
                self.latencies.append(time.perf_counter() - began)
                self.searches += self.latencies[-1:] * action.startswith("search[")
                return answered
            status, body = self._surely("GET", path)
            if status != 200:
                self.faults["session gone"] += 1
                return status, body
            state = json.loads(body)
            if state["url"] != url:
                self.faults["carried out, answer read again"] += 1
                del state["session"], state["goal"], state["instruction"]
                return status, json.dumps(state).encode()
            self.faults["not carried out, sent again"] += 1
        raise ConnectionError(f"{action!r} was sent {len(WAITS)} times and never answered")

    def _surely(self, method: str, path: str, content: dict[str, Any] | None = None) -> tuple[int, bytes]:
        """Sends a request that may be sent twice, until it is answered."""
        for wait in WAITS:
            try:
                return self._send(method, path, content)
            except OSError:
                self.faults[f"{method} sent again"] += 1
                self._drop()
                time.sleep(wait)
        return self._send(method, path, content)

    def _send(self, method: str, path: str, content: dict[str, Any] | None = None) -> tuple[int, bytes]:
        """One request on a connection that stays open. `http.client` takes three times as long, of the same cores."""
        if self._socket is None:
            self._socket = socket.create_connection(self.address, timeout=30)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = b"" if content is None else json.dumps(content).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\n"
        self._socket.sendall(f"{head}Content-Length: {len(sent)}\r\n\r\n".encode() + sent)
        received = b""
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._receive()
        status = int(received[9:12])
        lengths = [line[15:] for line in received[:end].lower().split(b"\r\n") if line.startswith(b"content-length:")]
        missing = int(lengths[0]) - len(received) + end + 4
        while missing > 0:
            more = self._receive()
            received, missing = received + more, missing - len(more)
        if b"connection: close" in received[:end].lower():
            self._drop()
        self.statuses[status] += 1
        return status, received[end + 4 :]

    def _receive(self) -> bytes:
        assert self._socket is not None
        received = self._socket.recv(65536)
        if not received:
            raise ConnectionError("the server closed the connection")
        return received

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def goal_of(number: int, goals: int) -> int:
    """The goal that a visit plays."""
    return random.Random(number).randrange(goals)


def next_action(number: int, instruction: str, played: list[str], answer: dict[str, Any], short: bool) -> str | None:
    """What a shopper does next; None when it is through, or finds nothing."""
    labels = answer["available_actions"]["clickables"]
    if answer["done"]:
        return None
    if not played:
        return f"search[{instruction.partition(',')[0]} visit{number}]"
    if len(played) == 1:
        products = [label for label in labels if label not in ("back to search", "< prev", "next >")]
        return f"click[{products[number % len(products)]}]" if products else None
    if len(played) > (2 if short else 4 + OPTIONS):
        return None  # not where this leads: somebody else's page
    if short:
        return "click[buy now]"
    if len(played) == 2:
        return "click[features]"
    if len(played) == 3:
        return "click[< prev]"
    if "buy now" not in labels:
        return None
    options = labels[labels.index("buy now") + 1 :]
    if options and len(played) < 4 + OPTIONS:
        return f"click[{options[(number * 7 + len(played)) % len(options)]}]"
    return "click[buy now]"


def opening(answer: dict[str, Any]) -> bytes:
    """The answer to the opening of a session, without the session's name."""
    return json.dumps({name: value for name, value in answer.items() if name != "session"}).encode()


def digest(body: bytes) -> bytes:
    """Stands for a body."""
    return hashlib.blake2b(body, digest_size=8).digest()


def refusal(status: int, body: bytes) -> str:
    """A refusal in few words."""
    return f"{status} {body[:120].decode('utf-8', 'replace')}"


def serial_visit(shop: Shop, number: int, short: bool) -> Visit:
    """The same visit to a shop that nobody else is in."""
    goal = goal_of(number, len(shop.goals))
    visit = Visit(number, goal)
    episode = shop.start(goal, Rules(reward="fixed"))
    instruction = shop.goal(goal).instruction
    answer = shop.answer(episode)
    visit.digests.append(digest(opening({"goal": goal, "instruction": instruction, **answer})))
    played: list[str] = []
    while (action := next_action(number, instruction, played, answer, short)) is not None:
        episode = shop.step(episode, action)
        answer = shop.answer(episode)
        visit.digests.append(digest(json.dumps(answer).encode()))
        played.append(action)
    if answer["done"]:
        visit.reward = answer["reward"]
    return visit
