"""Words of the made-up shops, read from the TOML files beside this module, and how they are drawn.

The synthetic shop has one file a department, and `shared.toml`. Field names are those of the classes below. A trait is
written as its name, with the link in brackets before it, and its sentences: `"[with] *argan *oil" = [...]`. A "*" marks
a noun, so the nouns of a title are known. An axis is written out, or named where `[axes]` of the same file or of
`shared.toml` has it.

Of Python's generator only `random()` is promised to stay as it is; how `choice` and `sample` use it has changed before.
Generated catalogues are identified by the hash of their content, so they use only `random()`.
"""

import functools
import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import tomllib

T = TypeVar("T")
DEPARTMENTS = ("beauty", "electronics", "fashion", "garden", "grocery")
LETTERS = "0123456789ABCDFGHJKLMNPQRSTVWXYZ"  # 32, without the vowels that would make words of them
ROUNDS, HALF = 4, 20  # of the shuffle of identifiers, and bits


@dataclass(frozen=True)
class Trait:
    """A property that a product may have and a shopper may ask for."""

    name: str  # lower case, marked: "machine washable", "*memory *foam"
    sentences: tuple[str, ...]  # ways to say it in a text of the shop; each has the name in it, word for word
    link: str  # what ties it on: "" before what it describes, "with" (memory foam), "for" (dry hair), "for the"

    @functools.cached_property
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
            axes = tuple(Axis(**(tables[axis] if isinstance(axis, str) else axis)) for axis in fields["axes"])
            found.append((department, traits, Kind(**{**fields, "axes": axes, "facts": (*fields["facts"].items(),)})))
    return tuple(found)


def read_words(name: str) -> dict[str, Any]:
    """What a TOML file beside this module holds, its lists as tuples."""

    def frozen(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: frozen(part) for name, part in value.items()}
        return tuple(map(frozen, value)) if isinstance(value, list) else value

    content: dict[str, Any] = frozen(tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8")))
    return content


class Draws:
    """A stream of draws that depends on its key alone."""

    def __init__(self, key: str) -> None:
        self._random = random.Random(key).random

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._random() < probability

    def below(self, end: int) -> int:
        """A whole number from 0 to `end` - 1."""
        return int(self._random() * end)

    def between(self, low: float, high: float) -> float:
        """A number from `low` up to `high`."""
        return low + (high - low) * self._random()

    def pick(self, things: Sequence[T]) -> T:
        """One of `things`."""
        return things[int(self._random() * len(things))]

    def some(self, things: Sequence[T], count: int) -> list[T]:
        """`count` different ones of `things`, or all if there are fewer, in the order drawn."""
        left = list(things)
        for place in range(min(count, len(left))):
            other = place + int(self._random() * (len(left) - place))
            left[place], left[other] = left[other], left[place]
        return left[:count]


def opaque_id(key: str, number: int) -> str:
    """The identifier of a product: "B0" and eight digits or capital letters, as in the public data.

    A Feistel network shuffles the numbers, so two of them never get the same identifier, however many there are.
    """
    left, right = number >> HALF, number & (1 << HALF) - 1
    for turn in range(ROUNDS):
        digest = hashlib.blake2b(f"{key}/{turn}/{right}".encode(), digest_size=4).digest()
        left, right = right, left ^ int.from_bytes(digest, "big") & (1 << HALF) - 1
    shuffled = left << HALF | right
    return "B0" + "".join(LETTERS[shuffled >> 5 * place & 31] for place in range(7, -1, -1))
