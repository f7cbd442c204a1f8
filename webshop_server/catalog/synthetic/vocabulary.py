"""The words of the synthetic shop, read from the TOML files beside this module: one a department, and `shared.toml`.

Field names are those of the classes below. A trait is written as its name, with the link in brackets before it, and its
sentences: `"[with] *argan *oil" = [...]`. A "*" marks a noun, so the nouns of a title are known. An axis is written
out, or named where `[axes]` of the same file or of `shared.toml` has it.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib

DEPARTMENTS = ("beauty", "electronics", "fashion", "garden", "grocery")


@dataclass(frozen=True)
class Trait:
    """A property that a product may have and a shopper may ask for.

    Attributes:
        name: Lower case, marked: "machine washable", "*memory *foam".
        sentences: Ways to say it in a text of the shop. Each has the name in it, word for word.
        link: "" if it stands before what it describes, or the word that ties it on after: "with" (memory foam),
            "for" (dry hair), "for the" (living room).
    """

    name: str
    sentences: tuple[str, ...]
    link: str

    @property
    def plain(self) -> str:
        """The name without marks."""
        return self.name.replace("*", "")


@dataclass(frozen=True)
class Axis:
    """An option that is chosen on the page of a product.

    Attributes:
        name: As the shop shows it, lower case.
        values: All there are, lower case; a product has some of them.
        ordered: Whether a product has neighbouring ones, as with sizes, and not just any.
        rise: What each step along a range adds to the price, as a share of the first; 0 if all cost the same.
    """

    name: str
    values: tuple[str, ...]
    ordered: bool = False
    rise: float = 0.0


@dataclass(frozen=True)
class Kind:
    """A shelf of the shop.

    Attributes:
        query: What shoppers call it, plural and lower case.
        path: Where it is in the shop, parts separated by " › ".
        names: Ends of titles, marked.
        prices: Lowest and highest price in dollars.
        uses: What it is for: "for …".
        traits: Groups of names of traits; a product has at most one of each group.
        axes: Options; a product has at most one of each.
        facts: Measures by label, of which a product has one each.
        says: Sentences about it, for descriptions.
    """

    query: str
    path: str
    names: tuple[str, ...]
    prices: tuple[float, float]
    uses: tuple[str, ...]
    traits: tuple[tuple[str, ...], ...]
    axes: tuple[Axis, ...]
    facts: tuple[tuple[str, tuple[str, ...]], ...]
    says: tuple[str, ...]


@dataclass(frozen=True)
class Shared:
    """What all departments share; `{…}` in a text is filled in.

    Attributes:
        brand_starts: First parts of the names of brands.
        brand_ends: Second parts.
        lines: What makers call their products.
        closings: Last sentences of descriptions.
        requests: What shoppers say.
        uses: Bullet points about what a product is for.
        capitals: Words that titles write in capitals.
        small_words: Words that titles write in lower case.
        axes: Options by name.
    """

    brand_starts: tuple[str, ...]
    brand_ends: tuple[str, ...]
    lines: tuple[str, ...]
    closings: tuple[str, ...]
    requests: tuple[str, ...]
    uses: tuple[str, ...]
    capitals: tuple[str, ...]
    small_words: tuple[str, ...]
    axes: Mapping[str, Axis]


@functools.cache
def shared() -> Shared:
    """What all departments share."""
    content = _read("shared")
    return Shared(**{**content, "axes": _axes(content["axes"])})


@functools.cache
def shelves() -> tuple[tuple[str, Mapping[str, Trait], Kind], ...]:
    """All shelves of the shop: the department, its traits by plain name, and the kind of product."""
    return tuple(shelf for department in DEPARTMENTS for shelf in _department(department))


def _department(name: str) -> list[tuple[str, Mapping[str, Trait], Kind]]:
    content = _read(name)
    traits = read_traits(content["traits"])
    axes = {**shared().axes, **_axes(content.get("axes", {}))}
    kinds = []
    for fields in content["kinds"]:
        chosen = tuple(axes[axis] if isinstance(axis, str) else Axis(**axis) for axis in fields["axes"])
        kinds.append(Kind(**{**fields, "axes": chosen, "facts": tuple(fields["facts"].items())}))
    return [(name, traits, kind) for kind in kinds]


def read_traits(table: Mapping[str, Sequence[str]]) -> dict[str, Trait]:
    """Reads the traits of a department.

    Args:
        table: Sentences by name, with the link, if any, in brackets before it.

    Returns:
        Traits by their plain names.

    Raises:
        ValueError: If a name comes twice, or a sentence is missing or lacks the name.
    """
    traits: dict[str, Trait] = {}
    for head, sentences in table.items():
        before, _, name = head.rpartition("] ")
        trait = Trait(name, tuple(sentences), before.removeprefix("["))
        said = all(trait.plain in sentence.lower() for sentence in sentences)
        if trait.plain in traits or not sentences or not said:
            raise ValueError(f"trait {trait.plain!r} comes twice, has no sentence, or one without its name")
        traits[trait.plain] = trait
    return traits


def _axes(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Axis]:
    return {name: Axis(**fields) for name, fields in tables.items()}


def _read(name: str) -> dict[str, Any]:
    """A file of the vocabulary, its lists as tuples."""
    text = Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8")
    content: dict[str, Any] = _frozen(tomllib.loads(text))
    return content


def _frozen(value: Any) -> Any:
    """The value with tuples for lists, at any depth."""
    if isinstance(value, dict):
        return {name: _frozen(part) for name, part in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
