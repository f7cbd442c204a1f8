"""One request to an OpenAI-compatible server over real HTTP: what is tried again, what is not, and what is said."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ragen_trl.errors import OptionError
from ragen_trl.policies.api.answer import (
    ApiAccessError,
    ApiAnswerError,
    ApiRefusedError,
    ApiUnavailableError,
    read_answer,
)
from ragen_trl.policies.api.client import ApiClient
from ragen_trl.policies.api.counts import ApiCounts, Prices
from tests.support.ragen_trl.openai_server import Fault, OpenAIServer, completion

KEY = "sk-very-secret-0123456789"
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


class Clock(threading.Event):
    """Notes how long is waited, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        return False


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


def test_an_answer_and_its_tokens() -> None:
    with OpenAIServer(key=KEY) as server:
        asking = client(server, prices=Prices(2.0, 50.0))
        answer = asking.complete(ASK)
        asking.counts.answered(answer)
    assert (answer.text, answer.cut, answer.prompt_tokens, answer.completion_tokens) == ("hello", False, 10, 3)
    assert server.asked == [ASK]
    assert asking.counts.cost == pytest.approx((10 * 2 + 3 * 50) / 1e6)
    line = "1 requests (0 again, 0 given up), 1 answers with 10 + 3 tokens, cost 0.00017"
    assert asking.counts.in_words() == line


def test_counts_by_hand() -> None:
    counts = ApiCounts(Prices(1.0, 2.0))
    whole, unmetered = read_answer(completion("a", usage=(100, 10))), read_answer(completion("b", usage=None))
    for again in (False, True, True):
        counts.sent(again)
    counts.failed()
    counts.answered(whole)
    counts.answered(unmetered)
    counts.found(whole)
    assert counts.as_dict() == {
        **{"requests": 3, "retries": 2, "failures": 1, "answers": 2, "without_usage": 1},
        **{"prompt_tokens": 100, "completion_tokens": 10, "stored_answers": 1, "stored_prompt_tokens": 100},
        **{"stored_completion_tokens": 10, "prices": {"prompt": 1.0, "completion": 2.0}},
        **{"cost": pytest.approx(1.2e-4), "stored_cost": pytest.approx(1.2e-4)},
    }
    assert counts.in_words() == (
        "3 requests (2 again, 1 given up), 2 answers with 100 + 10 tokens (1 without a count), cost 0.00012; "
        "1 answers from the cache with 100 + 10 tokens, cost 0.00012 then"
    )
    assert "cost" not in ApiCounts().as_dict()


def test_what_may_pass_is_tried_again() -> None:
    faults = [Fault(429), Fault(500), Fault(503), Fault(hangs_up=True), Fault(200), Fault(408)]
    with OpenAIServer(fault=first(*faults)) as server:
        asking = client(server, retries=6)
        assert asking.complete(ASK).text == "hello"
    assert (asking.counts.requests, asking.counts.retries) == (7, 6)
    assert len(server.asked) == 7


def test_a_silent_server_runs_into_the_timeout_and_is_asked_again() -> None:
    with OpenAIServer(fault=first(Fault(silent_for=5.0))) as server:
        asking = client(server, timeout=0.2)
        assert asking.complete(ASK).text == "hello"
    assert asking.counts.retries == 1
    assert server.times[1] - server.times[0] < 4.0


def test_waits_double_with_jitter_up_to_the_longest() -> None:
    with OpenAIServer(fault=first(*[Fault(500)] * 5)) as server:
        clock = Clock()
        client(server, backoff=2.0, max_wait=10.0, retries=5).complete(ASK, clock)
    for waited, whole in zip(clock.waits, (2, 4, 8, 10, 10), strict=True):
        assert whole / 2 <= waited <= whole
    assert any(waited != whole for waited, whole in zip(clock.waits, (2, 4, 8, 10, 10), strict=True))


def test_the_server_says_how_long_to_wait() -> None:
    with OpenAIServer(fault=first(Fault(429, headers={"Retry-After": "0.4"}), Fault(429))) as server:
        assert client(server).complete(ASK).text == "hello"
    assert server.times[1] - server.times[0] >= 0.4
    assert server.times[2] - server.times[1] < 0.4


@pytest.mark.parametrize("later", ["3600", "Wed, 01 Jan 2200 00:00:00 GMT"])
def test_who_asks_to_wait_too_long_is_not_asked_again(later: str) -> None:
    with OpenAIServer(fault=first(Fault(429, headers={"Retry-After": later}))) as server:
        with pytest.raises(ApiUnavailableError, match="asks to wait"):
            client(server).complete(ASK, Clock())
    assert len(server.asked) == 1


@pytest.mark.parametrize("header", ["soon", "", "-5", "Wed, 01 Jan 2020 00:00:00 GMT"])
def test_an_unreadable_or_past_time_is_no_wait(header: str) -> None:
    with OpenAIServer(fault=first(Fault(503, headers={"Retry-After": header}))) as server:
        clock = Clock()
        client(server, backoff=0.5).complete(ASK, clock)
    assert 0.25 <= clock.waits[0] <= 0.5


def test_attempts_are_used_up() -> None:
    with OpenAIServer(fault=lambda payload, attempt: Fault(503, "warming\n   up")) as server:
        asking = client(server, retries=2)
        words = "no answer in 3 attempts, at last HTTP 503: warming up;"
        with pytest.raises(ApiUnavailableError, match=words) as caught:
            asking.complete(ASK)
    assert caught.value.status == 503
    assert (len(server.asked), asking.counts.retries) == (3, 2)


