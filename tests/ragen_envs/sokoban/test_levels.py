"""The XSB reader."""

import re
from pathlib import Path

import pytest

from ragen_envs.sokoban.levels import LevelError, read_levels


def read(tmp_path: Path, text: str):
    """The levels of a text."""
    path = tmp_path / "set.xsb"
    path.write_bytes(text.encode())
    return read_levels(path)


def test_symbols_and_surroundings(tmp_path: Path) -> None:
    text = (
        "\ufeff  #####\r\n###   #\r\n#.$@- #\r\n###_*.#\r\n  #$###\r\n  # #\r\n  ###\r\n\r\nAuthor: nobody\r\n"
        "####\r\n#+ #\r\n#$ #\r\n#  #\r\n####"
    )
    first, second = read(tmp_path, text)
    assert (first.board.height, first.board.width) == (7, 7)
    # Row 3 is "###_*.#": a floor, a box on a target, a target.
    assert first.board.targets == {2 * 7 + 1, 3 * 7 + 4, 3 * 7 + 5}
    assert first.boxes == {2 * 7 + 2, 3 * 7 + 4, 4 * 7 + 3}
    assert first.player == 2 * 7 + 3
    assert 0 not in first.board.floor and 5 * 7 + 3 in first.board.floor  # outside is no floor, a nook is
    assert len(first.board.floor) == 3 + 5 + 3 + 1 + 1
    assert (second.player, second.board.targets, second.boxes) == (5, {5}, {9})


def test_what_cannot_be_reached_is_wall(tmp_path: Path) -> None:
    (room,) = read(tmp_path, "#######\n#@$.# #\n#   # #\n#######\n")
    assert {square % 7 for square in room.board.floor} == {1, 2, 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no level in the XSB format"),
        ("hello\n", "has no level in the XSB format"),
        ("\n#####\n#@$.#\n#@  #\n#####", "line 2: 2 players; a level needs one '@' or '+'"),
        ("#####\n# $.#\n#####", "line 1: no players"),
        ("#####\n#@$ #\n#####", "line 1: boxes: 1, targets: 0; there must be equally many"),
        ("#####\n#@* #\n#####", "line 1: nothing to push"),
        ("#####\n#@$.\n#####", "line 1: the level is open at row 2, column 5; close its wall"),
        ("# ###\n#@$.#\n#####", "line 1: the level is open at row 1, column 2"),
        ("########\n#@ #$ .#\n########", "line 1: the player cannot reach row 2, column 5, boxes ignored"),
    ],
)
def test_levels_that_cannot_be_played_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(LevelError, match=re.escape(message)):
        read(tmp_path, text)


def test_a_file_that_is_no_text_has_no_level(tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LevelError, match="binary' has no level"):
        read_levels(path)


@pytest.mark.parametrize("divider", ["#########\n", "\n#########\n"])
def test_old_sets_are_latin_1_with_dividers_and_tabs(tmp_path: Path, divider: str) -> None:
    path = tmp_path / "old.txt"
    text = f"Author: Åsa\n##########\n\n\t#####\n\t#@$.#\n\t#####\n{divider}"
    path.write_bytes(text.encode("latin-1"))
    (room,) = read_levels(path)
    assert (room.board.width, room.player, room.board.targets) == (13, 13 + 9, {13 + 11})
