"""A picture for every product and every page with products, drawn here, so the store loads nothing from other servers.

It is a symbol of the product's kind on a pale background: the hue follows from the identifier, the symbol's colour from
the option chosen or the title. Digits are lines, so no picture depends on a machine's fonts.
"""

import hashlib
import itertools
import math
import re

from webshop_server.catalog.product import Product
from webshop_server.store.page_short import first_number
from webshop_server.store.state import PAGE_SIZE, PageState, Store

_SIDE = 118  # of a product's square, in the units of the symbols
_LEFT = -9  # where it begins
_PAGE_SIDE = 336  # of the picture of a page, in pixels

# Words of a search phrase or of a path, and what is drawn for them. Plurals without their "s".
_KINDS = {
    "backpack rucksack": (
        "M42 28v-6c0-6 16-6 16 0v6M28 52c0-16 8-24 22-24s22 8 22 24v34c0 4-2 6-6 6H34c-4 0-6-2-6-6zM36 66h28v18H36z"
        "M36 72h28M34 48h32M28 54c-8 0-10 6-10 14v14h10M72 54c8 0 10 6 10 14v14H72"
    ),
    "bag luggage tote purse handbag wallet": "M26 46h48l6 44H20zM38 46c0-26 24-26 24 0M36 56h6M58 56h6",
    "boot": "M34 26h22v34c12 2 26 4 26 18v8H34zM34 78h48M34 36h22M34 46h22",
    "shoe sneaker loafer oxford footwear sandal slipper flat": (
        "M16 56c8 6 16 4 22-8l20 18c10 2 24 4 26 16v4H16zM16 78h68M44 54l-6 6M52 61l-6 6"
    ),
    "sock hosiery tights": "M40 24h22v38L42 86c-8 8-22 0-16-12l14-18zM40 34h22",
    "shirt t-shirt tee top henley polo blouse clothing": (
        "M36 28l-18 12 8 14 8-4v38h32V50l8 4 8-14-18-12c-4 8-24 8-28 0z"
    ),
    "hoodie sweatshirt jacket coat raincoat rainwear sweater": (
        "M36 30l-18 14 6 38h10v8h32v-8h10l6-38-18-14c-2-8-26-8-28 0zM50 38v52M34 82V54M66 82V54"
    ),
    "jean pant trouser legging short jogger sweatpant": "M34 26h32l6 64H56l-6-40-6 40H28zM34 34h32",
    "dress skirt gown jumpsuit": "M40 26h20l-4 22 18 42H26l18-42zM44 48h12",
    "sunglasse glasse eyewear eyeglasse goggle": (
        "M18 50h26v10c0 16-26 16-26 0zM56 50h26v10c0 16-26 16-26 0zM44 54c4-4 8-4 12 0"
    ),
    "hat cap beanie": "M24 66c0-36 52-36 52 0zM18 66h64v8H18zM50 40v-6",
    "watch smartwatch wearable": "M38 40h24v34H38zM42 40l2-16h12l2 16M42 74l2 16h12l2-16M50 50v8h6",
    "earbud headphone headset earphone": "M24 68V56c0-36 52-36 52 0v12M18 62h12v22H18zM70 62h12v22H70z",
    "speaker soundbar subwoofer audio": "M32 24h36v66H32zM50 66m-13 0a13 13 0 1 0 26 0a13 13 0 1 0-26 0M45 36h10v8H45z",
    "phone case smartphone": "M34 22h32v70H34zM34 32h32M34 80h32M48 86h4",
    "bank charger battery power": "M32 30h36v60H32zM42 30v-8h16v8M52 42l-10 20h8l-4 18 14-24h-9l5-14z",
    "cable cord adapter wire": "M24 30h16v20H24zM32 50v14c0 24 36 24 36 0V54M60 34h16v20H60zM64 34v-8M72 34v-8",
    "monitor tv television display screen computer laptop": "M18 32h64v42H18zM42 74h16v10H42zM32 86h36",
    "keyboard": "M16 44h68v32H16zM24 52h6M36 52h6M48 52h6M60 52h6M72 52h4M24 60h6M36 60h6M48 60h6M60 60h6M34 68h32",
    "camera camcorder surveillance": "M20 40h16l6-10h16l6 10h16v44H20zM50 62m-13 0a13 13 0 1 0 26 0a13 13 0 1 0-26 0",
    "mouse mice trackball": "M32 54c0-36 36-36 36 0v12c0 34-36 34-36 0zM50 28v22M32 54h36",
    "tablet stand holder mount": "M26 24h48v50H26zM40 74l-8 16M60 74l8 16M28 90h44",
    "pillow cushion": "M24 36c16 6 36 6 52 0 4 14 4 30 0 46-16-6-36-6-52 0-4-16-4-32 0-46z",
    "lamp light lighting lantern bulb": "M36 28h28l12 28H24zM50 56v26M34 84c6-4 26-4 32 0v4H34z",
    "rug carpet mat runner": "M20 38h60v40H20zM28 46h44v24H28zM20 44h-6M20 54h-6M20 64h-6M80 44h6M80 54h6M80 64h6",
    "curtain drape blind window treatment": "M18 28h64M24 28h18c2 26-4 46-18 58zM76 28H58c-2 26 4 46 18 58z",
    "basket bin storage container organizer box": "M22 48h56l-6 40H28zM30 48c0-26 40-26 40 0M26 60h48M28 72h44",
    "stool barstool chair seat": "M34 26h32v30H34zM30 56h40v8H30zM34 64l-6 26M66 64l6 26M32 78h36",
    "sofa couch bed mattress furniture table desk": "M24 44h52v16h8v24h-8v6h-6v-6H30v6h-6v-6h-8V60h8zM24 68h52",
    "sheet bedding blanket quilt towel linen": (
        "M24 42l26-10 26 10-26 10zM24 42v14l26 10"
        " 26-10V42M24 58v14l26 10 26-10V58"
    ),
    "pot planter plant garden": (
        "M32 60h36l-6 30H38zM50 60V42M50 48c-14 0-18-10-18-18 12 0 18"
        " 6 18 18zM50 44c0-10 6-16 18-16 0 10-6 16-18 16z"
    ),
    "plate dish dinnerware bowl dining": (
        "M50 58m-32 0a32 32 0 1 0 64 0a32 32 0 1 0-64 0M50"
        " 58m-20 0a20 20 0 1 0 40 0a20 20 0 1 0-40 0"
    ),
    "brush comb applicator": "M44 22h12l2 24H42zM44 46h12v10H44zM46 56h8l2 34H44z",
    "polish lacquer nail": "M42 22h16v30H42zM34 52h32c4 6 4 38 0 38H34c-4 0-4-32 0-38z",
    "perfume parfum fragrance cologne": "M42 24h16v10H42zM46 34h8v10h-8zM28 44h44v46H28zM36 56h28v22H36z",
    "lip balm lipstick": "M38 58h24v32H38zM42 44h16v14H42zM42 44V32l16-10v22z",
    "coffee tea cocoa beverage drink": (
        "M26 42h42v26c0 24-42 24-42 0zM68 48c18-4 18 22 0"
        " 20M38 34c-4-6 4-8 0-14M52 34c-4-6 4-8 0-14"
    ),
    "bar candy chocolate snack": "M26 38h48v40H26zM42 38v40M58 38v40M26 58h48",
    "oil sauce syrup vinegar condiment": (
        "M44 22h12v18c10 6 12 12 12 20v28c0 4-36 4-36"
        " 0V60c0-8 2-14 12-20zM32 62h36v16H32z"
    ),
    "butter jam jar cream moisturizer mask": (
        "M32 26h36v12H32zM30 38h40c4 8 4 46 0"
        " 50H30c-4-4-4-42 0-50zM30 54h40v20H30z"
    ),
    "granola cereal pasta noodle soup salt": (
        "M20 54h60c0 22-14 34-30 34S20 76 20 54zM28 54c4-12 12-8"
        " 14 0M44 54c2-16 14-16 16 0M62 54c2-8 8-8 10 0"
    ),
    "fruit vegetable produce": "M50 44c-30-14-36 42-8 46 4 0 4-2 8-2s4 2 8 2c28-4 22-60-8-46zM50 44c0-10 4-16 12-20",
    "shampoo lotion conditioner sunscreen bottle soap": (
        "M40 44h20v12c8 3 10 8 10 14v22H30V70c0-6"
        " 2-11 10-14zM44 32h12v12H44z"
    ),
}
_OF_WORD = {word: path for words, path in _KINDS.items() for word in words.split()}
_PATHS = {
    "beauty": _OF_WORD["shampoo"],
    "electronics": "M30 34h40v46H30zM38 42h24v30H38zM30 44h-8M30 57h-8M30 70h-8M70 44h8M70 57h8M70 70h8",
    "fashion": "M50 42c0-8 10-6 10-14s-16-10-18 0M50 42l34 26c4 4 2 8-4 8H20c-6 0-8-4-4-8z",
    "garden": "M50 90V56M50 62C30 62 24 48 24 34c16 0 26 10 26 28zM50 54c0-18 10-26 26-26 0 16-8 26-26 26z",
    "grocery": "M22 46h56l-8 40H30zM34 46l8-20M66 46l-8-20",
}
_OTHER = "M24 40l26-14 26 14v32L50 86 24 72zM24 40l26 14 26-14M50 54v32"
# One word or two, the common ones and those of the generated catalogue.
_COLORS = dict(
    entry.strip().rsplit(maxsplit=1)
    for entry in """
black #2b2f36, white #ffffff, gray #8a929c, grey #8a929c, silver #c3c9d0, charcoal #41464d, graphite #5b6068,
slate gray #6b7886, ivory #f6f0dc, pearl #f1ece4, ecru #e8dfc6, clear #eaf1f4, oatmeal #ddd0b8, sand #d9c39a,
champagne #efdcb8, nude #e3bfa4, beige #dcc9a6, khaki #b7a673, taupe #8b7c6e, natural wood #c49a63, brown #7d5535,
cocoa #6b4330, tortoise #8a5a2b, bronze #9a6b3a, rust #a84a24, terracotta #c4623f, brick #9a4332, red #d23b3b,
burgundy #7b1e35, coral #f2785c, pink #ee8fb4, blush #f0c4c0, dusty rose #c98f93, rose gold #dba494, peach #f7bd95,
orange #ec8a2f, amber #e0912a, honey #dea23a, ochre #c58a2b, mustard #d8a92c, gold #d1a436, yellow #f0cf3f,
green #3f9a56, olive #7c8140, sage #a3b18c, mint #9fdcbc, emerald #1f9a62, forest green #24613a, matte green #5d8a66,
teal #1f8f8d, turquoise #36b5b0, blue #3576d4, navy #22356f, midnight blue #1d2b5f, midnight #1a2140, indigo #3c3f8f,
sky blue #7cbdf0, light blue #9ccbf2, dusty blue #7f9bb8, stone wash #8fa7bf, dark rinse #2b3a5c, purple #7b4fb5,
lavender #b9a3e3, lilac #cfb2e0, plum #71345f
""".split(",")
)
_DIGITS = (  # each in a box of 10 × 16 units, as lines
    *("M3 0h4l3 3v10l-3 3H3l-3-3V3z", "M1 4l4-4v16M1 16h8", "M0 3l3-3h4l3 3v3L0 16h10"),
    *("M0 0h10L4 6h3l3 3v4l-3 3H3l-3-3", "M7 16V0L0 11h10", "M9 0H1v6h6l3 3v4l-3 3H3l-3-2"),
    *("M9 0H5L0 7v6l3 3h4l3-3v-3L7 7H0", "M0 0h10L4 16", "M3 0h4l2 2v3L7 7H3L1 5V2zM3 7l-3 3v3l3 3h4l3-3v-3L7 7"),
    "M10 9H3L0 6V3l3-3h4l3 3v6l-5 7H1",
)
_WORD = re.compile(r"[a-z]+(?:-[a-z]+)*")
_PART = re.compile(r"[›&,]")


