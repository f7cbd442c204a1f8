"""What the tests of the server share: the application with the toy catalogue, and its client."""

import pytest
from flask import Flask
from flask.testing import FlaskClient

from webshop_server import create_app


@pytest.fixture(scope="module")
def app() -> Flask:
    """The toy store; a module that needs another one overrides it."""
    return create_app("toy")


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    """A client of the application of the module."""
    return app.test_client()
