"""A product as every part of the store knows it, and how one is read from a record of any file.

Records are read by the original loader's rules, raw ones and those that it has already loaded. One rule differs: the
original gives a product of unknown attributes the attribute "DUMMY_ATTR", which no goal can name, so it is left out. A
wrong type is an error that names the field, because a guess would show up later as a reward that nobody can explain.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from webshop_server.catalog.pricing import drawn_price, price_text, read_pricing

T = TypeVar("T")
DUMMY_ATTRIBUTES = ("DUMMY_ATTR",)


class CatalogError(ValueError):
    """A catalogue cannot be read. The message names the file, the place and what to do."""


class HumanInstruction(NamedTuple):
    """What a person asked for, with this product in mind.

    Attributes:
        text: The request, without a price.
        attributes: Attributes it names.
        options: Option values it names, without the names of the options.
    """

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


@dataclass(frozen=True)
class Product:
    """One product. Texts are as in the source; option names and values are in lower case.

    Attributes:
        asin: Identifier; no other product of the catalogue has it in any case of letters.
        title: Name.
        category: Department: beauty, electronics, fashion, garden or grocery in the official data.
        query: Search phrase the product was found with, lower case.
        product_category: Path in the shop, parts separated by " › ".
        description: Full text; may be empty.
        bullet_points: Short texts.
        attributes: Hidden properties that goals are made of; may be empty.
        options: Values by option name, in the order they are shown.
        option_images: Image by option value (values of two options may collide, as in the original).
        option_prices: Price in dollars by option value, where the source has one.
        pricing: The one price, or the ends of a range, in dollars; (100.0,) if the source has none.
        price_text: How the original shows the price: "$19.99 to $28.0". `pricing.dollars` is for people.
        price: What buying costs in dollars: deterministic, from the hash of the catalogue and its seed.
        image: Main image, a URL or empty.
        instruction: Synthetic request without options and price, or None.
        instruction_attributes: Attributes it names.
        human_instructions: Requests written by people.
        nouns: Nouns of the title in lower case, in order, duplicates kept; None if the catalogue does not know.
    """

    asin: str
    title: str
    category: str
    query: str
    product_category: str
    description: str = ""
    bullet_points: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    option_images: Mapping[str, str] = field(default_factory=dict)
    option_prices: Mapping[str, float] = field(default_factory=dict)
    pricing: tuple[float, ...] = (100.0,)
    price_text: str = "$100.0"
    price: float = 100.0
    image: str = ""
    instruction: str | None = None
    instruction_attributes: tuple[str, ...] = ()
    human_instructions: tuple[HumanInstruction, ...] = ()
    nouns: tuple[str, ...] | None = None


FIELDS = tuple(one.name for one in dataclasses.fields(Product) if one.name != "price")
_LISTS = ("bullet_points", "attributes", "pricing", "instruction_attributes")


def write_product(product: Product) -> str:
    """A product as a line of text: a JSON array of the values of `FIELDS`, which are all but the price.

    Equal products have equal lines in every process, and a catalogue's hash is that of its lines. The price is left
    out as it depends on the hash. The order of options is kept, as it is shown.
    """
    return json.dumps([getattr(product, name) for name in FIELDS], ensure_ascii=False, separators=(",", ":"))


def read_product(line: str, catalog_hash: str, seed: int) -> Product:
    """Reads a line of `write_product`, and draws the price for a catalogue of this hash and seed."""
    fields = dict(zip(FIELDS, json.loads(line), strict=True))
    for name in _LISTS:
        fields[name] = tuple(fields[name])
    if fields["nouns"] is not None:
        fields["nouns"] = tuple(fields["nouns"])
    fields["options"] = {name: tuple(values) for name, values in fields["options"].items()}
    people = fields["human_instructions"]
    fields["human_instructions"] = tuple(HumanInstruction(text, tuple(a), tuple(o)) for text, a, o in people)
    return Product(**fields, price=drawn_price(catalog_hash, seed, fields["asin"], fields["pricing"]))


@dataclass
class Record:
    """One JSON object of a file."""

    fields: Mapping[str, Any]
    place: str  # file and record, for errors

    def __post_init__(self) -> None:
        """Refuses what is no object with a `CatalogError`."""
        if not isinstance(self.fields, dict):
            raise CatalogError(f"{self.place}: expected an object but found {_shown(self.fields)}")

    def error(self, name: str, problem: object) -> CatalogError:
        """Names the place and the field."""
        return CatalogError(f"{self.place}, field {name!r}: {problem}")

    def of(self, name: str, kind: type[T]) -> T:
        """A field of this type; an empty one for null, "" or nothing, as in the public data."""
        value = self.fields.get(name)
        if value is None or value == "":
            return kind()
        if not isinstance(value, kind):
            raise self.error(name, f"expected {kind.__name__} but found {_shown(value)}")
        return value

    def text(self, *names: str, required: bool = False) -> str:
        """The first of the fields `names` that is there: its text, "" for null or where none is."""
        there = [name for name in names if self.fields.get(name) is not None]
        if required and not there:
            raise self.error(names[0], "it is missing; every product has one")
        return _clean(self.of(there[0], str)) if there else ""

    def texts(self, name: str) -> tuple[str, ...]:
        """The list of texts in a field; a text alone is a list of one, and null or nothing an empty one."""
        value = self.fields.get(name)
        listed = [value] if isinstance(value, str) else self.of(name, list)
        for position, item in enumerate(listed):
            if not isinstance(item, str):
                raise self.error(name, f"expected texts but found {_shown(item)} at position {position}")
        return tuple(map(_clean, listed))

    def records(self, name: str) -> list["Record"]:
        """The list of objects in a field; null or nothing is an empty one."""
        return [Record(item, f"{self.place}, field {name!r}, item {n}") for n, item in enumerate(self.of(name, list))]

    def pricing(self, name: str) -> tuple[float, ...]:
        """The price in a field; see `read_pricing`."""
        try:
            return read_pricing(self.fields.get(name))
        except ValueError as error:
            raise self.error(name, error) from error


def read_record(record: Record, hidden: Record | None, human: Sequence[Record]) -> Product:
    """Makes a product, its price not drawn yet, of a record and what other files say about it.

    Args:
        record: The product, raw or as the original loads it.
        hidden: Its entry in the file of attributes and instructions, or None where that has none.
        human: Its entries in the file of human instructions. Who wrote them is not read.

    Raises:
        CatalogError: If a field is missing or has the wrong type.
    """
    options, images, prices = _options(record)
    pricing = record.pricing("pricing")
    attributes = record.texts("Attributes") if hidden is None else hidden.texts("attributes")
    pictures = record.texts("images")
    asked = hidden or record
    people = [
        HumanInstruction(
            said.text("instruction", required=True),
            said.texts("instruction_attributes"),
            said.texts("instruction_options"),
        )
        for said in human or record.records("instructions")
    ]
    return Product(
        asin=record.text("asin", required=True),
        title=record.text("name", "Title", required=True),
        category=record.text("category", required=True),
        query=record.text("query", required=True).lower().strip(),
        product_category=record.text("product_category", required=True),
        description=record.text("full_description", "Description"),
        bullet_points=record.texts("small_description" if "small_description" in record.fields else "BulletPoints"),
        attributes=() if attributes == DUMMY_ATTRIBUTES else attributes,
        options=options,
        option_images=images,
        option_prices=prices,
        pricing=pricing,
        price_text=price_text(pricing),
        image=pictures[0] if pictures else record.text("MainImage"),
        instruction=(record.text("instruction_text") if hidden is None else hidden.text("instruction")) or None,
        instruction_attributes=asked.texts("instruction_attributes"),
        human_instructions=tuple(people),
        nouns=None if record.fields.get("nouns") is None else record.texts("nouns"),
    )


def _options(record: Record) -> tuple[dict[str, tuple[str, ...]], dict[str, str], dict[str, float]]:
    """Values by name, image by value and price by value of the options."""
    field = "customization_options" if "customization_options" in record.fields else "options"
    options: dict[str, tuple[str, ...]] = {}
    images: dict[str, str] = {}
    prices: dict[str, float] = {}
    for name, choices in record.of(field, dict).items():
        if choices is None:
            continue
        if not isinstance(choices, list):
            raise record.error(field, f"option {name!r}: expected a list but found {_shown(choices)}")
        values = []
        for number, choice in enumerate(choices):
            place = f"{record.place}, field {field!r}, option {name!r}, choice {number}"
            entry = Record({"value": choice} if isinstance(choice, str) else choice, place)
            value = entry.text("value", required=True).strip().replace("/", " | ").lower()
            values.append(value)
            if image := entry.text("image"):
                images[value] = image
            # The public data write 0 where they do not know it. Of a range it is the lower end.
            if entry.fields.get("price") not in (None, "", 0) and (price := min(entry.pricing("price"))):
                prices[value] = price
        options[_clean(name).lower()] = tuple(values)
    return options, images, prices


def _clean(text: str) -> str:
    """The text with lone surrogates replaced, which JSON can carry and no page or file can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _shown(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text[:60]}{'…' if len(text) > 60 else ''}"
