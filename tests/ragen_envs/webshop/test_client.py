"""The client and its sessions: with a store that fails in every way a connection can, and with a real server."""

import copy
import gc
import pickle
import socket
import weakref
from typing import Any

import pytest

from ragen_envs.webshop import WebShop
from ragen_envs.webshop.client import ShopConnection, ShopRequestError, ShopServerError, server_connection
from ragen_envs.webshop.session import Answer, AvailableActions, ShopSession
from tests.support.ragen_envs.shop_fakes import FakeStore
from tests.support.ragen_envs.shop_http import httpd


def test_a_session_tells_what_the_store_says() -> None:
    session = FakeStore().session()
    assert (session.goal, session.instruction, session.answer.observation) == (7, "buy", "shop 7")
    assert session.step("search[x]").valid
    bought = session.step("buy")
    assert bought == session.answer
    assert bought == Answer(
        observation="shop 7 search[x] buy",
        url="http://shop.test/7",
        reward=0.5,
        done=True,
        valid=True,
        effective=True,
        task_score=0.5,
        success=False,
        available_actions=AvailableActions(True, ("buy",)),
        reward_parts=(("total", 0.5), ("options", (1, 0)), ("mode", "fixed")),
    )
    hash(bought)
    assert session.played == ("search[x]", "buy")


@pytest.mark.parametrize("fault", ["refuse", "lose", "forget", ""])
def test_a_picture_survives_what_an_action_survives(fault: str) -> None:
    store = FakeStore()
    session = store.session()
    session.step("a")
    store.faults[:] = [fault]
    assert session.picture(5) == "shop 7 a, hits=5"
    assert copy.copy(session).picture(1) == "shop 7 a, hits=1"
    assert session.step("b").observation == "shop 7 a b"


def test_invalid_actions_are_not_played_again() -> None:
    store = FakeStore()
    session = store.session()
    assert not session.step("bad").valid
    assert session.played == ()


def test_faults_before_a_request_arrives_are_tried_again_with_growing_waits() -> None:
    store = FakeStore("refuse", "busy")
    session = store.session()
    assert store.waits == [0.1, 0.2]
    assert list(store.sessions) == ["t1"]
    store.faults[:] = ["refuse"]
    assert session.step("a").observation == "shop 7 a"


def test_an_action_whose_answer_was_lost_is_not_carried_out_twice() -> None:
    """It is unknown whether it was carried out: a new session plays the same actions, this one once."""
    store = FakeStore()
    session = store.session()
    session.step("a")
    store.faults[:] = ["lose"]
    assert session.step("b").observation == "shop 7 a b"
    assert store.sessions["t1"] == (7, ["a", "b"])  # it was carried out there, and is left to itself
    assert store.sessions["t2"] == (7, ["a", "b"])
    assert session.step("c").observation == "shop 7 a b c"


def test_faults_while_playing_again_start_another_session() -> None:
    store = FakeStore()
    session = store.session()
    session.step("a")
    store.faults[:] = ["lose", "", "lose", "refuse"]
    assert session.step("b").observation == "shop 7 a b"
    assert store.waits == [0.1, 0.2, 0.4]
    assert store.requests[-3:] == ["POST /api/sessions", "POST /api/sessions/t3/step", "POST /api/sessions/t3/step"]


def test_a_forgotten_session_is_played_again_at_once() -> None:
    store = FakeStore()
    session = store.session()
    session.step("a")
    store.sessions.clear()
    assert session.step("b").observation == "shop 7 a b"
    assert store.waits == []


def test_a_store_that_changed_in_the_middle_is_an_error() -> None:
    store = FakeStore()
    session = store.session()
    session.step("a")
    store.sessions.clear()
    store.wares = "other"
    for _ in range(2):
        with pytest.raises(ShopServerError, match=r"http://shop.test shows another page.*reset"):
            session.step("b")


def test_a_store_that_is_gone_is_an_error_with_address_and_remedy() -> None:
    store = FakeStore(*["refuse"] * 9)
    expected = r"http://shop.test does not answer \(ConnectError: refused; 4 attempts in 0.7 s\); start it"
    with pytest.raises(ShopServerError, match=expected):
        store.session()
    assert store.waits == [0.1, 0.2, 0.4]


def test_refusals_are_not_tried_again() -> None:
    store = FakeStore()
    with pytest.raises(ShopRequestError, match=r"POST http://shop.test/api/sessions: status 404: there is no goal 12"):
        store.session(goal=12)
    session = store.session()
    with pytest.raises(ShopRequestError, match="write less") as refusal:
        session.step("too long")
    assert (refusal.value.status, refusal.value.code) == (400, "too_long")
    assert store.waits == []
    assert session.step("a").observation == "shop 7 a"


def test_refusals_come_through_a_pipe_whole() -> None:
    error = pickle.loads(pickle.dumps(ShopRequestError("no", 404, "unknown_goal")))
    assert (str(error), error.status, error.code) == ("no", 404, "unknown_goal")


