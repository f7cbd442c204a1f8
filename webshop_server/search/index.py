"""Search as the original does it: BM25 that ranks exactly as Lucene 9.5 under pyserini, and the special queries.

    score = sum over distinct query terms of w - w / (1 + tf / (k1 (1 - b + b length / average length)))
    w = occurrences in the query * ln(1 + (N - df + 0.5) / (df + 0.5)),   k1 = 0.9, b = 0.4

The index is made in one pass over the products and kept beside the catalogue. When the first keyword is one of these,
the rest is no search for words:

| keyword | finds |
|---|---|
| `<r>` | a random sample; the same words give the same sample |
| `<a> waterproof` | all products with this attribute |
| `<c> fashion` | all products of this department |
| `<q> running shoes` | all products found with this search phrase |
"""

import functools
import math
import random
import tempfile
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webshop_server.catalog.arrays import Arrays, counted, open_arrays
from webshop_server.catalog.catalog import Catalog
from webshop_server.catalog.product import Product
from webshop_server.text.analyzer import tokens

LIMIT = 50
"""Results of a search, in the original."""
K1, B = np.float32(0.9), np.float32(0.4)
"""BM25's parameters, pyserini's defaults: how soon repetition stops counting, and how much length counts."""

_SAMPLE, _LISTS = "<r>", ("<a>", "<c>", "<q>")
_VERSION = 4  # of the analyzer and of the arrays; those of another version are made again
_BLOCK = 1 << 20  # postings sorted at a time
_LOOK_UP = 5  # postings that are added in the time of one look-up
_AT_ONCE = 1 << 15  # postings whose intermediate results stay in the processor's cache
_SLACK = 1 - 1e-4  # more than what rounding changes in a sum of float32
_IN_MEMORY = 32 << 20  # bytes of postings before a temporary file is used
_ENCODING = ("utf-8", "surrogatepass")  # JSON can name half a surrogate pair


def is_special(keywords: Sequence[str]) -> bool:
    """Whether the first keyword makes this something else than a search for words."""
    return bool(keywords) and keywords[0] in (_SAMPLE, *_LISTS)


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


