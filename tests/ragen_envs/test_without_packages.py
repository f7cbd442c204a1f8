"""What is said where the package of a bridge or world is missing."""

import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

import gymnasium
import pytest

from ragen_envs import OpenEnvText, Tau2, openenv_environment


def gone(name: str) -> str:
    raise metadata.PackageNotFoundError(name)


@pytest.mark.parametrize(
    ("extra", "make"),
    [
        ("openenv", lambda: OpenEnvText("http://127.0.0.1:9")),
        ("openenv", lambda: openenv_environment("ragen/Bandit-v0")),
        ("tau2", lambda: Tau2("mock", user="gpt-4.1")),
        ("textworld", lambda: gymnasium.make("ragen/TextWorld-v0")),
    ],
)
def test_a_missing_package_is_named(extra: str, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("openenv", "openenv.core", "tau2", "tau2.gym.gym_agent"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("ragen_envs.textworld.games.version", gone)
    with pytest.raises(ImportError, match=rf"pip install 'ragen-trl\[{extra}\]'"):
        make()
