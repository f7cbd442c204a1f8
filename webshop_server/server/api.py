"""The JSON API: sessions that are made, stepped, read and deleted.

| request | answer |
|---|---|
| `GET /api/store` | 200: what is sold, and which goals, splits and rewards there are |
| `POST /api/sessions` with fields of `SessionRequest` | 201: `session` (its token), `goal`, `instruction`, as a step |
| `POST /api/sessions/TOKEN/step` with `{"action": text}` | 200: the fields of `Shop.answer` |
| `GET /api/sessions/TOKEN` | 200: the last answer, with `session`, `goal` and `instruction` |
| `GET /api/sessions/TOKEN/picture?hits=5` | 200: its product, or its first five hits, as SVG; 204 without any |
| `DELETE /api/sessions/TOKEN` | 204 |

A refusal is `{"error": code, "message": text}`: 400 for what cannot be read, 404 for what never was, 409 for a step
after the purchase, 410 for a session that is over, 413 for a body over 64 KiB. An action that the page does not know is
not an error; the answer then has `"valid": false`. The same holds for a search of over 1000 characters or with control
characters.
"""

import json
import random
from collections.abc import Mapping
from typing import Any

from flask import Blueprint, Response, request

from webshop_server.goals.goals import UnknownGoalError
from webshop_server.goals.sources import GoalError
from webshop_server.goals.splits import SPLITS
from webshop_server.server.metrics import Metrics
from webshop_server.server.pictures import page_svg
from webshop_server.server.session_log import SessionLog
from webshop_server.server.sessions import BusySessionError, SessionStore, Tokens, UnknownSessionError
from webshop_server.server.validation import (
    RequestError,
    SessionRequest,
    is_searchable,
    number_of_hits,
    read_action,
    read_session_request,
)
from webshop_server.store.shop import MODES, REWARDS, Episode, Rules, Shop
from webshop_server.store.state import PAGE_SIZE

_NO_ACTION = ""  # invalid on every page
_CHOICES: Mapping[str, tuple[str, ...]] = {"split": tuple(SPLITS), "mode": MODES, "reward": REWARDS}


class JsonApi:
    """The routes. One object serves all threads."""

    def __init__(
        self,
        shop: Shop,
        sessions: SessionStore[Episode],
        *,
        tokens: Tokens,
        metrics: Metrics,
        log: SessionLog | None = None,
    ) -> None:
        """Keeps what the routes need.

        Args:
            shop: The shop.
            sessions: Where episodes are kept.
            tokens: Names them.
            metrics: Counts sessions, steps and purchases.
            log: Where steps are written down, or None.
        """
        self._shop, self._sessions, self._tokens = shop, sessions, tokens
        self._metrics, self._log = metrics, log

    def blueprint(self) -> Blueprint:
        """The routes."""
        routes = Blueprint("api", __name__, url_prefix="/api")
        routes.add_url_rule("/store", view_func=self.store, methods=["GET"])
        routes.add_url_rule("/sessions", view_func=self.create, methods=["POST"])
        routes.add_url_rule("/sessions/<token>", view_func=self.read, methods=["GET"])
        routes.add_url_rule("/sessions/<token>", view_func=self.delete, methods=["DELETE"])
        routes.add_url_rule("/sessions/<token>/picture", view_func=self.picture, methods=["GET"])
        routes.add_url_rule("/sessions/<token>/step", view_func=self.step, methods=["POST"])
        return routes

    def store(self) -> Response:
        """What is sold here and which tasks there are."""
        return as_json(self._shop.about())

    def create(self) -> Response:
        """Makes a session."""
        asked = read_session_request(request.get_data(), _CHOICES)
        rules = Rules(asked.mode, asked.reward, asked.parity, asked.show_actions)
        episode = self._shop.start(self._goal(asked), rules)
        token = self._tokens.new()
        self._sessions.put(_key(token), episode)
        self._metrics.count("sessions_created")
        answer = self._described(token, episode)
        if self._log is not None:
            self._log.write(token, {"action": None, **{name: answer[name] for name in answer if name != "session"}})
        return as_json(answer, 201)

    def step(self, token: str) -> Response:
        """Takes an action."""
        action = read_action(request.get_data())
        taken = action if is_searchable(action) else _NO_ACTION

        def act(episode: Episode) -> tuple[Episode, Episode]:
            if episode.done:
                raise RequestError(409, "done", "this session has bought and takes no more actions; make a new one")
            after = self._shop.step(episode, taken)
            return after, after

        try:
            episode = self._sessions.update(_key(token), act)
        except UnknownSessionError:
            raise self._missing(token) from None
        except BusySessionError as error:
            raise RequestError(409, "busy", f"{error}; send a session's actions one after the other") from error
        self._metrics.count("steps")
        if episode.done:
            self._metrics.count("purchases")
        answer = self._shop.answer(episode)
        if self._log is not None:
            self._log.write(token, {"action": action, "goal": episode.goal, **answer})
        return as_json(answer)

    def read(self, token: str) -> Response:
        """Repeats the last answer, with what the session was made with."""
        return as_json(self._described(token, self._episode(token)))

    def picture(self, token: str) -> Response:
        """Draws what the page shows."""
        hits = number_of_hits(request.args.get("hits", str(PAGE_SIZE)))
        drawn = page_svg(self._shop.store, self._episode(token).state, hits)
        return Response(drawn, 200 if drawn else 204, mimetype="image/svg+xml")

    def delete(self, token: str) -> Response:
        """Forgets a session."""
        if not self._sessions.remove(_key(token)):
            raise self._missing(token)
        return Response(status=204)

    def _described(self, token: str, episode: Episode) -> dict[str, Any]:
        instruction = self._shop.goal(episode.goal).instruction
        return {"session": token, "goal": episode.goal, "instruction": instruction, **self._shop.answer(episode)}

    def _goal(self, asked: SessionRequest) -> int:
        try:
            if asked.goal is not None:
                return self._shop.goal(asked.goal).id
            if asked.index is None:
                rng = random.SystemRandom() if asked.seed is None else random.Random(asked.seed)
                return self._shop.goals.sample(rng, asked.split)
            numbers = self._shop.goals.split(asked.split)
            if asked.index >= len(numbers):
                message = f"split {asked.split!r} has {len(numbers)} goals; there is no index {asked.index}"
                raise RequestError(404, "unknown_goal", message)
            return int(numbers[asked.index])
        except (GoalError, UnknownGoalError) as error:
            raise RequestError(404, "unknown_goal", str(error)) from error

    def _episode(self, token: str) -> Episode:
        try:
            return self._sessions.get(_key(token))
        except UnknownSessionError:
            raise self._missing(token) from None

    def _missing(self, token: str) -> RequestError:
        if self._tokens.is_ours(token):
            reason = "it was deleted, was not used for long, or made room for newer ones"
            return RequestError(410, "session_gone", f"this session is over: {reason}; make a new one")
        return RequestError(404, "unknown_session", "there is no such session; make one with POST /api/sessions")


def _key(token: str) -> str:
    return f"api {token}"


def as_json(value: Mapping[str, Any], status: int = 200) -> Response:
    """An answer in JSON."""
    return Response(json.dumps(value), status, mimetype="application/json")
