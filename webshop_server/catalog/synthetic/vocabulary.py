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


@dataclass(frozen=True)
class Shared:
    """What all departments share; `{…}` in a text is filled in."""

    brand_starts: tuple[str, ...]
    brand_ends: tuple[str, ...]
    lines: tuple[str, ...]  # what makers call their products
    closings: tuple[str, ...]  # last sentences of descriptions
    requests: tuple[str, ...]  # what shoppers say
    uses: tuple[str, ...]  # bullet points about what a product is for
    capitals: tuple[str, ...]  # words that titles write in capitals
    small_words: tuple[str, ...]  # words that titles write in lower case
    axes: Mapping[str, Axis]  # options by name


@functools.cache
def shared() -> Shared:
    """What all departments share."""
    content = read_words("shared")
    return Shared(**{**content, "axes": _axes(content["axes"])})


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
        axes = {**shared().axes, **_axes(content.get("axes", {}))}
        for fields in content["kinds"]:
            chosen = tuple(axes[axis] if isinstance(axis, str) else Axis(**axis) for axis in fields["axes"])
            kind = Kind(**{**fields, "axes": chosen, "facts": tuple(fields["facts"].items())})
            found.append((department, traits, kind))
    return tuple(found)


def read_words(name: str) -> dict[str, Any]:
    """What a TOML file beside this module holds, its lists as tuples."""
    content: dict[str, Any] = _frozen(tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8")))
    return content


def _axes(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Axis]:
    return {name: Axis(**fields) for name, fields in tables.items()}


def _frozen(value: Any) -> Any:
    """The value with tuples for lists, at any depth."""
    if isinstance(value, dict):
        return {name: _frozen(part) for name, part in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