def svg(product: Product, color: str = "") -> str:
    """Draws a product.

    Args:
        product: What to draw.
        color: Its chosen colour in words, or "".

    Returns:
        An SVG document without scripts, styles and references. Nothing of the product's text is in it.
    """
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{_LEFT} 0 {_SIDE} {_SIDE}" width="320" height="320">'
        f"{_drawing(product, color)}</svg>"
    )


def page_svg(store: Store, state: PageState, hits: int = PAGE_SIZE) -> str:
    """Draws what a page shows: a product, or the hits of a search with their numbers, in rows from left to right.

    Args:
        store: The store.
        state: The page.
        hits: The most hits to draw, from the first on.

    Returns:
        A square SVG document as `svg` makes them; "" if the page shows no product.
    """
    if state.asin:
        parts, columns = [_drawing(store.catalog.product(state.asin), dict(state.options).get("color", ""))], 1
    elif state.kind == "results":
        asins = store.shown(state)[:hits]
        columns = math.ceil(math.sqrt(len(asins)))
        parts = [
            f'<g transform="translate({place % columns * _SIDE} {place // columns * _SIDE})">'
            f"{_drawing(store.catalog.product(asin))}{_badge(first_number(state) + place)}</g>"
            for place, asin in enumerate(asins)
        ]
    else:
        parts = []
    if not parts:
        return ""
    side = columns * _SIDE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{_LEFT} 0 {side} {side}" '
        f'width="{_PAGE_SIDE}" height="{_PAGE_SIDE}">'
        f'<rect x="{_LEFT}" width="{side}" height="{side}" fill="#ffffff"/>{"".join(parts)}</svg>'
    )