def test_an_answer_that_is_no_stores_is_an_error() -> None:
    for body in ({}, {"observation": "x", "url": "", "available_actions": ["buy"]}):
        with pytest.raises(ShopServerError, match="is it a webshop-server"):
            Answer.read(body)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copies_open_sessions_of_their_own_when_they_are_used(duplicate: Any) -> None:
    with httpd() as url:
        session = ShopSession(server_connection(url), {"goal": 3, "mode": "text"})
        first = session.step("search[shoe]")
        twin = duplicate(session)
        assert twin.answer == first
        other, product = first.available_actions.clickables[-2:]
        opened = twin.step(f"click[{product}]")
        assert session.answer == first
        # Its own results are still there to be clicked; on the twin's page they would not be.
        own = session.step(f"click[{other}]")
        assert own.valid and other.upper() in own.url
        assert twin.step("click[< prev]").observation == first.observation
        assert session.step("search[shoe]").observation == first.observation
        assert session.step(f"click[{product}]") == opened


def test_closing_forgets_the_session_and_never_fails() -> None:
    store = FakeStore()
    session = store.session()
    session.close()
    assert store.sessions == {}
    session.close()
    store.faults[:] = ["refuse"]
    other = FakeStore("", "refuse")
    other.session().close()
    assert other.waits == []


def test_a_connection_that_is_dropped_is_closed() -> None:
    """Copies of environments are dropped without close(); the socket used to stay open until the process ended."""
    connection = FakeStore().connection()
    connection.send("POST", "/api/sessions", {})
    client = connection._client()
    assert not client.is_closed
    del connection
    gc.collect()
    assert client.is_closed


def test_a_connection_that_is_closed_is_not_remembered() -> None:
    connection = FakeStore().connection()
    client = weakref.ref(connection._client())
    connection.close()
    gc.collect()
    assert client() is None
    connection.send("POST", "/api/sessions", {})


def test_a_proxy_is_not_asked_for_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """With HTTP_PROXY set, a server on 127.0.0.1 "did not answer"."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with httpd() as url:
        env = WebShop(base_url=url)
        assert "Search" in env.reset(seed=0)[0]
        env.close()
    for host in ("127.0.0.1:3000", "127.8.8.8", "localhost:3000", "shop.localhost", "[::1]:3000"):
        assert not server_connection(f"http://{host}")._client().trust_env
    for host in ("shop.test", "10.0.0.1:3000", "localhost.test"):
        assert server_connection(f"http://{host}")._client().trust_env


def test_proxies_are_named_where_they_may_be_why_nobody_answers() -> None:
    def remedy(url: str) -> str:
        connection = server_connection(url)
        lost = ShopConnection(connection.address, FakeStore("refuse")._client, connection._remedy, waits=())
        with pytest.raises(ShopServerError) as error:
            ShopSession(lost, {})
        return str(error.value)

    assert "HTTP_PROXY" in remedy("http://shop.test") and "NO_PROXY" in remedy("http://shop.test")
    assert "PROXY" not in remedy("http://127.0.0.1:3000")


@pytest.mark.parametrize("url", ["localhost:3000", "ftp://x", "http://", "http://a b", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="write 'http://127.0.0.1:3000'"):
        server_connection(url)


def play(env: WebShop) -> list[Any]:
    """What an episode returns."""
    seen: list[Any] = [env.reset(seed=4)]
    for action in ("search[shoe]", "no action", "click[next >]", "search[blue clothing]"):
        seen.append(env.step(action))
    seen.append(env.step(f"click[{seen[-1][-1]['available_actions'].clickables[-1]}]"))
    seen.append(env.step("click[buy now]"))
    return seen


def test_over_http_everything_is_as_in_the_process() -> None:
    with httpd() as url:
        env = WebShop(base_url=url)
        assert play(env) == play(WebShop(catalog="toy"))
        env.close()


def test_a_server_that_starts_anew_is_played_on() -> None:
    with httpd() as url:
        env = WebShop(base_url=url)
        env.reset(options={"goal": 5})
        before = env.step("search[shoe]")
        port = int(url.rpartition(":")[2])
    with httpd(port):
        after = env.step("click[next >]")
        assert after[-1]["action_is_valid"] and after[0] != before[0]
        twin = WebShop(catalog="toy")
        twin.reset(options={"goal": 5})
        twin.step("search[shoe]")
        assert twin.step("click[next >]") == after


def test_a_server_that_is_gone_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    connection = server_connection(f"http://127.0.0.1:{port}")
    impatient = ShopConnection(connection.address, connection._connect, connection._remedy, waits=())
    with pytest.raises(ShopServerError, match=rf"127.0.0.1:{port} does not answer.*webshop-server.*leave base_url out"):
        ShopSession(impatient, {})