class SearchIndex:
    """An index of one catalogue. It never changes, and any number of threads may search it."""

    def __init__(self, arrays: Arrays, catalog_hash: str) -> None:
        """Wraps what `_make_arrays` made; use `open`."""
        self._hash = catalog_hash
        self._counted = int(arrays["counted"][0])
        self._asins = _Texts(arrays["asin_text"], arrays["asin_starts"])
        self._asin_order = arrays["asin_order"]
        self._terms = _Texts(arrays["term_text"], arrays["term_starts"])
        self._ranges, self._norms = arrays["term_ranges"], arrays["norms"]
        self._documents, self._counts = arrays["documents"], arrays["counts"]

    @classmethod
    def open(cls, catalog: Catalog) -> "SearchIndex":
        """Opens the index beside a catalogue, which takes milliseconds, or builds it there; see `open_arrays`."""
        folder = catalog.beside(f"search-{_VERSION}")
        return cls(open_arrays(folder, functools.partial(_make_arrays, catalog)), catalog.hash)

    def search(self, keywords: Sequence[str], limit: int = LIMIT) -> Sequence[str]:
        """Finds products.

        Args:
            keywords: Words of the query; the first may be one of the special ones.
            limit: Most products that a search or `<r>` gives. The other special queries give all that fit, in
                the order of the catalogue, as in the original.

        Returns:
            Identifiers of the products, best first.

        Raises:
            ValueError: If `keywords` is one string or `limit` is below 1.
        """
        if isinstance(keywords, str) or limit < 1:
            raise ValueError(f"keywords={keywords!r}, limit={limit}: a list of words and a limit above 0 are needed")
        query = " ".join(keywords)
        if not is_special(keywords):
            return [asin for asin, _ in self.scores(query, limit)]
        if keywords[0] == _SAMPLE:
            # Seeded by text, hence the same in every process and on every page of the results.
            products = range(len(self._asins))
            sample = random.Random(f"{self._hash} {query}").sample(products, min(limit, len(products)))
            return [self._asins[document] for document in sample]
        rest = keywords[1:2] if keywords[0] == "<c>" else keywords[1:]  # a category is one word, as in the original
        number = self._terms.find(f"{keywords[0]} {' '.join(rest).lower().strip()}")
        return () if number is None else _Hits(self._asins, self._documents[slice(*self._ranges[number : number + 2])])

    def scores(self, query: str, limit: int = LIMIT) -> list[tuple[str, float]]:
        """The ranking of a query and Lucene's scores, float32 to the last bit.

        They are above 0, best first; equal scores stand in the order of the identifiers.
        """
        counted = ((self._terms.find(text), times) for text, times in Counter(tokens(query)).items())
        terms = [self._term(number, times) for number, times in counted if number is not None]
        documents = self._contenders(terms, limit)
        # Lucene adds in float64, term after term in the order of the query, and so does this.
        sums = np.zeros(len(documents))
        for term in terms:
            sums += self._looked_up(term, documents)
        scores = sums.astype(np.float32)
        order = np.lexsort((self._asin_order[documents], -scores))[:limit]
        return [(self._asins[int(documents[place])], float(scores[place])) for place in order.tolist()]

    def _term(self, number: int, times: int) -> "_Term":
        postings = slice(*self._ranges[number : number + 2].tolist())
        having = postings.stop - postings.start
        rarity = np.float32(math.log(1 + (self._counted - having + 0.5) / (having + 0.5)))
        return _Term(self._documents[postings], self._counts[postings], np.float32(times) * rarity)

    def _gains(self, term: "_Term", places: Any, documents: NDArray[Any]) -> NDArray[np.float32]:
        """What a term adds to some documents, whose postings are at these places."""
        saturations = term.counts[places].astype(np.float32)
        saturations *= self._norms.take(documents)
        saturations += 1
        gains: NDArray[np.float32] = term.weight - term.weight / saturations
        return gains

    def _looked_up(self, term: "_Term", documents: NDArray[np.int32]) -> NDArray[np.float32]:
        """What a term adds to each of some ascending documents."""
        places = np.minimum(term.documents.searchsorted(documents), len(term.documents) - 1)
        return np.where(term.documents[places] == documents, self._gains(term, places, documents), np.float32(0))

    def _contenders(self, terms: Sequence["_Term"], limit: int) -> NDArray[np.int32]:
        """All documents that may be among the best, ascending, and few others: MaxScore (Turtle and Flood, 1995).

        No document gains a term's whole weight. Terms are added by falling weight. Once those left cannot lift a
        document that has nothing yet to the place asked for, they are only looked up for the documents still in the
        running. Sums in float32 and in any order decide only who is out, by more than their rounding.
        """
        ordered = sorted(terms, key=lambda term: -term.weight)
        rest = np.cumsum([0.0, *(float(term.weight) for term in reversed(ordered))])[::-1].tolist()
        sums, floor, place = np.zeros(len(self._asins), np.float32), 0.0, 0
        while place < len(ordered):
            if rest[place] < floor and (
                np.count_nonzero(sums >= floor - rest[place]) * _LOOK_UP < len(ordered[place].documents)
            ):
                break
            totals = np.empty(len(ordered[place].documents), np.float32)
            for start in range(0, len(totals), _AT_ONCE):
                part = slice(start, start + _AT_ONCE)
                documents = ordered[place].documents[part].astype(np.intp)  # NumPy takes these at three times the speed
                gained = self._gains(ordered[place], part, documents)
                gained += sums.take(documents)
                sums[documents] = totals[part] = gained
            floor = _place(totals, limit, floor)
            place += 1
        found = np.flatnonzero(sums >= floor - rest[place] if floor > rest[place] else sums > 0).astype(np.int32)
        totals = sums[found]
        for number in range(place, len(ordered)):
            totals += self._looked_up(ordered[number], found)
            floor = _place(totals, limit, floor)
            kept = totals >= floor - rest[number + 1]
            found, totals = found[kept], totals[kept]
        return found


class _Term(NamedTuple):
    """A term of a query: its postings, and the weight w that times in the query and rarity give it."""

    documents: NDArray[np.int32]
    counts: NDArray[np.uint16]
    weight: np.float32


def _place(totals: NDArray[np.float32], limit: int, floor: float) -> float:
    """What the document at place `limit` has at least: `floor`, or more by the totals of different documents."""
    better = totals[totals > floor]
    if len(better) < limit:
        return floor
    return max(floor, float(np.partition(better, -limit)[-limit]) * _SLACK)


