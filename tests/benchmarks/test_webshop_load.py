"""The check of benchmarks/webshop_load.py: visits over HTTP equal the serial run, and a difference is found."""

import threading
from collections.abc import Iterator

import pytest
import webshop_load
from measuring import shoppers
from werkzeug.serving import WSGIRequestHandler, make_server

from webshop_server.server.app import create_app, open_shop
from webshop_server.store.shop import Shop

CATALOG = "synthetic:60"


@pytest.fixture(scope="module")
def shop() -> Shop:
    return open_shop(CATALOG)


class KeepOpen(WSGIRequestHandler):
    """Keeps connections open, as the real server does."""

    protocol_version = "HTTP/1.1"


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    """A server of the same catalogue in a thread."""
    server = make_server("127.0.0.1", 0, create_app(CATALOG), threaded=True, request_handler=KeepOpen)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield "127.0.0.1", server.server_port
    server.shutdown()
    thread.join()


@pytest.mark.parametrize("short", [False, True])
def test_visits_over_http_are_those_of_the_serial_run(
    shop: Shop, address: tuple[str, int], short: bool
) -> None:
    shopper = shoppers.Shopper(address, len(shop.goals), short)
    for number in range(5):
        shopper.visit(number)
    found = webshop_load.compare(shopper.visits, shop, short)
    assert found["as_in_the_serial_run"] == found["purchases"] == 5
    assert (shopper.faults, set(shopper.statuses)) == ({}, {200, 201})
    assert len(shopper.latencies) == sum(len(visit.digests) - 1 for visit in shopper.visits)


def test_anything_of_another_visit_is_found(shop: Shop) -> None:
    visits = [shoppers.serial_visit(shop, number, False) for number in range(4)]
    visits[0].digests[2] = visits[1].digests[2]
    visits[2].goal += 1
    visits[3].reward = -1.0
    found = webshop_load.compare(visits, shop, False)
    assert [found[name] for name in ("same_goal", "same_answers", "same_reward", "as_in_the_serial_run")] == [
        3,
        3,
        3,
        1,
    ]


def test_nobody_at_the_address_is_an_error_in_the_end(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shoppers, "WAITS", (0.0, 0.0))
    shopper = shoppers.Shopper(("127.0.0.1", 1), 10)
    with pytest.raises(ConnectionRefusedError):
        shopper.visit(0)
    assert shopper.faults == {"POST sent again": 2}
