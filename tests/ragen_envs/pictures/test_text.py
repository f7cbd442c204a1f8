"""Pictures of text: one size, every letter on the paper, long lines wrapped, long texts cut."""

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ragen_envs import TextEnv
from ragen_envs.pictures.text import CUT, HEIGHT, MARGIN, PAPER, WIDTH, cut, draw_text, wrap
from tests.support.ragen_envs.timing import assert_ratio

LONG = "A machine-washable shirt below forty dollars, with long sleeves, in navy or in black. " * 12


class Page(TextEnv):
    """Shows one more line after each action."""

    @property
    def instruction(self) -> str:
        return "Read."

    @property
    def actions(self) -> tuple[str, ...]:
        return ("more",)

    def _start(self, options: Mapping[str, Any]) -> str:
        self.lines = ["The first line."]
        return self.lines[0]

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        self.lines.append(f"Line {len(self.lines) + 1}. {LONG[:20]}")
        return "\n".join(self.lines), 0.0, False, {"success": False, "action_is_effective": True}


def inked(picture: NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """First and last inked row, first and last inked column."""
    rows, columns = np.nonzero((picture != PAPER).any(axis=2))
    return int(rows.min()), int(rows.max()), int(columns.min()), int(columns.max())


@pytest.mark.parametrize(
    "text", ["", "\n\n", "Numbers: 3, 4\nTarget: 7", LONG, LONG * 20, "x" * 100_000, "\ud800 √ \t日本"]
)
def test_every_picture_has_one_size(text: str) -> None:
    picture = draw_text(text)
    assert (picture.shape, picture.dtype) == ((HEIGHT, WIDTH, 3), np.uint8)
    assert picture.flags.writeable and (picture[:MARGIN] == PAPER).all()


def test_frames_of_an_episode_have_one_size_and_differ() -> None:
    env = Page(render_mode="rgb_array")
    env.reset(seed=0)
    frames = [env.render()]
    for _ in range(25):
        env.step("more")
        frames.append(env.render())
    assert {np.shape(frame) for frame in frames} == {(480, 640, 3)}
    assert all((np.asarray(one) != np.asarray(other)).any() for one, other in zip(frames, frames[1:], strict=False))


def test_letters_are_ink_and_stay_inside_the_margins() -> None:
    assert (draw_text("") == PAPER).all()
    for text in ("|", "Target: 98", LONG, LONG * 20, "W" * 3000, "one\ntwo\n" * 200):
        picture = draw_text(text)
        assert picture.min() < 120  # thin strokes are lighter than the ink
        top, bottom, left, right = inked(picture)
        assert top >= MARGIN and bottom < HEIGHT - MARGIN
        assert left >= MARGIN - 1 and right <= WIDTH - MARGIN + 1


def test_a_letter_changes_pixels_of_its_line_only() -> None:
    one, other = draw_text("Numbers: 3, 4\nTarget: 7"), draw_text("Numbers: 3, 4\nTarget: 8")
    rows = np.nonzero((one != other).any(axis=(1, 2)))[0]
    assert len(rows) > 5
    assert rows.min() > MARGIN + 30  # the first line is set in 30 pixels


def test_type_gets_smaller_until_the_text_fits() -> None:
    def height_of_first_line(text: str) -> int:
        is_inked = (draw_text(text) != PAPER).any(axis=(1, 2))
        first = int(is_inked.argmax())
        return int((~is_inked[first:]).argmax())

    heights = [height_of_first_line("Hq\n" * count) for count in (1, 12, 16, 20, 30, 200)]
    assert heights == sorted(heights, reverse=True)
    assert heights[0] >= 25 and heights[-1] <= 12


def test_what_does_not_fit_is_cut() -> None:
    fits, too_long = draw_text("line\n" * 20), draw_text("line\n" * 400)
    assert (fits != too_long).any()
    assert (draw_text("line\n" * 400 + "end") == too_long).all()  # the end is not shown
    assert (draw_text("line\n" * 19 + "end") != fits).any()


def test_lines_break_between_words_where_they_can() -> None:
    assert wrap("one two three", 7, len, 9) == ["one two", "three"]
    assert wrap("one two three", 8, len, 9) == ["one two", "three"]  # the blank itself fits, and is not shown
    assert wrap("one two three", 3, len, 9) == ["one", "two", "thr", "ee"]
    assert wrap("abcdefgh", 3, len, 9) == ["abc", "def", "gh"]
    assert wrap("  indented line", 10, len, 9) == ["  indented", "line"]
    assert wrap("a\n\nb", 10, len, 9) == ["a", "", "b"]
    assert wrap("", 10, len, 9) == [""]
    assert wrap("abc", 0, len, 9) == ["a", "b", "c"]  # nothing fits: one character a line, not none for ever


def test_no_more_lines_are_made_than_asked_for() -> None:
    assert wrap("a b c d", 1, len, 3) == ["a", "b", "c"]
    assert wrap("a\nb\nc\nd", 5, len, 3) == ["a", "b", "c"]


def test_cutting_leaves_room_for_the_ellipsis() -> None:
    assert cut(["one", "two"], 5, len) == ["one", f"two{CUT}"]
    assert cut(["three"], 5, len) == [f"thre{CUT}"]
    assert cut(["one two"], 5, len) == [f"one{CUT}"]
    assert cut([""], 5, len) == [CUT]


@pytest.mark.parametrize("text", ["x" * 100_000, "word \n" * 20_000, "\u0301" * 100_000, LONG * 100])
def test_long_texts_are_drawn_quickly(text: str) -> None:
    assert_ratio(lambda: draw_text(text), lambda: draw_text(LONG), 10)


def test_pillow_is_imported_only_for_a_picture() -> None:
    program = (
        "import sys, gymnasium, ragen_envs\n"
        "env = gymnasium.make('ragen/Bandit-v0', render_mode='rgb_array'); env.reset(seed=0)\n"
        "before = 'PIL' in sys.modules; env.render(); print(before, 'PIL' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
