"""What the synthetic shop is written with: the shapes of its vocabulary, and the words all departments share.

Words of titles are marked where they are nouns, with a "*" in front, so that the nouns of a title are known.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Trait:
    """A property that a product may have and a shopper may ask for.

    Attributes:
        name: Lower case, marked: "machine washable", "*memory *foam".
        sentences: Ways to say it in a text of the shop. Each has the name in it, word for word.
        link: "" if it stands before what it describes, or the word that ties it on behind: "with" (memory foam),
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
        item: One of it, lower case.
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
    item: str
    path: str
    names: tuple[str, ...]
    prices: tuple[float, float]
    uses: tuple[str, ...]
    traits: tuple[tuple[str, ...], ...]
    axes: tuple[Axis, ...]
    facts: tuple[tuple[str, tuple[str, ...]], ...]
    says: tuple[str, ...]


def listed(text: str, separator: str = ";") -> tuple[str, ...]:
    """The parts of a text, stripped.

    >>> listed("daily runs; the gym")
    ('daily runs', 'the gym')
    """
    return tuple(part.strip() for part in text.split(separator))


def grouped(text: str) -> tuple[tuple[str, ...], ...]:
    """Groups of alternatives.

    >>> grouped("slim fit / relaxed fit; machine washable")
    (('slim fit', 'relaxed fit'), ('machine washable',))
    """
    return tuple(listed(group, "/") for group in listed(text))


def measures(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Labels with what they may say.

    >>> measures("Weight: 1 kg, 2 kg; Made in: Spain")
    (('Weight', ('1 kg', '2 kg')), ('Made in', ('Spain',)))
    """
    pairs = (part.split(":", 1) for part in listed(text))
    return tuple((label.strip(), listed(values, ",")) for label, values in pairs)


def read_traits(text: str) -> dict[str, Trait]:
    """Reads traits: a line with the link, if any, in brackets and the name, and indented lines with its sentences.

    Args:
        text: The lines; empty ones are passed over.

    Returns:
        Traits by their plain names.

    Raises:
        ValueError: If a name comes twice, or a sentence is missing or lacks the name.
    """
    entries: list[tuple[str, list[str]]] = []
    for line in filter(str.strip, text.splitlines()):
        if line.startswith(" "):
            entries[-1][1].append(line.strip())
        else:
            entries.append((line.strip(), []))
    traits: dict[str, Trait] = {}
    for head, sentences in entries:
        before, _, name = head.rpartition("] ")
        trait = Trait(name, tuple(sentences), before.removeprefix("["))
        said = all(trait.plain in sentence.lower() for sentence in sentences)
        if trait.plain in traits or not sentences or not said:
            raise ValueError(f"trait {trait.plain!r} comes twice, has no sentence, or one without its name")
        traits[trait.plain] = trait
    return traits


WEAR_COLORS = Axis("color", listed(
    "black; white; navy; olive; burgundy; charcoal; sand; sky blue; rust; forest green; mustard; dusty rose; plum; teal"
))  # fmt: skip
HOME_COLORS = Axis("color", listed(
    "ivory; slate gray; sage; terracotta; navy; blush; ochre; charcoal; oatmeal; dusty blue; emerald; cocoa"
))  # fmt: skip
DEVICE_COLORS = Axis("color", listed("black; white; silver; midnight blue; graphite; mint; coral; lavender; sand"))
CLOTHING_SIZES = Axis("size", listed("x-small; small; medium; large; x-large; xx-large; 3x-large"), ordered=True)
SHOE_SIZES = Axis("size", listed("6; 6.5; 7; 7.5; 8; 8.5; 9; 9.5; 10; 10.5; 11; 12; 13"), ordered=True)
PACKS = Axis("number of items", listed("pack of 1; pack of 2; pack of 3; pack of 4; pack of 6"), ordered=True, rise=0.8)
BOTTLES = Axis("size", listed("1.7 fl oz; 3.4 fl oz; 6.8 fl oz; 10 fl oz; 16 fl oz"), ordered=True, rise=0.45)
FOOD_WEIGHTS = Axis("size", listed("4 ounce; 8 ounce; 12 ounce; 1 pound; 2 pound; 5 pound"), ordered=True, rise=0.7)
CABLE_LENGTHS = Axis("length", listed("1 ft; 3 ft; 6 ft; 10 ft; 15 ft"), ordered=True, rise=0.3)

BRAND_STARTS = listed(
    "Nor; Bel; Cal; Dun; Ever; Fal; Gren; Hal; Jun; Kel; Lum; Mar; Oak; Pel; Quin; Ros; Sel; Tor; Val; Wes; Wil; Yar; "
    "Zel; Ard; Bram; Cor; Elm; Thorn"
)
BRAND_ENDS = listed("haven; wick; mere; lo; dale; bury; ora; ley; stead; vane; moor; shaw; well; ridge; field; ana")
LINES = listed(
    "Drift; Ember; Meadow; Harbor; Summit; Willow; Pebble; Lantern; Aurora; Comet; Dune; Echo; Fable; Glade; Haze; "
    "Isle; Juniper; Kite; Ledge; Maple; Nimbus; Orchard; Prairie; Quarry; Riddle; Saga; Thistle; Vista; Wander; "
    "Yonder; Zephyr; Anchor; Beacon; Canyon; Delta; Fjord; Grove; Hollow; Inlet; Jetty; Knoll; Lagoon; Mesa; Nook; "
    "Oasis; Piper; Quill; Rover; Sparrow; Trail; Union; Verse; Whistle; Atlas; Bramble; Cove; Dapple; Finch; Gable"
)
CLOSINGS = listed(
    "{brand} has made {query} in small batches since {year}.|Not happy? Send it back within 60 days for a full refund."
    "|The {brand} team answers every question within a day.|Comes in a recycled cardboard box without plastic."
    "|Designed by {brand} with people who use {query} every day.|Every order is checked by hand before it leaves us."
    "|A favorite of our customers since {year}.|If anything is missing or broken, write to us and we will replace it.",
    "|",
)
REQUESTS = listed(
    "Find me {what}|I am looking for {what}|I need {what}|Please find {what}|Can you find me {what}|Show me {what}"
    "|I want to buy {what}|Looking for {what}|I would like {what}|For {use}, I need {what}|For {use}, find me {what}",
    "|",
)
USES = listed("Good for {uses}.|Made for {uses}.|A favorite for {uses}.|Bought most often for {uses}.", "|")
CAPITALS = frozenset(listed("bpa; uv; usda; gmo; usb"))
SMALL_WORDS = frozenset(listed("and; for; in; of; the; to; with; x"))
