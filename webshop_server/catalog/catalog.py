"""What a catalogue is to the rest of the store, and the form of it that lives in memory."""

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from webshop_server.catalog.pricing import drawn_price
from webshop_server.catalog.product import Product
from webshop_server.catalog.records import content_hash


class UnknownProductError(KeyError):
    """The catalogue has no product of this ASIN."""

    def __init__(self, asin: object, catalog: str) -> None:
        super().__init__(asin, catalog)

    def __str__(self) -> str:
        asin, catalog = self.args
        return f"the catalogue {catalog} has no product {asin!r}; take one from a page of results"


class Catalog(Mapping[str, Product], abc.ABC):
    """Products by ASIN, read-only, in a fixed order. Safe to use from several threads.

    Two catalogues are equal if their content and their seed are.

    Attributes:
        name: What it was opened as.
        hash: Of the content, 64 hexadecimal digits; the same in every process and form.
        seed: Of the prices.
        folder: Where files that belong to it, such as a search index, may be kept; it may have to be made. None for
            nowhere.
    """

    def __init__(self, name: str, content: str, seed: int, folder: Path | None) -> None:
        self.name = name
        self.hash = content
        self.seed = seed
        self.folder = folder

    @property
    @abc.abstractmethod
    def asins(self) -> Sequence[str]:
        """The ASINs in the order of the source."""

    @abc.abstractmethod
    def product(self, asin: str) -> Product:
        """Looks a product up.

        Args:
            asin: Its identifier.

        Returns:
            The product.

        Raises:
            UnknownProductError: If there is none.
        """

    @abc.abstractmethod
    def products(self) -> Iterator[Product]:
        """All products in the order of the source, one at a time."""

    def one_builder(self) -> AbstractContextManager[None]:
        """A block that one process at a time is in, to make files that belong to the catalogue.

        A small catalogue lets all of them in: that is quicker than waiting.
        """
        return nullcontext()

    def __getitem__(self, asin: str) -> Product:
        return self.product(asin)

    def __iter__(self) -> Iterator[str]:
        return iter(self.asins)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Catalog) and (self.hash, self.seed) == (other.hash, other.seed)

    def __hash__(self) -> int:
        return int(self.hash[:15], 16)

    def __deepcopy__(self, memo: object) -> "Catalog":
        """Itself: nothing in it can change."""
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {len(self)} products, hash {self.hash[:12]}, seed {self.seed}>"


class MemoryCatalog(Catalog):
    """A catalogue whose products are all in memory."""

    def __init__(self, name: str, products: Iterable[Product], seed: int, folder: Path | None = None) -> None:
        """Takes the products and draws their prices.

        Args:
            name: What to call it.
            products: The products in their order, no ASIN twice. Their prices are replaced.
            seed: Seed of the prices.
            folder: Where files that belong to it may be kept, or None.

        Raises:
            ValueError: If an ASIN comes twice.
        """
        listed = list(products)
        super().__init__(name, content_hash(listed), seed, folder)
        self._products: dict[str, Product] = {}
        for product in listed:
            if product.asin in self._products:
                raise ValueError(f"ASIN {product.asin!r} comes twice; every product needs its own")
            price = drawn_price(self.hash, seed, product.asin, product.pricing)
            self._products[product.asin] = replace(product, price=price)
        self._asins = tuple(self._products)

    @property
    def asins(self) -> Sequence[str]:
        """The ASINs in the order of the source."""
        return self._asins

    def product(self, asin: str) -> Product:
        """Looks a product up; see `Catalog`."""
        try:
            return self._products[asin]
        except (KeyError, TypeError):  # TypeError: it cannot be hashed, so it is no text
            raise UnknownProductError(asin, self.name) from None

    def products(self) -> Iterator[Product]:
        """All products in the order of the source."""
        return iter(self._products.values())

    def __len__(self) -> int:
        return len(self._asins)
