"""Every bridge names the extra that its package comes with. Nothing of it needs the package."""

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from ragen_envs import (
    GemText,
    OpenEnvText,
    OpenEnvTools,
    Tau2,
    VerifiersText,
    VerifiersTools,
    openenv_environment,
    verifiers_environment,
)

NEEDS: list[tuple[str, str, Callable[[], Any]]] = [
    ("openenv.core", "openenv", lambda: OpenEnvText("http://127.0.0.1:9")),
    ("openenv.core", "openenv", lambda: OpenEnvTools("http://127.0.0.1:9")),
    ("openenv.core", "openenv", lambda: openenv_environment("ragen/Bandit-v0")),
    ("gem", "gem", lambda: GemText("game:GuessTheNumber-v0-easy")),
    ("tau2.gym.gym_agent", "tau2", lambda: Tau2("mock", user="gpt-4.1")),
    ("verifiers", "verifiers", lambda: VerifiersText("wordle")),
    ("verifiers", "verifiers", lambda: VerifiersTools("wordle")),
    ("verifiers", "verifiers", lambda: verifiers_environment("ragen/Bandit-v0", seeds=[0])),
]


@pytest.mark.parametrize(("module", "extra", "make"), NEEDS)
def test_a_missing_package_is_named(
    module: str, extra: str, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (module.split(".")[0], module):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"is not installed; pip install 'ragen-trl\[{extra}\]'"):
        make()


def test_a_version_of_verifiers_without_environments_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    later = types.ModuleType("verifiers")
    later.__version__ = "0.4.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "verifiers", later)
    with pytest.raises(
        ImportError, match=r"verifiers 0\.4\.0 has no MultiTurnEnv; pip install 'ragen-trl\[verifiers\]'"
    ):
        VerifiersText("wordle")
