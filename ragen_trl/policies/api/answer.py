"""A server's answer to a chat completion: a reply, read from its JSON, or one of the named errors."""

import json
from dataclasses import dataclass
from typing import Any

from ragen_trl.errors import UserError


class ApiError(UserError, RuntimeError):
    """A server gave no usable answer. The message quotes the server, never the key.

    Attributes:
        status: The HTTP status of the last answer; ``None`` if there was none.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ApiAccessError(ApiError):
    """The server will not answer any request: wrong address, key or model, or no credit left."""


class ApiRefusedError(ApiError):
    """The server refuses this request (400, 403, 413, 422, …): too long, flagged, or with an unknown option."""


class ApiAnswerError(ApiError):
    """The server's answer is not a chat completion."""


class ApiUnavailableError(ApiError):
    """All attempts failed, or the server asked to wait too long."""


@dataclass(frozen=True)
class Answer:
    """One reply of a server.

    Attributes:
        text: What the model wrote; ``""`` if it wrote nothing or refused.
        cut: Whether the token limit ended it.
        prompt_tokens: Tokens that were sent, by the server's count; ``None`` if it does not say.
        completion_tokens: Tokens that were written, hidden thoughts included; ``None`` if the server does not say.
        body: The server's JSON, unchanged.
    """

    text: str
    cut: bool
    prompt_tokens: int | None
    completion_tokens: int | None
    body: str


def read_answer(body: str) -> Answer:
    """The first choice of a server's JSON; `ApiAnswerError` if none can be read."""
    try:
        content = json.loads(body)
        choice = content["choices"][0]
        text = choice["message"].get("content") or ""  # null if a model refuses or only thinks
        if not isinstance(text, str):
            raise TypeError(f"content is a {type(text).__name__}")
        usage = content.get("usage") or {}
        cut = choice.get("finish_reason") == "length"
        text = text.encode("utf-8", "replace").decode("utf-8")  # half characters could not be stored
        return Answer(text, cut, _count(usage, "prompt_tokens"), _count(usage, "completion_tokens"), body)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ApiAnswerError(f"not a chat completion: {type(error).__name__} {error}") from error


def error_in(body: str) -> dict[str, Any]:
    """The ``error`` object of a body without choices; empty if there is none."""
    try:
        content = json.loads(body)
    except ValueError:
        return {}
    if not isinstance(content, dict) or "choices" in content or not content.get("error"):
        return {}
    error = content["error"]
    return error if isinstance(error, dict) else {"message": str(error)}


def _count(usage: object, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
