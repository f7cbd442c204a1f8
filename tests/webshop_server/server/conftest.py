"""What the tests of the server share: the application with the toy catalogue, and its client."""

from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient

from webshop_server import create_app


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Flask:
    """The toy store; a module that needs another one overrides it."""
    return create_app("toy", sessions=tmp_path_factory.mktemp("sessions") / "toy.sqlite")


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    """A client of the application of the module."""
    return app.test_client()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file for sessions."""
    return tmp_path / "sessions.sqlite"