def _make_arrays(catalog: Catalog, new: Callable[[str, str, int], NDArray[Any]]) -> None:
    """Makes the arrays of an index, with Lucene's arithmetic to the bit.

    A pass over the products writes numbered postings to a temporary file, and each posting is then put in its place, so
    memory never holds all products or all postings. A special query is a term that no text has and that counts 0 times.

    | array | what |
    |---|---|
    | `asin_text`, `asin_starts`, `asin_order` | identifiers in the order of the catalogue, and their ranks |
    | `norms` | 1 / (k1 (1 - b + b length / average length)) of each document |
    | `counted` | how many documents have a term, which is what Lucene counts |
    | `term_text`, `term_starts`, `term_ranges` | the terms, sorted, and where each one's postings are |
    | `documents`, `counts` | the postings: number of a document, and how often it has the term |
    """
    asins: list[bytes] = []
    lengths = array("q")
    vocabulary: dict[str, int] = {}
    frequencies = np.zeros(0, np.int64)
    blocks: list[tuple[int, int]] = []
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:
        distinct, terms, counts = array("i"), array("i"), array("i")
        for product in counted(catalog.products(), "indexing", len(catalog)):
            found = Counter(tokens(document_text(product)))
            asins.append(product.asin.encode(*_ENCODING))
            lengths.append(found.total())
            for key in special_keys(product):
                found.setdefault(key, 0)
            distinct.append(len(found))
            terms.extend([vocabulary.setdefault(term, len(vocabulary)) for term in found])
            counts.extend(found.values())
            if len(terms) >= _BLOCK or len(asins) == len(catalog):
                for part in (distinct, terms, counts):
                    spool.write(part.tobytes())
                blocks.append((len(distinct), len(terms)))
                frequencies = np.append(frequencies, np.zeros(len(vocabulary) - len(frequencies), np.int64))
                frequencies += np.bincount(np.asarray(terms), minlength=len(vocabulary))
                distinct, terms, counts = array("i"), array("i"), array("i")
        _fill_texts("asin", asins, new)
        new("asin_order", "<i4", len(asins))[sorted(range(len(asins)), key=asins.__getitem__)] = np.arange(len(asins))
        exact = np.asarray(lengths, np.int64)
        documents = np.count_nonzero(exact)
        new("counted", "<i8", 1)[0] = documents
        norms = new("norms", "<f4", len(asins))
        average = np.float32(exact.sum() / max(documents, 1)) or np.float32(1)
        one = np.float32(1)
        norms[:] = one / (K1 * ((one - B) + B * coarse_lengths(exact).astype(np.float32) / average))
        in_order = sorted((term.encode(*_ENCODING), number) for term, number in vocabulary.items())
        numbers = np.array([number for _, number in in_order], np.int64)
        _fill_texts("term", [text for text, _ in in_order], new)
        ranges = new("term_ranges", "<i8", len(in_order) + 1)
        np.cumsum(frequencies[numbers], out=ranges[1:])
        new_numbers = np.empty(len(numbers), np.int32)
        new_numbers[numbers] = np.arange(len(numbers), dtype=np.int32)
        spool.seek(0)
        all_documents, all_counts = new("documents", "<i4", int(ranges[-1])), new("counts", "<u2", int(ranges[-1]))
        cursors = ranges[:-1].copy()
        first = 0
        for size, postings in blocks:
            parts = (np.frombuffer(spool.read(4 * length), np.int32) for length in (size, postings, postings))
            block_distinct, block_terms, block_counts = parts
            block_documents = np.repeat(np.arange(first, first + size, dtype=np.int32), block_distinct)
            first += size
            block_terms = new_numbers[block_terms]
            order = np.argsort(block_terms, kind="stable")
            block_terms = block_terms[order]
            # Each posting goes after the earlier ones of the same term.
            begins = np.flatnonzero(np.diff(block_terms, prepend=np.int32(-1)))
            having = np.diff(begins, append=postings)
            places = cursors[block_terms] + np.arange(postings) - np.repeat(begins, having)
            cursors[block_terms[begins]] += having
            all_documents[places] = block_documents[order]
            all_counts[places] = np.minimum(block_counts[order], np.iinfo(np.uint16).max)


def _fill_texts(name: str, texts: Sequence[bytes], new: Callable[[str, str, int], NDArray[Any]]) -> None:
    new(f"{name}_text", "u1", sum(map(len, texts)))[:] = np.frombuffer(b"".join(texts), np.uint8)
    np.cumsum([len(text) for text in texts], out=new(f"{name}_starts", "<i8", len(texts) + 1)[1:])


class _Texts:
    """Many texts in one array of bytes."""

    def __init__(self, text: NDArray[np.uint8], starts: NDArray[np.int64]) -> None:
        self._text, self._starts = text.data, starts.data  # which find elements faster than arrays do

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> str:
        return self._bytes(number).decode(*_ENCODING)

    def find(self, text: str) -> int | None:
        """The number of a text among sorted ones, or None."""
        wanted = text.encode(*_ENCODING)
        place = bisect_left(range(len(self)), wanted, key=self._bytes)
        return place if place < len(self) and self._bytes(place) == wanted else None

    def _bytes(self, number: int) -> bytes:
        return bytes(self._text[self._starts[number] : self._starts[number + 1]])


class _Hits(Sequence[str]):
    """Identifiers that are read when they are looked at: a department has hundreds of thousands of products."""

    def __init__(self, asins: _Texts, documents: NDArray[np.int32]) -> None:
        self._asins, self._documents = asins, documents

    def __len__(self) -> int:
        return len(self._documents)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self._asins[document] for document in self._documents[place].tolist()]
        return self._asins[int(self._documents[place])]
