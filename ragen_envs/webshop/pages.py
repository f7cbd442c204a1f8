"""Reads a WebShop page as the original's own environments do: texts, buttons, links, and the score of a purchase.

Texts are all text nodes outside head, script and style, joined by " [SEP] "; buttons are `.btn`, products
`.product-link`, options radio buttons. What a style sheet hides is read too, as the originals do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag
    from bs4.element import NavigableString

SEPARATOR = " [SEP] "
_HIDDEN = frozenset({"style", "script", "head", "title", "meta", "[document]"})
_LINK, _BUTTON, _OPTION = "product-link", "btn", 'input[type="radio"]'
_UNTOLD = "None"  # what the original's text environment does not hand to the page of a purchase


@dataclass(frozen=True)
class Target:
    """Where a click leads.

    Attributes:
        kind: "button", "product" or "option".
        method: "GET" or "POST".
        address: As the page has it, relative or absolute; "" if it has none.
        name: Name of the option, or identifier of the product, or "".
    """

    kind: str
    method: str
    address: str
    name: str = ""


class ShopPage:
    """A page.

    Args:
        html: Its source.
    """

    def __init__(self, html: str) -> None:
        """Reads nothing yet."""
        self.html = html

    @cached_property
    def _soup(self) -> "BeautifulSoup":
        from bs4 import BeautifulSoup  # slow to load, and only servers without a JSON API need it

        return BeautifulSoup(self.html, "html.parser")

    @property
    def instruction(self) -> str | None:
        """The task; None on a page without one, which is then no page of a WebShop, or that of a purchase."""
        found = self._soup.select_one("#instruction-text")
        texts = list(found.stripped_strings) if found else []
        return texts[-1] if texts else None

    @property
    def has_search_bar(self) -> bool:
        """Whether it has a search field."""
        return self._soup.find(id="search_input") is not None

    @property
    def reward(self) -> float | None:
        """The score on the page of a purchase; None on other pages."""
        text = self._told("reward")
        return None if text is None else float(text)

    def targets(self) -> dict[str, Target]:
        """What can be clicked, by its label in lower case, in the order of the original: buttons, products, options.

        Where labels collide, a button comes before a product, and of two options of one value the last one counts.
        """
        buttons, products, options = (self._soup.select(one) for one in (f".{_BUTTON}", f".{_LINK}", _OPTION))
        found = {button.get_text().lower(): _of_button(button) for button in buttons}
        for link in products:
            asin = link.get_text()
            found.setdefault(asin.lower(), Target("product", "GET", _attribute(link, "href"), asin))
        taken = set(found)
        for option in options:
            value = _attribute(option, "value")
            if value not in taken:
                found[value] = Target("option", "GET", _attribute(option, "data-url"), _attribute(option, "name"))
        return found

    def text(self) -> str:
        """The observation `text`."""
        if self.reward is not None:
            return SEPARATOR.join(text.strip() for text in self._receipt())
        return SEPARATOR.join(str(one).strip() for one in self._visible())

    def rich_text(self, address: str, seen: Sequence[str]) -> str:
        """The observation `text_rich`: a line for each text, with marks around what can be clicked.

        Args:
            address: The page's readable address. An option counts as clicked if its value is there in double quotes.
            seen: Products that were opened.
        """
        if self.reward is not None:
            return "".join(f"{text}\n" for text in self._receipt())
        clicked: list[str] = []
        lines: list[str] = []
        for one in self._visible():
            parent = one.parent
            assert parent is not None
            if parent.name == "button":
                lines.append(f"[button] {one} [button_]")
            elif parent.name == "label" and f'"{one}"' in address:
                clicked.append(f"You have clicked {one}.")
                lines.append(f"  [clicked button] {one} [clicked button_]")
            elif parent.name == "label":
                lines.append(f"  [button] {one} [button_]")
            elif _LINK in (parent.get("class") or ()):
                mark = "clicked button" if str(one) in seen else "button"
                lines.append(f"\n[{mark}] {one} [{mark}_]")
            else:
                lines.append(str(one))
        return "".join(f"{line}\n" for line in [*reversed(clicked), *lines])

    def _visible(self) -> Iterator["NavigableString"]:
        from bs4.element import Comment

        for one in self._soup.find_all(string=True):
            hidden = one.parent is None or one.parent.name in _HIDDEN or isinstance(one, Comment)
            if not hidden and one != "\n":
                yield one

    def _told(self, name: str) -> str | None:
        """What stands in the box of an element of the page of a purchase."""
        box = self._soup.select_one(f"#{name} pre")
        return box.get_text() if box else None

    def _receipt(self) -> tuple[str, ...]:
        """The page of a purchase as the original's text environment has it: without a code, and without the goal."""
        asin, options, score = (self._told(name) or "" for name in ("asin", "options", "reward"))
        return (
            *("Thank you for shopping with us!", "Your code: ", _UNTOLD, " (Paste it in your MTurk interface.)"),
            *("Purchased", "asin", asin, "options", options, "attrs", _UNTOLD),
            *("category", _UNTOLD, "query", _UNTOLD, "product category", _UNTOLD),
            *("Target", "asin", "options", "attrs", "price upper", "instuction text"),
            *("category", "product category", "query", "Goal ", _UNTOLD),
            *("Reward", "Your score (min 0.0, max 1.0)", score, "Reward Details ", _UNTOLD),
        )


def _of_button(button: "Tag") -> Target:
    """Where the form of a button leads, or the address of the button itself."""
    form = button.find_parent("form")
    address = _attribute(button, "formaction") or (_attribute(form, "action") if form else "")
    return Target("button", "POST", address or _attribute(button, "href"))


def _attribute(tag: "Tag", name: str) -> str:
    value = tag.get(name)
    return value if isinstance(value, str) else ""
