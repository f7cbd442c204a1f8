"""Makes a `Product` of one record of a product file, by the original loader's rules.

It reads raw records and those that the original has already loaded. One rule differs: the original gives a product of
unknown attributes the attribute "DUMMY_ATTR", which no goal can name, so it is left out. A wrong type is an error that
names the field, because a guess would show up later as a reward that nobody can explain.
"""

from collections.abc import Mapping

from webshop_server.catalog import pricing
from webshop_server.catalog.json_stream import CatalogError
from webshop_server.catalog.product import HumanInstruction, Product

DUMMY_ATTRIBUTES = ("DUMMY_ATTR",)


def _clean(text: str) -> str:
    """The text with lone surrogates replaced, which JSON can carry and no page or file can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class Record:
    """The fields of one JSON object, with errors that say where it stands."""

    def __init__(self, value: object, place: str) -> None:
        """Takes a decoded value.

        Args:
            value: What was read.
            place: File and record, for errors.

        Raises:
            CatalogError: If it is no object.
        """
        if not isinstance(value, dict):
            raise CatalogError(f"{place}: expected an object but found {_shown(value)}")
        self.fields: Mapping[str, object] = value
        self.place = place

    def error(self, field: str, problem: str) -> CatalogError:
        """Names the place and the field."""
        return CatalogError(f"{self.place}, field {field!r}: {problem}")

    def text(self, *names: str, required: bool = False) -> str:
        """The first of the fields `names` that is there: its text, "" for null or where none is."""
        for name in names:
            value = self.fields.get(name)
            if isinstance(value, str):
                return _clean(value)
            if value is not None:
                raise self.error(name, f"expected text but found {_shown(value)}")
        if required:
            raise self.error(names[0], "it is missing; every product has one")
        return ""

    def texts(self, name: str) -> tuple[str, ...]:
        """The list of texts in a field; a text alone is a list of one, and null or nothing an empty one."""
        value = self.fields.get(name)
        if value is None:
            return ()
        if isinstance(value, str):
            return (_clean(value),)
        if not isinstance(value, list):
            raise self.error(name, f"expected a list of texts but found {_shown(value)}")
        for position, item in enumerate(value):
            if not isinstance(item, str):
                raise self.error(name, f"expected texts but found {_shown(item)} at position {position}")
        return tuple(_clean(item) for item in value)

    def mapping(self, name: str) -> Mapping[str, object]:
        """The object in a field; null, "" or nothing is an empty one, as in the public data."""
        value = self.fields.get(name)
        if value is None or value == "":
            return {}
        if not isinstance(value, dict):
            raise self.error(name, f"expected an object but found {_shown(value)}")
        return value

    def records(self, name: str) -> tuple["Record", ...]:
        """The list of objects in a field; null or nothing is an empty one."""
        value = self.fields.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.error(name, f"expected a list of objects but found {_shown(value)}")
        return tuple(Record(item, f"{self.place}, field {name!r}, item {n}") for n, item in enumerate(value))


def _shown(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text[:60]}{'…' if len(text) > 60 else ''}"


def _option_value(text: str) -> str:
    return _clean(text).strip().replace("/", " | ").lower()


def _price(record: Record) -> tuple[float, ...]:
    value = record.fields.get("pricing")
    try:
        if isinstance(value, list):
            return pricing.checked(value)
        return pricing.read_pricing(record.text("pricing"))
    except CatalogError:
        raise
    except ValueError as error:
        raise record.error("pricing", str(error)) from error


def _options(record: Record) -> tuple[dict[str, tuple[str, ...]], dict[str, str], dict[str, float]]:
    """Values by name, image by value and price by value of the options."""
    field = "customization_options" if "customization_options" in record.fields else "options"
    options: dict[str, tuple[str, ...]] = {}
    images: dict[str, str] = {}
    prices: dict[str, float] = {}
    for name, choices in record.mapping(field).items():
        if choices is None:
            continue
        if not isinstance(choices, list):
            raise record.error(field, f"option {name!r}: expected a list but found {_shown(choices)}")
        values = []
        for number, choice in enumerate(choices):
            described = {"value": choice} if isinstance(choice, str) else choice
            entry = Record(described, f"{record.place}, field {field!r}, option {name!r}, choice {number}")
            value = _option_value(entry.text("value", required=True))
            values.append(value)
            if image := entry.text("image"):
                images[value] = image
            price = entry.fields.get("price")
            # 0 means "not known" in the public data.
            if isinstance(price, (int, float)) and not isinstance(price, bool) and 0 < price <= pricing.MAX_PRICE:
                prices[value] = float(price)
        options[_clean(name).lower()] = tuple(values)
    return options, images, prices


def human_instructions(records: tuple[Record, ...]) -> tuple[HumanInstruction, ...]:
    """Reads what people asked for. Who they were is not read.

    Args:
        records: The entries of one product.

    Returns:
        The requests, also those that name no attribute.

    Raises:
        CatalogError: If a field has the wrong type.
    """
    return tuple(
        HumanInstruction(
            record.text("instruction", required=True),
            record.texts("instruction_attributes"),
            record.texts("instruction_options"),
        )
        for record in records
    )


def read_record(record: Record, hidden: Record | None, human: tuple[Record, ...]) -> Product:
    """Makes a product of a record and what other files say about it.

    Args:
        record: The product, raw or as the original loads it.
        hidden: Its entry in the file of attributes and instructions, or None where that has none.
        human: Its entries in the file of human instructions.

    Returns:
        The product, its price not drawn yet.

    Raises:
        CatalogError: If a field is missing or has the wrong type.
    """
    options, images, prices = _options(record)
    amounts = _price(record)
    own_attributes = record.texts("Attributes")
    attributes = own_attributes if hidden is None else hidden.texts("attributes")
    images_shown = record.texts("images")
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
        pricing=amounts,
        price_text=pricing.price_text(amounts),
        image=images_shown[0] if images_shown else record.text("MainImage"),
        instruction=(record.text("instruction_text") if hidden is None else hidden.text("instruction")) or None,
        instruction_attributes=(record if hidden is None else hidden).texts("instruction_attributes"),
        human_instructions=human_instructions(human or record.records("instructions")),
        nouns=None if record.fields.get("nouns") is None else record.texts("nouns"),
    )
