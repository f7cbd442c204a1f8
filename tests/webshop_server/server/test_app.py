"""What is common to all answers of the application."""

import pytest
from flask.testing import FlaskClient

from webshop_server import create_app
from webshop_server.catalog import MemoryCatalog
from webshop_server.catalog.product import Product

SHIRT = Product(
    asin="B000SHIRT1",
    title="Linen Shirt",
    category="fashion",
    query="shirts",
    product_category="Clothing",
    instruction="Find me a linen shirt",
    instruction_attributes=("linen",),
)


@pytest.fixture(scope="module")
def client() -> FlaskClient:
    return create_app(MemoryCatalog("sample", [SHIRT], seed=0)).test_client()


def test_every_answer_is_guarded(client: FlaskClient) -> None:
    for path in ("/fixed_0", "/api/store", "/nothing/here", "/static/store.css", "/picture/B000SHIRT1.svg"):
        headers = client.get(path).headers
        assert headers["Content-Security-Policy"].startswith("default-src 'self';")
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert client.get("/robots.txt").get_data(as_text=True) == "User-agent: *\nDisallow: /\n"
    assert client.get("/favicon.ico").mimetype == "image/svg+xml"


def test_two_slashes_stay_two(client: FlaskClient) -> None:
    """Werkzeug would move "//" to "/", and a search for "//" would become another one."""
    client.get("/two")
    assert client.get("/done//two/B0/{}").status_code == 404


def test_pages_are_not_kept_by_browsers(client: FlaskClient) -> None:
    for path in ("/fixed_0", "/nothing/here"):
        assert client.get(path).headers["Cache-Control"] == "no-store"