def test_a_server_that_is_not_there() -> None:
    with OpenAIServer() as server:
        url = server.url
    with pytest.raises(ApiUnavailableError, match=r"2 attempts, at last ConnectError \(.+\); check whether") as caught:
        opened(url, KEY, retries=1, backoff=0.001).complete(ASK)
    assert caught.value.status is None


def test_once_stopped_nothing_is_asked_or_repeated() -> None:
    stop = threading.Event()
    with OpenAIServer(fault=lambda payload, attempt: stop.set() or Fault(500)) as server:  # type: ignore[func-returns-value]
        for words in ("gave no answer in 1 attempts", "was not asked"):
            with pytest.raises(ApiUnavailableError, match=words):
                client(server, backoff=30.0).complete(ASK, stop)
    assert len(server.asked) == 1


QUOTA = Fault(429, json.dumps({"error": {"message": "no money", "code": "insufficient_quota"}}))


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (Fault(401, "who?"), ApiAccessError, "HTTP 401: who?); set OPENAI_API_KEY"),
        (Fault(402, "pay"), ApiAccessError, "HTTP 402: pay); the account is out of credit"),
        (Fault(404, "no m"), ApiAccessError, "HTTP 404: no m); check the base URL"),
        (QUOTA, ApiAccessError, "no money"),
        (Fault(301, headers={"Location": "https://new/v1"}), ApiAccessError, "moved to 'https://new/v1'"),
        (Fault(400, "bad seed"), ApiRefusedError, "HTTP 400: bad seed); if the server does not know an option"),
        (Fault(403, "flagged"), ApiRefusedError, "HTTP 403: flagged); the key does not allow this"),
        (Fault(413, "long"), ApiRefusedError, "HTTP 413: long)"),
        (Fault(422, "odd"), ApiRefusedError, "HTTP 422: odd)"),
        (Fault(200, "<html>welcome</html>"), ApiAnswerError, "not a chat completion (<html>welcome</html>)"),
        (Fault(200, '{"choices": []}'), ApiAnswerError, "check its URL"),
    ],
)
def test_what_will_not_pass_is_said_at_once(fault: Fault, kind: type[Exception], words: str) -> None:
    with OpenAIServer(fault=first(fault)) as server:
        with pytest.raises(kind) as caught:
            client(server).complete(ASK)
    assert words in str(caught.value)
    assert server.url in str(caught.value)
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [401, 400, 503])
def test_a_server_that_quotes_the_key_does_not_get_it_into_messages(status: int) -> None:
    with OpenAIServer(fault=lambda payload, attempt: Fault(status, f"{'x' * 290} {KEY} is wrong")) as server:
        with pytest.raises((ApiAccessError, ApiRefusedError, ApiUnavailableError)) as caught:
            client(server, retries=0).complete(ASK)
    shown = f"{caught.value} {caught.value!r} {caught.getrepr(showlocals=False)}"
    assert "***" in shown
    assert not any(KEY[:length] in shown for length in range(8, len(KEY) + 1))


@pytest.mark.parametrize("key", ["two words", "line\nbreak-0123456789", "schlüssel"])
def test_a_key_that_is_no_header_is_refused_without_being_shown(key: str) -> None:
    """The HTTP library would quote it."""
    with pytest.raises(OptionError) as caught:
        ApiClient("http://localhost/v1", key)
    assert key not in str(caught.value)
    assert "OPENAI_API_KEY" in str(caught.value)


def test_address_and_key_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer(key=KEY) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url + "/")
        monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
        assert opened().complete(ASK).text == "hello"
        monkeypatch.delenv("OPENAI_API_KEY")
        with pytest.raises(ApiAccessError, match="set OPENAI_API_KEY"):
            opened().complete(ASK)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "set OPENAI_BASE_URL"),
        ("localhost:8000/v1", "not an http address"),
        ("https://me:hidden-word@host/v1", "password"),
        ("https://host/v1?key=hidden-word", "query"),
        ("http://[::1/v1", "not a URL"),
    ],
)
def test_addresses_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, url: str, words: str) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(OptionError, match=words) as caught:
        ApiClient(url, KEY)
    assert "hidden-word" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [{"concurrency": 0}, {"retries": -1}, {"timeout": 0.0}, {"max_wait": 0.0}, {"backoff": -1.0}],
)
def test_options_out_of_range_are_named(options: dict[str, Any]) -> None:
    (value,) = options.values()
    with pytest.raises(OptionError, match=f"{value}"):
        ApiClient("http://localhost/v1", KEY, **options)
    with pytest.raises(OptionError, match="negative"):
        ApiClient("http://localhost/v1", KEY, prices=Prices(-1.0, 0.0))


def test_answers_without_text_are_empty_and_halves_of_characters_are_replaced() -> None:
    assert read_answer(completion(None)).text == ""
    assert read_answer(completion("so \ud83d")).text == "so ?"
    assert read_answer(completion("long", cut=True)).cut
    for body in ("", "[]", "null", '{"choices": [{}]}', '{"choices": [{"message": {"content": 3}}]}'):
        with pytest.raises(ApiAnswerError):
            read_answer(body)
