"""From a stream of products to the arrays of a search index.

One pass analyzes the products and writes numbered postings to a temporary file. Then their sizes are known, and a
second pass over that file puts each posting in its place. So neither all products nor all postings are in memory at
once. Lucene's arithmetic is kept to the bit: lengths as coarse as its one-byte norms, and float32 in its order.
"""

import tempfile
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from webshop_server.catalog.product import Product
from webshop_server.search.files import Arrays, Shapes
from webshop_server.text.analyzer import tokens

K1, B = np.float32(0.9), np.float32(0.4)
"""BM25's parameters, pyserini's defaults: how soon repetition stops counting, and how much length counts."""

Integers: TypeAlias = "array[int]"  # array takes a parameter only in a type checker's eyes before Python 3.12

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
        vocabulary: Number of each term, in the order in which they were first seen.
        frequencies: Number of documents of each term.
        keys: Documents by special query.
        blocks: Documents and postings in each block.
        spool: The blocks: terms of each document, then for each posting its term and how often it occurs; int32.
    """

    spool: IO[bytes]
    asins: list[bytes] = field(default_factory=list)
    lengths: Integers = field(default_factory=lambda: array("q"))
    vocabulary: dict[str, int] = field(default_factory=dict)
    frequencies: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    keys: dict[bytes, Integers] = field(default_factory=dict)
    blocks: list[tuple[int, int]] = field(default_factory=list)

    @property
    def counted(self) -> int:
        """Number of documents with a term, which is what Lucene calls the number of documents."""
        return int(np.count_nonzero(self.lengths))

    @property
    def shapes(self) -> Shapes:
        """The arrays that `fill` fills."""
        postings = int(self.frequencies.sum())
        return {
            "asin_text": ("u1", sum(map(len, self.asins))),
            "asin_starts": ("<i8", len(self.asins) + 1),
            "asin_order": ("<i4", len(self.asins)),
            "term_text": ("u1", sum(len(term.encode(*_ENCODING)) for term in self.vocabulary)),
            "term_starts": ("<i8", len(self.vocabulary) + 1),
            "term_ranges": ("<i8", len(self.vocabulary) + 1),
            "documents": ("<i4", postings),
            "saturations": ("<f4", postings),
            "key_text": ("u1", sum(map(len, self.keys))),
            "key_starts": ("<i8", len(self.keys) + 1),
            "key_ranges": ("<i8", len(self.keys) + 1),
            "key_documents": ("<i4", sum(map(len, self.keys.values()))),
        }


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
        for key in special_keys(product):
            found.keys.setdefault(key.encode(*_ENCODING), array("i")).append(document)
        terms.extend([found.vocabulary.setdefault(term, len(found.vocabulary)) for term in frequency])
        counts.extend(frequency.values())
        distinct.append(len(frequency))
        if len(terms) >= _BLOCK:
            _spool(found, distinct, terms, counts)
            distinct, terms, counts = array("i"), array("i"), array("i")
    _spool(found, distinct, terms, counts)


def _spool(found: Postings, distinct: Integers, terms: Integers, counts: Integers) -> None:
    """Puts a block of postings aside and counts the documents of its terms."""
    for part in (distinct, terms, counts):
        found.spool.write(part.tobytes())
    found.blocks.append((len(distinct), len(terms)))
    frequencies = np.bincount(np.asarray(terms), minlength=len(found.vocabulary))
    frequencies[: len(found.frequencies)] += found.frequencies
    found.frequencies = frequencies


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


def _fill_texts(texts: Sequence[bytes], text: NDArray[np.uint8], starts: NDArray[np.int64]) -> None:
    text[:] = np.frombuffer(b"".join(texts), np.uint8)
    np.cumsum([len(part) for part in texts], out=starts[1:])


def _place(found: Postings, new_numbers: NDArray[np.int32], arrays: Arrays) -> None:
    """Puts each posting after the earlier ones of the same term."""
    inverse_norms = _inverse_norms(found)
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
        arrays["saturations"][places] = np.float32(1) + counts.astype(np.float32) * inverse_norms[documents]


def _read(spool: IO[bytes], length: int) -> NDArray[np.int32]:
    return np.frombuffer(spool.read(4 * length), np.int32)


def _inverse_norms(found: Postings) -> NDArray[np.float32]:
    """1 / (k1 (1 - b + b length / average length)) of each document."""
    lengths = np.asarray(found.lengths, np.int64)
    average = np.float32(lengths.sum() / max(found.counted, 1))
    if not average:
        return np.zeros(len(lengths), np.float32)
    one = np.float32(1)
    inverse: NDArray[np.float32] = one / (K1 * ((one - B) + B * coarse_lengths(lengths).astype(np.float32) / average))
    return inverse
