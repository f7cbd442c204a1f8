"""What works without the packages of bridges and worlds, and what is said where one is missing."""

import importlib.metadata
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import pytest

from ragen_envs import OpenEnvText, Tau2, openenv_environment

NEEDS: list[tuple[str, str, Callable[[], Any]]] = [
    ("openenv.core", "openenv", lambda: OpenEnvText("http://127.0.0.1:9")),
    ("openenv.core", "openenv", lambda: openenv_environment("ragen/Bandit-v0")),
    ("tau2.gym.gym_agent", "tau2", lambda: Tau2("mock", user="gpt-4.1")),
]


@pytest.mark.parametrize(("module", "extra", "make"), NEEDS)
def test_a_missing_package_is_named(
    module: str, extra: str, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (module.split(".")[0], module):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"is not installed; pip install 'ragen-trl\[{extra}\]'"):
        make()


def _gone(name: str) -> str:
    raise importlib.metadata.PackageNotFoundError(name)


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragen_envs.textworld.games.version", _gone)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'ragen-trl\[textworld\]'"):
        gymnasium.make("ragen/TextWorld-v0")
