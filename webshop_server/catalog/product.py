"""A product as every part of the store knows it, and how one is read from a record of any file.

Records are read by the original loader's rules, raw ones and those that it has already loaded. One rule differs: the
original gives a product of unknown attributes the attribute "DUMMY_ATTR", which no goal can name, so it is left out. A
wrong type is an error that names the field, because a guess would show up later as a reward that nobody can explain.
The original draws the price of a product with a range again in each process; here it depends on the catalogue's
content, a seed and the product alone.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

DUMMY_ATTRIBUTES = ("DUMMY_ATTR",)
NO_PRICE = (100.0,)
"""What a product costs for which the source has no price."""
MAX_PRICE = 1_000_000_000  # dollars; beyond it a number is damage
_NUMBER = r"\d+(?:[.,]\d+)*|[.,]\d+"
_OF_A_MEASURE = re.compile(rf"\([^()]*\)|[$€£]?\s*(?:{_NUMBER})\s*(?:/|per\b)\s*[^\d$€£]*")
_WITH_SIGN = re.compile(rf"[$€£]\s*({_NUMBER})(?:\s*[-–]\s*({_NUMBER}))?|({_NUMBER})\s*[$€£]")
_ALONE = re.compile(rf"\s*({_NUMBER})\s*(?:[-–]\s*({_NUMBER})\s*)?")


class CatalogError(ValueError):
    """A catalogue cannot be read. The message names the file, the place and what to do."""


class HumanInstruction(NamedTuple):
    """What a person asked for, with this product in mind."""

    text: str  # the request, without a price
    attributes: tuple[str, ...]  # attributes it names
    options: tuple[str, ...]  # option values it names, without the names of the options


@dataclass(frozen=True)
class Product:
    """One product. Texts are as in the source; option names and values are in lower case."""

    asin: str  # identifier; no other product of the catalogue has it in any case of letters
    title: str  # name
    category: str  # department: beauty, electronics, fashion, garden or grocery in the official data
    query: str  # search phrase the product was found with, lower case
    product_category: str  # path in the shop, parts separated by " › "
    description: str = ""  # full text; may be empty
    bullet_points: tuple[str, ...] = ()  # short texts
    attributes: tuple[str, ...] = ()  # hidden properties that goals are made of; may be empty
    # Values by option name, in the order they are shown.
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Image by option value (values of two options may collide, as in the original).
    option_images: Mapping[str, str] = field(default_factory=dict)
    # Price in dollars by option value, where the source has one.
    option_prices: Mapping[str, float] = field(default_factory=dict)
    # The one price, or the ends of a range, in dollars; (100.0,) if the source has none.
    pricing: tuple[float, ...] = (100.0,)
    price_text: str = "$100.0"  # how the original shows the price: "$19.99 to $28.0". `dollars` is for people.
    price: float = 100.0  # what buying costs in dollars: deterministic, from the hash of the catalogue and its seed
    image: str = ""  # main image, a URL or empty
    instruction: str | None = None  # synthetic request without options and price, or None
    instruction_attributes: tuple[str, ...] = ()  # attributes it names
    human_instructions: tuple[HumanInstruction, ...] = ()  # requests written by people
    # Nouns of the title in lower case, in order, duplicates kept; None if the catalogue does not know.
    nouns: tuple[str, ...] | None = None


FIELDS = tuple(one.name for one in dataclasses.fields(Product) if one.name != "price")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_LISTS = ("bullet_points", "attributes", "pricing", "instruction_attributes")


def write_product(product: Product) -> str:
    """A product as a line of text: a JSON array of the values of `FIELDS`, which are all but the price.

    Equal products have equal lines in every process, and a catalogue's hash is that of its lines. The price is left
    out as it depends on the hash. The order of options is kept, as it is shown.
    """
    return _encode([getattr(product, name) for name in FIELDS])


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


def read_record(record: Mapping[str, Any], hidden: Mapping[str, Any] | None, human: Sequence[Any]) -> Product:
    """Makes a product, its price not drawn yet, of a record and what other files say about it.

    Raises:
        ValueError: If a field is missing or has the wrong type.
    """
    options, images, prices = _options(record)
    pricing = _pricing(record, "pricing")
    attributes = _texts(record, "Attributes") if hidden is None else _texts(hidden, "attributes")
    pictures = _texts(record, "images")
    people = [
        HumanInstruction(
            _text(said, "instruction", required=True),
            _texts(said, "instruction_attributes"),
            _texts(said, "instruction_options"),
        )
        for said in human or record.get("instructions") or ()
    ]
    return Product(
        asin=_text(record, "asin", required=True),
        title=_text(record, "name", "Title", required=True),
        category=_text(record, "category", required=True),
        query=_text(record, "query", required=True).lower().strip(),
        product_category=_text(record, "product_category", required=True),
        description=_text(record, "full_description", "Description"),
        bullet_points=_texts(record, "small_description" if "small_description" in record else "BulletPoints"),
        attributes=() if attributes == DUMMY_ATTRIBUTES else attributes,
        options=options,
        option_images=images,
        option_prices=prices,
        pricing=pricing,
        price_text=price_text(pricing),
        image=pictures[0] if pictures else _text(record, "MainImage"),
        instruction=(_text(record, "instruction_text") if hidden is None else _text(hidden, "instruction")) or None,
        instruction_attributes=_texts(hidden or record, "instruction_attributes"),
        human_instructions=tuple(people),
        nouns=None if record.get("nouns") is None else _texts(record, "nouns"),
    )


def _options(record: Mapping[str, Any]) -> tuple[dict[str, tuple[str, ...]], dict[str, str], dict[str, float]]:
    """Values by name, image by value and price by value of the options."""
    options: dict[str, tuple[str, ...]] = {}
    images: dict[str, str] = {}
    prices: dict[str, float] = {}
    named = record.get("customization_options" if "customization_options" in record else "options") or {}
    for name, choices in named.items():
        if choices is None:
            continue
        values = []
        for choice in choices:
            entry = {"value": choice} if isinstance(choice, str) else choice
            value = _text(entry, "value", required=True).strip().replace("/", " | ").lower()
            values.append(value)
            if image := _text(entry, "image"):
                images[value] = image
            # The public data write 0 where they do not know it. Of a range it is the lower end.
            if entry.get("price") not in (None, "", 0) and (price := min(_pricing(entry, "price"))):
                prices[value] = price
        options[_clean(name).lower()] = tuple(values)
    return options, images, prices


def _text(fields: Mapping[str, Any], *names: str, required: bool = False) -> str:
    """The first of the fields `names` that is there: its text, "" for null or where none is."""
    there = [name for name in names if fields.get(name) is not None]
    if required and not there:
        raise ValueError(f"field {names[0]!r} is missing")
    value = fields[there[0]] if there else ""
    if not isinstance(value, str):
        raise ValueError(f"field {there[0]!r}: expected a text but found {value!r:.60}")
    return _clean(value)


def _texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """The list of texts in a field; a text alone is a list of one, and null or nothing an empty one."""
    value = fields.get(name)
    listed = [value] if isinstance(value, str) else value or []
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        raise ValueError(f"field {name!r}: expected texts but found {value!r:.60}")
    return tuple(map(_clean, listed))


def _pricing(fields: Mapping[str, Any], name: str) -> tuple[float, ...]:
    try:
        return read_pricing(fields.get(name))
    except ValueError as error:
        raise ValueError(f"field {name!r}: {error}") from error


def _clean(text: str) -> str:
    """The text with lone surrogates replaced, which JSON can carry and no page or file can."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_pricing(written: object) -> tuple[float, ...]:
    """Reads a price in any form that files have it in.

    | written | read as |
    |---|---|
    | "$19.99", "19.99", "€19,99", 19.99 | one price; the currency does not matter |
    | "$19.99 - $27.99", "19.99 - 27.99", [19.99, 27.99] | the two ends of a range; of more amounts the first two |
    | "now $9.99" | 9.99: beside a sign, words and numbers without one are not looked at |
    | "$1,299.00", "$1.299,00" | 1299: where there are commas and points, the last of them is the decimal sign |
    | "$1,299", "$12,50" | 1299 and 12.5: a lone comma groups thousands before three digits |
    | "$5.99 ($0.50 / Ounce)", "$5.99 $0.50/oz" | 5.99: what is in brackets or per something counts if alone |
    | "", null, [] | no price: `NO_PRICE` |

    Args:
        written: A text, a number, or a list of numbers.

    Returns:
        One price, or the two ends of a range as written, in dollars.

    Raises:
        ValueError: If there is no amount in it, or one that is not from 0 to `MAX_PRICE`.

    >>> read_pricing("$1,019.99 - $1.027,50"), read_pricing("$5.99 ($0.50 / Ounce)")
    ((1019.99, 1027.5), (5.99,))
    """
    prices: Sequence[object] = written if isinstance(written, list | tuple) else [written]
    if written is None or (isinstance(written, str) and not written.strip()):
        return NO_PRICE
    if isinstance(written, str):
        prices = _amounts(_OF_A_MEASURE.sub(" ", written)) or _amounts(written)
        if not prices:
            raise ValueError(f"{written!r} has no price in it; write it as '$19.99' or '$19.99 - $27.99'")
    checked: list[float] = []
    for price in prices[:2]:
        if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price <= MAX_PRICE:
            raise ValueError(f"{price!r} is not a price; it must be a number from 0 to {MAX_PRICE:,}")
        checked.append(float(price))
    return tuple(checked) or NO_PRICE


