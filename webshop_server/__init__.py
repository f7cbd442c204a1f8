"""A store to shop in, by hand or by program: the public WebShop benchmark's pages without its Java.

    from webshop_server import create_app
    app = create_app("toy")             # a WSGI application; `webshop-server --catalog toy` serves it

`create_app` loads Flask when it is first used, so that a catalogue, an index or a shop can be opened without Flask.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from webshop_server.server.app import create_app

__all__ = ["create_app"]


def __getattr__(name: str) -> Any:
    if name == "create_app":
        from webshop_server.server.app import create_app

        return create_app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
