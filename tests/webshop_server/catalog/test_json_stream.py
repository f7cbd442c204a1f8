"""Reading JSON piece by piece: the same values as reading it whole, and errors that say where."""

import json
from pathlib import Path

import pytest

from webshop_server.catalog import json_stream
from webshop_server.catalog.json_stream import CatalogError, array_elements, json_lines, object_members

VALUES = [
    {"a": "x\\\"]},{", "b": [1, [2, {"c": None}]]},
    "é√ \u2028 “quoted”" * 5,
    -12.5e-3,
    [],
    {},
    True,
    12345678901,
    1e300,
]  # fmt: skip


def written(folder: Path, text: str) -> Path:
    path = folder / "items.json"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("chunk", range(16, 60))
@pytest.mark.parametrize("indent", [None, 3])
def test_pieces_are_the_whole_wherever_the_window_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, indent: int | None
) -> None:
    monkeypatch.setattr(json_stream, "CHUNK", chunk)
    path = written(tmp_path, json.dumps(VALUES, indent=indent, ensure_ascii=False) + " \n")
    assert list(array_elements(path)) == [(f"record {n}", value) for n, value in enumerate(VALUES, start=1)]
    members = {f"key {n}": value for n, value in enumerate(VALUES)}
    path = written(tmp_path, json.dumps(members, indent=indent))
    assert list(object_members(path)) == list(members.items())


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "CHUNK", 16)
    elements = array_elements(written(tmp_path, '[{"a": 1}, {"a": 2}, ' + "]" * 1000))
    assert next(elements) == ("record 1", {"a": 1})
    assert next(elements) == ("record 2", {"a": 2})
    with pytest.raises(CatalogError, match="record 3"):
        next(elements)


def test_empty_ones_have_nothing(tmp_path: Path) -> None:
    assert list(array_elements(written(tmp_path, "\ufeff [ ] "))) == []
    assert list(object_members(written(tmp_path, "{}"))) == []
    assert list(json_lines(written(tmp_path, "\n \n"))) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "record 1: expected one of \\[ but found the end of the file"),
        ('{"a": 1}', "record 1: expected one of \\[ but found '{'"),
        ("[1, 2", "after record 2: expected one of , \\] but found the end of the file"),
        ("[1 2]", "after record 1: expected one of , \\] but found '2'"),
        ('[{"a": 1}, {"a": ]', "record 2: not JSON \\(Expecting value\\)"),
        ('[{"a": "cut', "record 1: not JSON \\(Unterminated string"),
        ("[1,]", "record 2: not JSON \\(Expecting value\\)"),
        ("[1] 2", "the end: expected nothing more but found '2'"),
        ("[" * 100_000, "record 1: nested too deeply"),
        ("[" + "9" * 5000 + "]", "record 1: not a usable number"),
    ],
)
def test_a_damaged_array_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(CatalogError, match=message) as caught:
        list(array_elements(path))
    assert str(path) in str(caught.value)


def test_a_damaged_object_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="member 2: its key 3 is not text"):
        list(object_members(written(tmp_path, '{"a": 1, 3: 4}')))
    with pytest.raises(CatalogError, match="member 1 \\('a'\\): expected one of : but found '1'"):
        list(object_members(written(tmp_path, '{"a" 1}')))


def test_an_error_early_on_does_not_read_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "CHUNK", 64)
    monkeypatch.setattr(json_stream, "MAX_VALUE", 10_000)
    with pytest.raises(CatalogError, match="record 1: not JSON"):
        list(array_elements(written(tmp_path, '[{"a" "b"}' + ", 1" * 1_000_000)))
    with pytest.raises(CatalogError, match="record 1: no end of the value after 10,000 characters"):
        list(array_elements(written(tmp_path, '["' + "x" * 100_000)))


def test_what_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "items.json"
    path.write_bytes('["é"]'.encode("latin-1"))
    with pytest.raises(CatalogError, match="not UTF-8"):
        list(array_elements(path))
    with pytest.raises(CatalogError, match="record 1: not UTF-8"):
        list(json_lines(path))


def test_lines_are_numbered_as_an_editor_does(tmp_path: Path) -> None:
    path = written(tmp_path, '{"a": "\u2028"}\n\n[1]\n{"a": \n')
    lines = json_lines(path)
    assert next(lines) == ("record 1", {"a": "\u2028"})
    assert next(lines) == ("record 3", [1])
    with pytest.raises(CatalogError, match="record 4: not JSON"):
        next(lines)