def _drawing(product: Product, color: str = "") -> str:
    """The elements of a product's drawing."""
    hue = hashlib.sha256(product.asin.encode()).digest()[0] * 360 // 256
    fill = _named(color) or _named(product.title) or f"hsl({hue},45%,55%)"
    return (
        f'<rect x="{_LEFT}" width="{_SIDE}" height="{_SIDE}" fill="hsl({hue},40%,90%)"/>'
        f'<path d="{_symbol(product)}" fill="{fill}" stroke="#3b4450" stroke-width="2.5" stroke-linejoin="round"/>'
    )


def _named(text: str) -> str | None:
    """The first colour that a text names."""
    words = _WORD.findall(text.lower())
    pairs = [*map(" ".join, itertools.pairwise(words)), ""]
    names = (name for pair, word in zip(pairs, words, strict=False) for name in (pair, word))
    return next((_COLORS[name] for name in names if name in _COLORS), None)


def _badge(number: int) -> str:
    """A number in the upper left corner of a product's drawing."""
    digits = str(number)
    lines = "".join(
        f'<path d="{_DIGITS[int(digit)]}" transform="translate({_LEFT + 6 + 15 * place} 5)" fill="none" '
        'stroke="#11161c" stroke-width="3.5" stroke-linejoin="round"/>'
        for place, digit in enumerate(digits)
    )
    return f'<rect x="{_LEFT}" width="{7 + 15 * len(digits)}" height="26" fill="#ffffff"/>{lines}'


def _symbol(product: Product) -> str:
    """The drawing of a product's kind, as the data of an SVG path."""
    parts = [product.query, *reversed(_PART.split(product.product_category))]
    words = (word for part in parts for word in reversed(_WORD.findall(part.lower())))
    names = (name for word in words for name in _names(word))
    found = next((_OF_WORD[name] for name in names if name in _OF_WORD), None)
    return found or _PATHS.get(product.category.lower(), _OTHER)


def _names(word: str) -> tuple[str, ...]:
    """A word, and what it may be the plural of."""
    if word.endswith("ies"):
        return word, f"{word[:-3]}y"
    return (word, word.removesuffix("es"), word.removesuffix("s"))
