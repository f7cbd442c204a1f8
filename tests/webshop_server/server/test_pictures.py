"""Drawings of products."""

import xml.etree.ElementTree as ElementTree

from webshop_server.catalog.product import Product
from webshop_server.server.pictures import svg

SHIRT = Product("B1", "Shirt in Navy <script>", "fashion", "", "")


def test_a_drawing_takes_the_chosen_colour_or_that_of_the_title() -> None:
    assert 'fill="#22356f"' in svg(SHIRT)
    assert 'fill="#d23b3b"' in svg(SHIRT, "wine red")
    assert 'fill="hsl(' in svg(Product("B2", "Shirt", "unheard-of", "", ""))


def test_a_drawing_is_xml_without_text_scripts_and_references() -> None:
    root = ElementTree.fromstring(svg(SHIRT, '"/><script>alert(1)</script>'))
    assert [child.tag.split("}")[1] for child in root.iter()] == ["svg", "rect", "path"]
    assert not any("href" in name or name.startswith("on") for child in root.iter() for name in child.attrib)
    assert "".join(root.itertext()) == ""
