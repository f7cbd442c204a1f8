"""Drawings of products."""

import xml.etree.ElementTree as ElementTree

import pytest

from webshop_server.catalog.product import Product
from webshop_server.catalog.synthetic.vocabulary import shelves
from webshop_server.server.app import open_shop
from webshop_server.server.pictures import svg

SHIRT = Product("B1", "Shirt in Navy <script>", "fashion", "", "")


def test_a_drawing_takes_the_chosen_colour_or_that_of_the_title() -> None:
    assert 'fill="#22356f"' in svg(SHIRT)
    assert 'fill="#d23b3b"' in svg(SHIRT, "wine red")
    assert 'fill="#7cbdf0"' in svg(SHIRT, "Sky Blue") and 'fill="#22356f"' in svg(SHIRT, "sky")
    assert 'fill="hsl(' in svg(Product("B2", "Shirt", "unheard-of", "", ""))


def test_each_colour_of_the_generated_catalogue_is_drawn_and_no_two_alike() -> None:
    """Regression: most of them were drawn in whatever colour the identifier gave."""
    shop = open_shop("synthetic")
    products = (shop.catalog.product(shop.goal(number).asin) for number in range(len(shop.goals)))
    named = {color for product in products for color in product.options.get("color", ())} - {"assorted"}
    drawn = {color: svg(Product("B1", "Shirt", "fashion", "", ""), color) for color in named}
    assert len(named) > 40 and len(set(drawn.values())) == len(named)
    assert [color for color, drawing in drawn.items() if "45%,55%" in drawing] == []


def test_a_drawing_is_xml_without_text_scripts_and_references() -> None:
    root = ElementTree.fromstring(svg(SHIRT, '"/><script>alert(1)</script>'))
    assert [child.tag.split("}")[1] for child in root.iter()] == ["svg", "rect", "path"]
    assert not any("href" in name or name.startswith("on") for child in root.iter() for name in child.attrib)
    assert "".join(root.itertext()) == ""


@pytest.mark.parametrize(
    ("query", "path", "like"),
    [
        ("backpacks", "Luggage & Travel Gear › Backpacks", "rucksacks"),
        ("hiking boots", "Shoes › Outdoor › Hiking Boots", "ankle boots"),
        ("running shoes", "Shoes › Athletic › Running", "sneakers"),
        ("women's mules & clogs", "Clothing, Shoes & Jewelry › Women › Shoes › Mules & Clogs", "shoes"),
        ("desk lamps", "Lighting & Ceiling Fans › Lamps › Desk Lamps", "lamps"),
    ],
)
def test_a_drawing_is_of_the_kind(query: str, path: str, like: str) -> None:
    """Regression: everything in the fashion department was drawn as a T-shirt, backpacks and boots too."""
    drawn, shirt = (svg(Product("B1", "Thing", "fashion", *where)) for where in ((query, path), ("t-shirts", "")))
    assert drawn != shirt
    assert drawn == svg(Product("B1", "Thing", "garden", like, ""))


def test_each_shelf_of_the_generated_catalogue_has_a_drawing_of_its_own_kind() -> None:
    unknown = svg(Product("B1", "Thing", "fashion", "", "")), svg(Product("B1", "Thing", "", "", ""))
    for _, _, kind in shelves():
        assert svg(Product("B1", "Thing", "fashion", kind.query, "")) not in unknown, kind.query
