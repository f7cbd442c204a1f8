"""What the tests of the trainers share."""

from collections.abc import Iterator
from threading import Event

import pytest


@pytest.fixture
def gate() -> Iterator[Event]:
    """Holds calls back until the test is over, so that no thread outlives it."""
    event = Event()
    yield event
    event.set()
