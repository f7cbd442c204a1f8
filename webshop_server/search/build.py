"""From a stream of products to the arrays of a search index, with Lucene's arithmetic to the bit.

One pass analyzes the products and writes numbered postings to a temporary file; a second puts each posting in its
place, so memory never holds all products or all postings. Last, documents get their numbers by shelf.
"""

import tempfile
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import IO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from webshop_server.catalog.array_file import Arrays, Shapes
from webshop_server.catalog.product import Product
from webshop_server.search.ranking import largest_of_blocks, number_of_blocks
from webshop_server.text.analyzer import tokens

K1, B = np.float32(0.9), np.float32(0.4)
"""BM25's parameters, pyserini's defaults: how soon repetition stops counting, and how much length counts."""

Integers: TypeAlias = "array[int]"  # array takes a parameter only in a type checker's eyes before Python 3.12
Numbers: TypeAlias = "Integers | NDArray[np.int32]"

_BLOCK = 1 << 20  # postings sorted at a time
_IN_MEMORY = 32 << 20  # bytes of postings before a temporary file is used
_ENCODING = ("utf-8", "surrogatepass")  # JSON can name half a surrogate pair


def document_text(product: Product) -> str:
    """What a search looks at: title, description, first bullet point and options, in lower case."""
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options.items())
    bullet_point = product.bullet_points[0] if product.bullet_points else ""
    return f"{product.title} {product.description} {bullet_point} {options}".lower()


def special_keys(product: Product) -> Iterator[str]:
    """The special queries, without blanks around words, that a product answers."""
    for attribute in dict.fromkeys(map(str.lower, product.attributes)):
        yield f"<a> {attribute.strip()}"
    yield f"<c> {product.category.lower().strip()}"
    yield f"<q> {product.query.lower().strip()}"


