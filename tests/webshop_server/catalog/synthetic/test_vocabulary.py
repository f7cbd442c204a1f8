"""The vocabulary of the synthetic shop: what its shelves name exists, and fits together."""

import pytest

from webshop_server.catalog.synthetic.vocabulary import DEPARTMENTS, Kind, Trait, read_traits, shelves


def test_there_are_fifty_shelves_in_five_departments() -> None:
    assert len({kind.query for _, _, kind in shelves()}) == len(shelves()) == 50
    assert {department for department, _, _ in shelves()} == set(DEPARTMENTS)


@pytest.mark.parametrize(("department", "traits", "kind"), shelves(), ids=lambda part: getattr(part, "query", ""))
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
    "table",
    [
        {"soft": []},
        {"*soft": ["Soft."], "[with] soft": ["Soft."]},
        {"soft": ["Softly.", "Rough."]},
        {"[with] *deep *bass": ["It has bass."]},
    ],
)
def test_a_trait_without_a_proper_sentence_is_refused(table: dict[str, list[str]]) -> None:
    with pytest.raises(ValueError, match="comes twice, has no sentence, or one without its name"):
        read_traits(table)


def test_traits_are_read() -> None:
    sentences = ["Your living room.", "A living room."]
    assert read_traits({"soft": ["Soft as it looks."], "[for the] *living *room": sentences}) == {
        "soft": Trait("soft", ("Soft as it looks.",), ""),
        "living room": Trait("*living *room", ("Your living room.", "A living room."), "for the"),
    }
