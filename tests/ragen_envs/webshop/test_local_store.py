"""The store in this process: made once."""

from typing import Any

import pytest

from ragen_envs.webshop.local_store import LocalStore, StoreSettings
from webshop_server.server import app


def test_app_and_shop_are_one_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goals and index were made twice, once for each."""
    make, made = app.make_goals, []

    def counted(*args: Any, **kwargs: Any) -> Any:
        made.append(args)
        return make(*args, **kwargs)

    monkeypatch.setattr(app, "make_goals", counted)
    store = LocalStore(StoreSettings("toy", True, None))
    assert store.app() is store.app() and store.shop() is store.shop()
    assert len(made) == 1