def coarse_lengths(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lengths of documents as Lucene keeps them in one byte: exact to 40, then four significant bits above 24."""
    above = np.maximum(lengths - 24, 0)
    shift = np.maximum(np.frexp(above)[1] - 4, 0)
    return np.where(lengths > 24, (above >> shift << shift) + 24, lengths)


@dataclass
class Postings:
    """What one pass over the products finds.

    Attributes:
        asins: Identifiers in the order of the products.
        lengths: Number of terms in each product's document, repetitions included.
        shelves: Path and search phrase of each product, numbered as they were first seen.
        shelf_numbers: Those numbers.
        vocabulary: Number of each term, in the order in which they were first seen.
        frequencies: Number of documents of each term.
        keys: Documents by special query.
        kinds: Pairs of how often a term occurs and how long, coarsely, the document is: count * 2**32 + length.
        blocks: Documents and postings in each block.
        spool: The blocks: terms of each document, then for each posting its term and how often it occurs; int32.
    """

    spool: IO[bytes]
    asins: list[bytes] = field(default_factory=list)
    lengths: Integers = field(default_factory=lambda: array("q"))
    shelves: Integers = field(default_factory=lambda: array("i"))
    shelf_numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    vocabulary: dict[str, int] = field(default_factory=dict)
    frequencies: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    keys: dict[bytes, Integers] = field(default_factory=dict)
    kinds: set[int] = field(default_factory=set)
    blocks: list[tuple[int, int]] = field(default_factory=list)

    @property
    def counted(self) -> int:
        """Number of documents with a term, which is what Lucene calls the number of documents."""
        return int(np.count_nonzero(self.lengths))

    @property
    def numbers(self) -> NDArray[np.intp]:
        """The products in the order of the index, which has those of a shelf side by side."""
        names = list(self.shelf_numbers)
        ranks = np.zeros(len(names), np.int64)
        ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        return np.argsort(ranks[np.asarray(self.shelves, np.int64)], kind="stable")

    @cached_property
    def saturations(self) -> NDArray[np.float32]:
        """Each 1 + tf / (k1 (1 - b + b length / average length)) that occurs, ascending, and before them 1 for none.

        They are few, so that a posting keeps the number of its own.
        """
        kinds = np.array(sorted(self.kinds), np.int64)
        found = _saturations(kinds >> 32, _inverse_norms(self, kinds & 0xFFFFFFFF))
        return np.unique(np.append(found, np.float32(1)))

    @property
    def shapes(self) -> Shapes:
        """The arrays that `fill` fills."""
        postings = int(self.frequencies.sum())
        codes = "<u2" if len(self.saturations) <= 1 << 16 else "<u4"
        blocks = number_of_blocks(len(self.asins))
        return {
            "asin_text": ("u1", sum(map(len, self.asins))),
            "asin_starts": ("<i8", len(self.asins) + 1),
            "asin_order": ("<i4", len(self.asins)),
            "term_text": ("u1", sum(len(term.encode(*_ENCODING)) for term in self.vocabulary)),
            "term_starts": ("<i8", len(self.vocabulary) + 1),
            "term_ranges": ("<i8", len(self.vocabulary) + 1),
            "documents": ("<i4", postings),
            "codes": (codes, postings),
            "saturations": ("<f4", len(self.saturations)),
            "numbers": ("<i4", len(self.asins)),
            "block_rows": ("<i4", len(self.vocabulary)),
            "block_codes": (codes, blocks * int(np.count_nonzero(self.frequencies >= blocks))),
            "key_text": ("u1", sum(map(len, self.keys))),
            "key_starts": ("<i8", len(self.keys) + 1),
            "key_ranges": ("<i8", len(self.keys) + 1),
            "key_documents": ("<i4", sum(map(len, self.keys.values()))),
        }

    def put_aside(self, distinct: Numbers, terms: Numbers, counts: Numbers) -> None:
        """Puts a block of postings aside and counts the documents of its terms.

        Args:
            distinct: Number of different terms of each of the last documents in `lengths`, int32 as the others.
            terms: Numbers of these terms.
            counts: How often each occurs.
        """
        for part in (distinct, terms, counts):
            self.spool.write(part.tobytes())
        self.blocks.append((len(distinct), len(terms)))
        lengths = coarse_lengths(np.asarray(self.lengths, np.int64)[len(self.lengths) - len(distinct) :])
        self.kinds.update(np.unique((np.asarray(counts, np.int64) << 32) + np.repeat(lengths, distinct)).tolist())
        frequencies = np.bincount(np.asarray(terms), minlength=len(self.vocabulary))
        frequencies[: len(self.frequencies)] += self.frequencies
        self.frequencies = frequencies


@contextmanager
def collect(products: Iterable[Product]) -> Iterator[Postings]:
    """Analyzes products, one after the other; what was found can be used inside the block."""
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:
        found = Postings(spool)
        _analyze(products, found)
        yield found


def _analyze(products: Iterable[Product], found: Postings) -> None:
    distinct, terms, counts = array("i"), array("i"), array("i")
    for document, product in enumerate(products):
        frequency = Counter(tokens(document_text(product)))
        found.asins.append(product.asin.encode(*_ENCODING))
        found.lengths.append(frequency.total())
        shelf = product.product_category, product.query
        found.shelves.append(found.shelf_numbers.setdefault(shelf, len(found.shelf_numbers)))
        for key in special_keys(product):
            found.keys.setdefault(key.encode(*_ENCODING), array("i")).append(document)
        terms.extend([found.vocabulary.setdefault(term, len(found.vocabulary)) for term in frequency])
        counts.extend(frequency.values())
        distinct.append(len(frequency))
        if len(terms) >= _BLOCK:
            found.put_aside(distinct, terms, counts)
            distinct, terms, counts = array("i"), array("i"), array("i")
    found.put_aside(distinct, terms, counts)


def fill(found: Postings, arrays: Arrays) -> None:
    """Fills the arrays of an index.

    Args:
        found: What `collect` has found.
        arrays: Arrays of zeros with ``found.shapes``.
    """
    _fill_texts(found.asins, arrays["asin_text"], arrays["asin_starts"])
    in_order = sorted(range(len(found.asins)), key=found.asins.__getitem__)
    arrays["asin_order"][np.array(in_order, np.int64)] = np.arange(len(in_order))
    terms = sorted((term.encode(*_ENCODING), number) for term, number in found.vocabulary.items())
    numbers = np.array([number for _, number in terms], np.int64)
    _fill_texts([text for text, _ in terms], arrays["term_text"], arrays["term_starts"])
    np.cumsum(found.frequencies[numbers], out=arrays["term_ranges"][1:])
    keys = sorted(found.keys)
    _fill_texts(keys, arrays["key_text"], arrays["key_starts"])
    np.cumsum([len(found.keys[key]) for key in keys], out=arrays["key_ranges"][1:])
    for key, start in zip(keys, arrays["key_ranges"].tolist(), strict=False):
        arrays["key_documents"][start : start + len(found.keys[key])] = found.keys[key]
    new_numbers = np.empty(len(numbers), np.int32)
    new_numbers[numbers] = np.arange(len(numbers), dtype=np.int32)
    _place(found, new_numbers, arrays)
    arrays["numbers"][:] = found.numbers
    _shelve(arrays)
    _fill_blocks(arrays)


def _fill_texts(texts: Sequence[bytes], text: NDArray[np.uint8], starts: NDArray[np.int64]) -> None:
    text[:] = np.frombuffer(b"".join(texts), np.uint8)
    np.cumsum([len(part) for part in texts], out=starts[1:])


def _place(found: Postings, new_numbers: NDArray[np.int32], arrays: Arrays) -> None:
    """Puts each posting after the earlier ones of the same term."""
    arrays["saturations"][:] = found.saturations
    inverse_norms = _inverse_norms(found, coarse_lengths(np.asarray(found.lengths, np.int64)))
    cursors = arrays["term_ranges"][:-1].copy()
    found.spool.seek(0)
    first = 0
    for size, postings in found.blocks:
        distinct, terms, counts = (_read(found.spool, length) for length in (size, postings, postings))
        documents = np.repeat(np.arange(first, first + size, dtype=np.int32), distinct)
        first += size
        terms = new_numbers[terms]
        order = np.argsort(terms, kind="stable")
        terms, documents, counts = terms[order], documents[order], counts[order]
        begins = np.flatnonzero(np.diff(terms, prepend=np.int32(-1)))
        lengths = np.diff(begins, append=postings)
        places = cursors[terms] + np.arange(postings) - np.repeat(begins, lengths)
        cursors[terms[begins]] += lengths
        arrays["documents"][places] = documents
        codes = np.searchsorted(found.saturations, _saturations(counts, inverse_norms[documents]))
        arrays["codes"][places] = codes


def _shelve(arrays: Arrays) -> None:
    """Gives documents their numbers in the order of the index, and puts the postings of each term in that order."""
    new = np.empty(len(arrays["numbers"]), np.int64)
    new[arrays["numbers"]] = np.arange(len(new))
    ranges, size = arrays["term_ranges"], len(arrays["documents"])
    start = 0
    while start < size:
        # As many whole terms as go into a block, or one.
        last = max(np.searchsorted(ranges, start + _BLOCK, side="right") - 1, np.searchsorted(ranges, start, "right"))
        first, stop = np.searchsorted(ranges, start, side="right") - 1, int(ranges[last])
        terms = np.repeat(np.arange(first, last), np.diff(ranges[first : last + 1]))
        documents = new[arrays["documents"][start:stop]]
        order = np.argsort(terms * len(new) + documents)
        arrays["documents"][start:stop] = documents[order]
        arrays["codes"][start:stop] = arrays["codes"][start:stop][order]
        start = stop


def _fill_blocks(arrays: Arrays) -> None:
    """Fills in the largest codes of blocks for the terms that have a posting a block or more."""
    blocks = number_of_blocks(len(arrays["numbers"]))
    frequent = np.diff(arrays["term_ranges"]) >= blocks
    arrays["block_rows"][:] = np.where(frequent, np.cumsum(frequent) - 1, -1)
    table = arrays["block_codes"].reshape(-1, blocks) if blocks else ()
    for row, number in zip(table, np.flatnonzero(frequent).tolist(), strict=True):
        part = slice(*arrays["term_ranges"][number : number + 2])
        row[:] = largest_of_blocks(arrays["documents"][part], arrays["codes"][part], blocks)


def _read(spool: IO[bytes], length: int) -> NDArray[np.int32]:
    return np.frombuffer(spool.read(4 * length), np.int32)


def _saturations(counts: NDArray[np.integer], inverse_norms: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.float32(1) + counts.astype(np.float32) * inverse_norms


def _inverse_norms(found: Postings, coarse: NDArray[np.int64]) -> NDArray[np.float32]:
    """1 / (k1 (1 - b + b length / average length)) of documents of these lengths."""
    average = np.float32(np.asarray(found.lengths, np.int64).sum() / max(found.counted, 1))
    if not average:
        return np.zeros(len(coarse), np.float32)
    one = np.float32(1)
    inverse: NDArray[np.float32] = one / (K1 * ((one - B) + B * coarse.astype(np.float32) / average))
    return inverse
