"""The vocabulary of the synthetic shop: what its shelves name exists, and fits together."""

import pytest

from webshop_server.catalog.synthetic.generator import SHELVES
from webshop_server.catalog.synthetic.words import Kind, Trait, grouped, listed, measures, read_traits


def test_there_are_fifty_shelves_in_five_departments() -> None:
    assert len({kind.query for _, _, kind in SHELVES}) == len(SHELVES) == 50
    assert {department for department, _, _ in SHELVES} == {"beauty", "electronics", "fashion", "garden", "grocery"}


@pytest.mark.parametrize(("department", "traits", "kind"), SHELVES, ids=lambda part: getattr(part, "query", ""))
def test_a_shelf_is_complete(department: str, traits: dict[str, Trait], kind: Kind) -> None:
    named = [name for group in kind.traits for name in group]
    assert set(named) <= traits.keys()
    assert len(named) == len(set(named)) >= 5
    assert len(kind.traits) >= 5
    names = [axis.name for axis in kind.axes]
    assert len(names) == len(set(names)) >= 1
    values = [value for axis in kind.axes for value in axis.values]
    assert len(values) == len(set(values))
    assert all(value == value.lower() and "/" not in value for value in values)
    assert kind.query == kind.query.lower()
    assert 0 < kind.prices[0] < kind.prices[1]
    assert kind.path.count(" › ") >= 2
    assert len(kind.uses) == 5
    assert len(kind.says) == 3
    assert len(kind.facts) >= 2
    assert all("*" in name for name in kind.names)


@pytest.mark.parametrize(
    "text",
    ["soft\n", "soft\n  Soft.\nsoft\n  Soft.", "soft\n  Softly.\n  Rough.", "[with] *deep *bass\n  It has bass."],
)
def test_a_trait_without_a_proper_sentence_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="comes twice, has no sentence, or one without its name"):
        read_traits(text)


def test_traits_are_read() -> None:
    traits = read_traits(
        "\nsoft\n  Soft as it looks.\n\n[for the] *living *room\n  Your living room.\n  A living room.\n"
    )
    assert traits == {
        "soft": Trait("soft", ("Soft as it looks.",), ""),
        "living room": Trait("*living *room", ("Your living room.", "A living room."), "for the"),
    }


def test_short_forms_are_read() -> None:
    assert listed(" a ;b; c d") == ("a", "b", "c d")
    assert grouped("a / b c; d") == (("a", "b c"), ("d",))
    assert measures("Size: 1 in, 2 in; Made in: Rome") == (("Size", ("1 in", "2 in")), ("Made in", ("Rome",)))
