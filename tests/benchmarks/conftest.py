"""What the tests of benchmarks share."""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def load(root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a script; they stand beside each other and in no package."""
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    return importlib.import_module
