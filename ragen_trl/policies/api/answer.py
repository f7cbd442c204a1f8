"""What a server can answer to a chat completion: a reply, read from its JSON, or one of the named failures."""

import json
from dataclasses import dataclass
from typing import Any

from ragen_trl.errors import UserError


class ApiOptionError(UserError, ValueError):
    """An option of the client or the policy is missing or cannot be used."""


class ApiError(UserError, RuntimeError):
    """A server gave no usable answer. Carries the server's words, never the key.

    Attributes:
        status: The HTTP status of the last answer; ``None`` if there was none.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ApiAccessError(ApiError):
    """The server will answer no request: wrong address, key or model, or no credit left."""


class ApiRefusedError(ApiError):
    """The server refuses this request (400, 403, 413, 422, …): too long, flagged, an option that it does not know."""


class ApiAnswerError(ApiError):
    """The server answered something that is no chat completion."""


class ApiUnavailableError(ApiError):
    """All attempts were used up, or the server asked to wait too long."""


@dataclass(frozen=True)
class Answer:
    """One reply of a server.

    Attributes:
        text: What the model wrote; ``""`` where it wrote nothing, a refusal included.
        cut: Whether the token limit ended it.
        prompt_tokens: Tokens that were sent, as the server counts them; ``None`` if it does not say.
        completion_tokens: Tokens that were written, thoughts that the server hides included; ``None`` likewise.
        body: The server's JSON, as it came.
    """

    text: str
    cut: bool
    prompt_tokens: int | None
    completion_tokens: int | None
    body: str


def read_answer(body: str) -> Answer:
    """The first choice of a chat completion.

    Args:
        body: JSON, as it came from a server.

    Raises:
        ApiAnswerError: If it has none.
    """
    try:
        content = json.loads(body)
        choice = content["choices"][0]
        text = choice["message"].get("content") or ""  # null where a model refuses or only thought
        if not isinstance(text, str):
            raise TypeError(f"content is a {type(text).__name__}")
        usage = content.get("usage") or {}
        cut = choice.get("finish_reason") == "length"
        text = text.encode("utf-8", "replace").decode("utf-8")  # no halves of characters: nothing could store them
        return Answer(text, cut, _count(usage, "prompt_tokens"), _count(usage, "completion_tokens"), body)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ApiAnswerError(f"no chat completion: {type(error).__name__} {error}") from error


def error_in(body: str) -> dict[str, Any]:
    """The ``error`` object in a body that has no choices, or nothing."""
    try:
        content = json.loads(body)
    except ValueError:
        return {}
    if not isinstance(content, dict) or "choices" in content or not content.get("error"):
        return {}
    error = content["error"]
    return error if isinstance(error, dict) else {"message": str(error)}


def _count(usage: object, name: str) -> int | None:
    """A number of tokens, ``None`` where a server says nothing, or something else."""
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