def _amounts(text: str) -> list[float]:
    """The amounts in a text: numbers with a sign of a currency, or without one if there is nothing else."""
    alone = _ALONE.fullmatch(text)
    found = [alone] if alone else _WITH_SIGN.finditer(text)
    return [_amount(number) for match in found for number in match.groups() if number]


def _amount(number: str) -> float:
    """The value of a number with points and commas."""
    marks = re.sub(r"\d", "", number)
    whole, last = re.split(r"[.,](?=\d*$)", number) if marks else (number, "")
    groups_thousands = len(set(marks)) == 1 and (len(marks) > 1 or (marks == "," and len(last) == 3))
    return float(re.sub(r"[.,]", "", whole) + ("" if groups_thousands else ".") + last)


def dollars(pricing: Sequence[float]) -> str:
    """How the store shows one price, or the two ends of a range, to people: with cents.

    >>> dollars((127.0,)), dollars((19.99, 1028.5))
    ('$127.00', '$19.99 to $1028.50')
    """
    return " to ".join(f"${price:.2f}" for price in pricing)


def price_text(pricing: Sequence[float]) -> str:
    """How the original shows one price, or the two ends of a range.

    >>> price_text((19.99, 28.0))
    '$19.99 to $28.0'
    """
    return " to ".join(f"${price}" for price in pricing)


def drawn_price(catalog_hash: str, seed: int, asin: str, pricing: Sequence[float]) -> float:
    """What buying a product costs: its price, or a number of whole cents drawn uniformly from its range.

    Args:
        catalog_hash: Hash of the catalogue's content.
        seed: Any integer.
        asin: Identifier of the product.
        pricing: One price, or the two ends of a range.

    Returns:
        Dollars, the same in every process.
    """
    if len(pricing) == 1:
        return pricing[0]
    low, high = sorted(pricing)
    digest = hashlib.sha256(f"{catalog_hash}/{seed}/{asin}".encode()).digest()
    drawn = low + (high - low) * int.from_bytes(digest[:7], "big") / 2**56
    # A range may be narrower than a cent.
    return min(max(round(drawn, 2), low), high)
