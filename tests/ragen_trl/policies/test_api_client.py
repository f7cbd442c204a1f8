"""One request to an OpenAI-compatible server over real HTTP: what is tried again, what is not, and what is said."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ragen_trl.policies.api import ApiClient, ApiError
from tests.support.ragen_trl.openai_server import Fault, OpenAIServer

KEY = "sk-very-secret-0123456789"
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


OPENED: list[ApiClient] = []


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    """Close the clients of a test."""
    yield
    while OPENED:
        OPENED.pop().close()


def opened(*arguments: Any, **options: Any) -> ApiClient:
    OPENED.append(ApiClient(*arguments, **options))
    return OPENED[-1]


def client(server: OpenAIServer, **options: Any) -> ApiClient:
    return opened(server.url, KEY, **{"backoff": 0.001, **options})


def first(*faults: Fault) -> Any:
    """These faults, then answers."""
    return lambda payload, attempt: faults[attempt] if attempt < len(faults) else None


def test_an_answer_its_tokens_and_the_counts() -> None:
    with OpenAIServer(key=KEY) as server:
        asking = client(server)
        answer = asking.complete(ASK)
    assert (answer.text, answer.cut, answer.prompt_tokens, answer.completion_tokens) == ("hello", False, 10, 3)
    assert server.asked == [ASK]
    assert asking.counts["requests"] == 1


def test_what_may_pass_is_tried_again() -> None:
    faults = [Fault(429), Fault(500), Fault(503), Fault(hangs_up=True), Fault(200), Fault(200, "<html>"), Fault(408)]
    with OpenAIServer(fault=first(*faults)) as server:
        asking = client(server, retries=7)
        assert asking.complete(ASK).text == "hello"
    assert (asking.counts["requests"], asking.counts["retries"]) == (8, 7)
    assert len(server.asked) == 8


QUOTA = Fault(429, json.dumps({"error": {"message": "no money", "code": "insufficient_quota"}}))


@pytest.mark.parametrize("fault", [Fault(401, "who?"), QUOTA, Fault(301), Fault(400, "bad seed")])
def test_what_will_not_pass_is_said_at_once(fault: Fault) -> None:
    with OpenAIServer(fault=first(fault)) as server:
        with pytest.raises(ApiError, match=f"{server.url}.*refuses.*leave_out"):
            client(server).complete(ASK)
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [401, 400, 503])
def test_a_server_that_quotes_the_key_does_not_get_it_into_messages(status: int) -> None:
    with OpenAIServer(fault=lambda payload, attempt: Fault(status, f"{'x' * 290} {KEY} is wrong")) as server:
        with pytest.raises(ApiError) as caught:
            client(server, retries=0).complete(ASK)
    shown = f"{caught.value} {caught.value!r} {caught.getrepr(showlocals=False)}"
    assert "***" in shown
    assert not any(KEY[:length] in shown for length in range(8, len(KEY) + 1))
