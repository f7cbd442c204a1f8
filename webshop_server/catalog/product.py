"""A product as every part of the store knows it, whatever file it came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class HumanInstruction:
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
        asin: Identifier, at most 10 characters in the official data.
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
