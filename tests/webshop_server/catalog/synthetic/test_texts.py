"""How the synthetic shop writes: titles and their nouns, and requests."""

from dataclasses import replace

import pytest

from webshop_server.catalog.synthetic.draws import Draws
from webshop_server.catalog.synthetic.texts import (
    TITLES,
    Design,
    and_list,
    heading,
    marked_nouns,
    write_bullets,
    write_request,
    write_title,
)
from webshop_server.catalog.synthetic.vocabulary import Axis, Kind, Trait

SOFT = Trait("super soft", ("Super soft.",), "")
FREE = Trait("bpa free", ("BPA free.",), "")
OIL = Trait("*argan *oil", ("Argan oil.",), "with")
SALT = Trait("sea *salt", ("Sea salt.",), "with")
ROOM = Trait("*living *room", ("Living room.",), "for the")
KIND = Kind("bath mats", "Home › Bath", ("Bath *Mat",), (5, 9), ("wet feet", "dogs", "two"), (("super soft",),),
            (Axis("color", ("red",)),), (("Pile", ("4 mm",)),), ("Nice.",))  # fmt: skip
DESIGN = Design(KIND, "Belmere", "Drift", "Bath *Mat", (SOFT, OIL), (FREE,), (), ("Pile: 4 mm",), "", 0)


@pytest.mark.parametrize(
    ("voice", "title", "nouns"),
    [
        (0, "Belmere Drift Super Soft Bath Mat with Argan Oil", ("belmere", "drift", "mat", "argan", "oil")),
        (1, "Belmere Super Soft Bath Mat with Argan Oil, Drift Collection",
         ("belmere", "mat", "argan", "oil", "drift", "collection")),
        (2, "Super Soft Bath Mat with Argan Oil by Belmere, Drift", ("mat", "argan", "oil", "belmere", "drift")),
        (3, "Belmere Drift Bath Mat with Argan Oil, Super Soft", ("belmere", "drift", "mat", "argan", "oil")),
        (4, "Super Soft Belmere Bath Mat Drift with Argan Oil", ("belmere", "mat", "drift", "argan", "oil")),
    ],
)  # fmt: skip
def test_titles_know_their_nouns(voice: int, title: str, nouns: tuple[str, ...]) -> None:
    marked = write_title(replace(DESIGN, voice=voice))
    assert marked.replace("*", "") == title
    assert marked_nouns(marked) == nouns


@pytest.mark.parametrize("voice", range(len(TITLES)))
def test_a_title_without_properties_has_no_gaps(voice: int) -> None:
    title = write_title(replace(DESIGN, titled=(), variant="pack of 2", voice=voice)).replace("*", "")
    assert title.endswith(", Pack of 2")
    assert "  " not in title
    assert ",," not in title
    assert " ," not in title


def test_small_words_and_short_forms_keep_their_case() -> None:
    assert heading("usb c to *hdmi, 5 x 8 ft for the *gym") == "USB C to *Hdmi, 5 x 8 Ft for the *Gym"


def test_parts_are_joined_as_one_says_them() -> None:
    assert [and_list(list("abc")[:count]) for count in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_a_request_names_what_is_wanted_and_stays_open() -> None:
    said = {write_request(DESIGN, (SOFT, OIL, FREE, SALT, ROOM), Draws(str(n))) for n in range(300)}
    what = "super soft, bpa free bath mats for the living room with argan oil and sea salt"
    assert {text.removesuffix(what) for text in said} == {
        "Find me ", "I am looking for ", "I need ", "Please find ", "Can you find me ", "Show me ", "I want to buy ",
        "Looking for ", "I would like ",
    }  # fmt: skip
    open_ones = {write_request(DESIGN, (SOFT,), Draws(str(n))) for n in range(300)}
    assert "For wet feet, I need super soft bath mats" in open_ones
    assert len(open_ones) == 9 + 2 * 3


@pytest.mark.parametrize(
    ("voice", "texts"),
    [
        (0, {"BPA free.", "Pile: 4 mm."}),
        (1, {"BPA FREE: BPA free.", "Details: Pile: 4 mm."}),
        (2, {"BPA Free - BPA free.", "Details: Pile: 4 mm."}),
    ],
)
def test_bullets_are_written_in_one_style(voice: int, texts: set[str]) -> None:
    bullets = write_bullets(replace(DESIGN, titled=(), voice=voice), Draws("x"))
    assert texts < set(bullets)
    assert len(bullets) == 3
