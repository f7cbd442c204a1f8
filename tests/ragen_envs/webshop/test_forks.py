"""Forked processes: sessions, connections and stores are not shared between parent and child."""

import multiprocessing
from collections.abc import Callable
from typing import Any

from ragen_envs.webshop import WebShop
from ragen_envs.webshop.local_store import StoreSettings, local_store
from tests.support.ragen_envs.shop_fakes import FakeStore
from tests.support.ragen_envs.shop_http import httpd


def forked(work: Callable[[], Any]) -> Any:
    """What `work` returns in a child of this process."""
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=lambda: there.send(work()))
    child.start()
    assert here.poll(60)
    child.join()
    return here.recv()


def test_a_child_plays_in_a_session_of_its_own_and_leaves_the_parents_alone() -> None:
    """It used to step the parent's session, and to delete it on closing."""
    store = FakeStore()
    session = store.session()
    session.step("a")
    store.requests.clear()

    def child() -> tuple[str, list[str]]:
        shown = session.step("b").observation
        session.close()
        return shown, store.requests

    shown, requests = forked(child)
    assert shown == "shop 7 a b"
    assert requests == [
        "POST /api/sessions",
        "POST /api/sessions/t2/step",
        "POST /api/sessions/t2/step",
        "DELETE /api/sessions/t2",
    ]
    assert session.step("c").observation == "shop 7 a c"
    assert store.requests == ["POST /api/sessions/t1/step"]


def test_a_child_that_closes_at_once_does_not_delete_the_parents_session() -> None:
    store = FakeStore()
    session = store.session()
    store.requests.clear()

    def child() -> list[str]:
        session.close()
        return store.requests

    assert forked(child) == []
    assert session.step("a").valid and store.requests == ["POST /api/sessions/t1/step"]


def test_a_purchase_in_a_child_is_not_the_parents() -> None:
    """Over HTTP the parent's next step was refused with 409."""
    with httpd() as url:
        env = WebShop(base_url=url)
        env.reset(options={"goal": 0})
        env.step("search[shoe]")

        def child() -> tuple[bool, ...]:
            asin = env.step("search[clothing]")[-1]["available_actions"].clickables[-1]
            env.step(f"click[{asin}]")
            bought = env.step("click[buy now]")[2]
            env.close()
            return (bought,)

        assert forked(child) == (True,)
        twin = WebShop(catalog="toy")
        twin.reset(options={"goal": 0})
        twin.step("search[shoe]")
        assert env.step("click[next >]") == twin.step("click[next >]")
        env.close()


def test_a_child_opens_a_connection_of_its_own() -> None:
    connection = FakeStore().connection()
    opened = connection._client()
    assert connection._client() is opened

    def child() -> tuple[bool, bool]:
        own = connection._client() is not opened
        connection.close()
        return own, opened.is_closed

    def child_that_closes_at_once() -> bool:
        connection.close()
        return opened.is_closed

    assert forked(child) == (True, False)
    assert forked(child_that_closes_at_once) is False
    assert connection._client() is opened and not opened.is_closed


def test_a_child_makes_a_store_of_its_own() -> None:
    settings = StoreSettings("toy", False, None)
    store, app = local_store(settings), local_store(settings).app()
    assert forked(lambda: (local_store(settings) is store, local_store(settings).app() is app)) == (False, False)
    assert local_store(settings).app() is app


def test_every_store_of_a_process_is_kept() -> None:
    """The ninth store used to replace the first, whose sessions were lost."""
    stores = [local_store(StoreSettings(f"synthetic:{number}", False, None)) for number in range(12)]
    assert [local_store(StoreSettings(f"synthetic:{number}", False, None)) for number in range(12)] == stores
