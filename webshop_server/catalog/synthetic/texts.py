"""What the synthetic shop says about a product: title, bullet points, description, and a shopper's request.

Each property of a product is said in one place or two: the title, the bullet points or the description. Search sees
the title, the description and the first bullet point only, so some properties have to be read on the page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from webshop_server.catalog.synthetic.draws import Draws
from webshop_server.catalog.synthetic.vocabulary import Kind, Trait, shared

TITLES = (
    "*{brand} *{line} {before} {name}{after}",
    "*{brand} {before} {name}{after}, *{line} *Collection",
    "{before} {name}{after} by *{brand}, *{line}",
    "*{brand} *{line} {name}{after}, {before}",
    "{before} *{brand} {name} *{line}{after}",
)


@dataclass(frozen=True)
class Design:
    """What a product is, before it is put into words."""

    kind: Kind
    brand: str  # who makes it
    line: str  # what its maker calls it
    name: str  # end of the title, marked
    titled: tuple[Trait, ...]  # properties in the title
    listed: tuple[Trait, ...]  # properties in the bullet points
    described: tuple[Trait, ...]  # properties in the description
    facts: tuple[str, ...]  # measures, "Weight: 1 kg"
    variant: str  # value of an option that the product does not leave to choose, or ""
    voice: int  # which of the shop's ways of writing is used; any number

    @property
    def traits(self) -> tuple[Trait, ...]:
        """All properties."""
        return self.titled + self.listed + self.described


@lru_cache(maxsize=1 << 12)
def heading(text: str) -> str:
    """Text as in a title: capital first letters except in small words, marks kept.

    >>> heading("bpa free *memory *foam")
    'BPA Free *Memory *Foam'
    """
    words = []
    for word in text.split():
        mark, bare = ("*", word[1:]) if word.startswith("*") else ("", word)
        if bare not in shared()["small_words"]:
            bare = bare.upper() if bare in shared()["capitals"] else bare[:1].upper() + bare[1:]
        words.append(mark + bare)
    return " ".join(words)


def marked_nouns(text: str) -> tuple[str, ...]:
    """The marked words of a text, in lower case, duplicates kept.

    >>> marked_nouns("*Belmere Daily *Shampoo, *Drift")
    ('belmere', 'shampoo', 'drift')
    """
    return tuple(word[1:].strip(",.").lower() for word in text.split() if word.startswith("*"))


def and_list(parts: Sequence[str]) -> str:
    """Parts in a row, "and" before the last.

    >>> and_list(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def _tied_on(traits: Sequence[Trait]) -> str:
    """What follows the thing that is described: "for dry hair with argan oil and shea butter", marked."""
    names: dict[str, list[str]] = {}
    for trait in sorted(traits, key=lambda trait: trait.link):
        if trait.link:
            names.setdefault(trait.link, []).append(trait.name)
    return " ".join(f"{link} {and_list(tied)}" for link, tied in names.items())


def write_title(design: Design) -> str:
    """The title, nouns marked."""
    before = " ".join(trait.name for trait in design.titled if not trait.link)
    title = TITLES[design.voice % len(TITLES)].format(
        brand=design.brand,
        line=design.line,
        name=design.name,
        before=heading(before),
        after=f" {heading(_tied_on(design.titled))}",
    )
    # A design without such properties leaves gaps and a trailing comma.
    title = " ".join(title.split()).replace(" ,", ",").strip(" ,")
    return f"{title}, {heading(design.variant)}" if design.variant else title


def write_bullets(design: Design, draws: Draws) -> tuple[str, ...]:
    """The bullet points, at least two."""
    said = [(trait, draws.pick(trait.sentences)) for trait in design.listed]
    said += [(trait, draws.pick(trait.sentences)) for trait in design.titled if draws.chance(0.4)]
    style = design.voice % 3
    points = [
        f"{trait.plain.upper()}: {sentence}" if style == 1 else f"{heading(trait.plain)} - {sentence}" if style == 2
        else sentence
        for trait, sentence in said
    ]  # fmt: skip
    uses = and_list(draws.some(design.kind.uses, 2 + draws.below(2)))
    points.append(draws.pick(shared()["uses"]).format(uses=uses))
    points.append(("Details: " if style else "") + "; ".join(design.facts) + ".")
    return tuple(draws.some(points, len(points)))


def write_description(design: Design, draws: Draws) -> str:
    """The description, one paragraph."""
    opening, *rest = draws.some(design.kind.says, 1 + draws.below(3))
    middle = [draws.pick(trait.sentences) for trait in design.described] + rest
    sentences = [opening, *draws.some(middle, len(middle))]
    if draws.chance(0.6):
        year = 1950 + draws.below(70)
        closing = draws.pick(shared()["closings"])
        sentences.append(closing.format(brand=design.brand, query=design.kind.query, year=year))
    return " ".join(sentences)


def write_request(design: Design, wanted: Sequence[Trait], draws: Draws) -> str:
    """What a shopper asks for, without options and price.

    It names the wanted properties and ends in the middle of a sentence, so that " with color: blue" can follow.
    """
    before = ", ".join(trait.plain for trait in wanted if not trait.link)
    after = _tied_on(wanted).replace("*", "")
    what = f"{before} {design.kind.query} {after}".strip()
    # "For the gym, I need socks for cold feet" would be for two things.
    requests = [request for request in shared()["requests"] if "for" not in after.split() or "{use}" not in request]
    return draws.pick(requests).format(what=what, use=draws.pick(design.kind.uses))
