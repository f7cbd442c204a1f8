"""What a tool returned, as the text that a model reads: values of Python, and results of the Model Context Protocol."""

import dataclasses
import json
from collections.abc import Awaitable, Iterator, Mapping, Set
from typing import Any


def as_text(result: Any) -> str:
    """A result as text: a string as it is, anything else as JSON.

    What JSON does not know is written as Python's `str` writes it (dates, decimals, paths), arrays and sets as lists.

    Raises:
        TypeError: If the result is still to be computed: a function, or an iterator. It would count as a success.
    """
    return result if isinstance(result, str) else json.dumps(_plain(result), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """The value in types that JSON knows."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        known = (str, int, float, bool, type(None))
        return {key if isinstance(key, known) else str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Set):
        return [_plain(each) for each in sorted(value, key=str)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "tolist"):  # an array or a number of NumPy's
        return _plain(value.tolist())
    if callable(value) or isinstance(value, Iterator | Awaitable):
        raise TypeError(f"the tool returned {value!r:.100}, which is no result yet")
    return str(value)


def cut(text: str, most: int) -> str:
    """The text within a limit, with a note where it is cut. Half of a surrogate pair, which is no character, is "?"."""
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= most:
        return text
    note = f"\n[{len(text)} characters, cut]"
    return text[: most - len(note)] + note


def content_text(result: Any) -> str:
    """The text of a tool's result in any form of the Model Context Protocol; other values as `as_text` writes them.

    Args:
        result: The result as JSON: ``{"content": [...], "structuredContent": ..., ...}``; the names may also be written
            as in Python.
    """
    if not isinstance(result, Mapping) or not ({"content", "structuredContent"} & result.keys()):
        return as_text(result)
    structured = result.get("structuredContent", result.get("structured_content"))
    if not result.get("content") and structured is not None:
        return as_text(structured)
    return "\n".join(map(_block_text, result.get("content") or ()))


def _block_text(block: Mapping[str, Any]) -> str:
    """One block of content; of pictures, sounds and other binary data only what they are."""
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "resource":
        inner = block.get("resource") or {}
        if "text" in inner:
            return f"[resource {inner.get('uri')}]\n{inner['text']}"
        return f"[resource {inner.get('uri')}, {inner.get('mimeType', 'binary')}]"
    if kind == "resource_link":
        about = [str(block[key]) for key in ("title", "name", "description", "mimeType") if block.get(key)]
        return f"[link {block.get('uri')}: {', '.join(about)}]"
    if kind in ("image", "audio"):
        return f"[{kind}, {block.get('mimeType', 'of an unknown type')}]"
    return as_text(block)
