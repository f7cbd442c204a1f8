"""A picture for every product, drawn here, because the store loads nothing from other servers.

A symbol of the department on a pale background. The product's identifier gives the hue of the background; the symbol
takes the colour that was chosen or that the title names. Left out: any attempt to look like the product.
"""

import hashlib
import re

from webshop_server.catalog.product import Product

_PATHS = {
    "beauty": "M40 44h20v12c8 3 10 8 10 14v22H30V70c0-6 2-11 10-14zM44 32h12v12H44z",
    "electronics": "M24 36h52v36H24zM42 72h16v8H42zM34 84h32",
    "fashion": "M36 28l-18 12 8 14 8-4v38h32V50l8 4 8-14-18-12c-4 8-24 8-28 0z",
    "garden": "M50 90V56M50 62C30 62 24 48 24 34c16 0 26 10 26 28zM50 54c0-18 10-26 26-26 0 16-8 26-26 26z",
    "grocery": "M22 46h56l-8 40H30zM34 46l8-20M66 46l-8-20",
}
_OTHER = "M24 40l26-14 26 14v32L50 86 24 72zM24 40l26 14 26-14M50 54v32"
_COLORS = {
    **{"black": "#2b2f36", "white": "#ffffff", "gray": "#8a929c", "grey": "#8a929c", "silver": "#c3c9d0"},
    **{"red": "#d23b3b", "burgundy": "#7b1e35", "pink": "#ee8fb4", "orange": "#ec8a2f", "gold": "#d1a436"},
    **{"yellow": "#f0cf3f", "beige": "#dcc9a6", "brown": "#7d5535", "green": "#3f9a56", "olive": "#7c8140"},
    **{"teal": "#1f8f8d", "turquoise": "#36b5b0", "blue": "#3576d4", "navy": "#22356f", "purple": "#7b4fb5"},
}
_WORD = re.compile(r"[a-z]+")


def svg(product: Product, color: str = "") -> str:
    """Draws a product.

    Args:
        product: What to draw.
        color: Its chosen colour in words, or "".

    Returns:
        An SVG document without scripts, styles and references. Nothing of the product's text is in it.
    """
    hue = hashlib.sha256(product.asin.encode()).digest()[0] * 360 // 256
    words = _WORD.findall(f"{color} {product.title}".lower())
    fill = next((_COLORS[word] for word in words if word in _COLORS), f"hsl({hue},45%,55%)")
    path = _PATHS.get(product.category.lower(), _OTHER)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="-9 0 118 118" width="320" height="320">'
        f'<rect x="-9" width="118" height="118" fill="hsl({hue},40%,90%)"/>'
        f'<path d="{path}" fill="{fill}" stroke="#3b4450" stroke-width="2.5" stroke-linejoin="round"/></svg>'
    )
