"""The words of the synthetic shop, read from the TOML files beside this module: one a department, and `shared.toml`.

Field names are those of the classes below. A trait is written as its name, with the link in brackets before it, and its
sentences: `"[with] *argan *oil" = [...]`. A "*" marks a noun, so the nouns of a title are known. An axis is written
out, or named where `[axes]` of the same file or of `shared.toml` has it.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib

DEPARTMENTS = ("beauty", "electronics", "fashion", "garden", "grocery")


@dataclass(frozen=True)
class Trait:
    """A property that a product may have and a shopper may ask for."""

    name: str  # lower case, marked: "machine washable", "*memory *foam"
    sentences: tuple[str, ...]  # ways to say it in a text of the shop; each has the name in it, word for word
    link: str  # what ties it on: "" before what it describes, "with" (memory foam), "for" (dry hair), "for the"

    @property
    def plain(self) -> str:
        """The name without marks."""
        return self.name.replace("*", "")


@dataclass(frozen=True)
class Axis:
    """An option that is chosen on the page of a product."""

    name: str  # as the shop shows it, lower case
    values: tuple[str, ...]  # all there are, lower case; a product has some of them
    ordered: bool = False  # whether a product has neighbouring ones, as with sizes, and not just any
    rise: float = 0.0  # what each step along a range adds to the price, as a share of the first


@dataclass(frozen=True)
class Kind:
    """A shelf of the shop."""

    query: str  # what shoppers call it, plural and lower case
    path: str  # where it is in the shop, parts separated by " › "
    names: tuple[str, ...]  # ends of titles, marked
    prices: tuple[float, float]  # lowest and highest, in dollars
    uses: tuple[str, ...]  # what it is for: "for …"
    traits: tuple[tuple[str, ...], ...]  # groups of names of traits; a product has at most one of each group
    axes: tuple[Axis, ...]  # options; a product has at most one of each
    facts: tuple[tuple[str, tuple[str, ...]], ...]  # measures by label, of which a product has one each
    says: tuple[str, ...]  # sentences about it, for descriptions


@functools.cache
def shared() -> Mapping[str, Any]:
    """What all departments share, by name; the comments of `shared.toml` say what it is."""
    return read_words("shared")


@functools.cache
def shelves() -> tuple[tuple[str, Mapping[str, Trait], Kind], ...]:
    """All shelves of the shop: the department, its traits by plain name, and the kind of product."""
    found = []
    for department in DEPARTMENTS:
        content = read_words(department)
        traits: dict[str, Trait] = {}
        for head, sentences in content["traits"].items():
            before, _, name = head.rpartition("] ")
            trait = Trait(name, sentences, before.removeprefix("["))
            traits[trait.plain] = trait
        tables = {**shared()["axes"], **content.get("axes", {})}
        for fields in content["kinds"]:
            axes = (tables[axis] if isinstance(axis, str) else axis for axis in fields["axes"])
            chosen = tuple(Axis(**axis) for axis in axes)
            kind = Kind(**{**fields, "axes": chosen, "facts": tuple(fields["facts"].items())})
            found.append((department, traits, kind))
    return tuple(found)


def read_words(name: str) -> dict[str, Any]:
    """What a TOML file beside this module holds, its lists as tuples."""
    content: dict[str, Any] = _frozen(tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8")))
    return content


def _frozen(value: Any) -> Any:
    """The value with tuples for lists, at any depth."""
    if isinstance(value, dict):
        return {name: _frozen(part) for name, part in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
