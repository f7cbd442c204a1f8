"""Visits of the classic pages: which goal a name gets, and what happens where several are at it."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from webshop_server import create_app
from webshop_server.catalog import MemoryCatalog
from webshop_server.catalog.product import Product
from webshop_server.server.session_log import SessionLog
from webshop_server.server.sessions import Sessions

SHIRT = Product(
    asin="B000SHIRT1",
    title="Linen Shirt",
    category="fashion",
    query="shirts",
    product_category="Clothing",
    description="Soft.",
    options={"color": ("red", "blue"), "size": ("small", "large")},
    instruction="Find me a linen shirt",
    instruction_attributes=("linen",),
)


def test_a_session_that_goes_while_it_buys_is_over_and_no_fault_of_the_server() -> None:
    """Between the look at a session and its purchase others may push it out: this was an answer with 500."""

    class Forgetful(Sessions[Any]):
        def update(self, key: str, change: Callable[[Any], tuple[Any, Any]]) -> Any:
            self.remove(key)
            return super().update(key, change)

    client = create_app(MemoryCatalog("sample", [SHIRT], seed=0), sessions=Forgetful()).test_client()
    client.get("/pushed")
    response = client.get(f"/done/pushed/{SHIRT.asin}/{{}}")
    assert (response.status_code, "Session gone" in response.get_data(as_text=True)) == (410, True)


def test_of_many_visits_at_once_one_begins_the_session() -> None:
    """A late start page, which had looked before another one began, opened a session again that had bought."""

    class Slow(Sessions[Any]):
        def get(self, key: str) -> Any:
            try:
                return super().get(key)
            finally:
                time.sleep(0.02)

    app = create_app(MemoryCatalog("sample", [SHIRT], seed=0), sessions=Slow())
    threads = [threading.Thread(target=lambda: app.test_client().get("/new")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "webshop_sessions_created_total 1\n" in app.test_client().get("/metrics").get_data(as_text=True)


def test_the_goal_of_a_name_depends_on_the_catalogue(tmp_path: Path) -> None:
    """Else a name known from one catalogue would tell the goal in another."""

    def goals(product: Product) -> list[int]:
        folder = tmp_path / product.description
        client = create_app(MemoryCatalog("sample", [product], seed=0), log=folder).test_client()
        names = [f"name{number}" for number in range(12)]
        for name in names:
            assert client.get(f"/{name}").status_code == 200
        return [json.loads(SessionLog(folder).path(name).read_text(encoding="utf-8"))["goal"] for name in names]

    assert goals(SHIRT) != goals(replace(SHIRT, description="Softer."))
