"""Search as the original does it: BM25 that ranks exactly as Lucene 9.5 under pyserini, and the special queries.

    score = sum over distinct query terms of w - w / (1 + tf / (k1 (1 - b + b length / average length)))
    w = occurrences in the query * ln(1 + (N - df + 0.5) / (df + 0.5)),   k1 = 0.9, b = 0.4

What a term adds depends on few values, which are computed when the index is built, so a posting is the number of a
document and the number of a value. `ranking` finds the best documents. The index is one file beside its catalogue,
which all workers of a machine map into memory together. In it products of a shelf (path and search phrase) are side by
side, so that most blocks of documents have few words of a query. Callers see the order of the catalogue.

When the first keyword is one of these, the rest is no search for words:

| keyword | meaning |
|---|---|
| `<r>` | a sample of all products; the same words give the same sample, so that pages fit together, others another |
| `<a> attribute` | all products with the attribute |
| `<c> category` | all products of the category |
| `<q> query` | all products that were found with the query |
"""

import logging
import math
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webshop_server.catalog.array_file import ArrayFileError, Arrays, empty_arrays, new_file, open_file
from webshop_server.catalog.catalog import Catalog
from webshop_server.catalog.one_by_one import OneByOne
from webshop_server.catalog.progress import counted
from webshop_server.search.build import collect, fill
from webshop_server.search.ranking import Term, Totals, best, number_of_blocks
from webshop_server.text.analyzer import tokens

LIMIT = 50
"""Results of a search, in the original."""

_LISTS = ("<a>", "<c>", "<q>")
_VERSION = 2  # of the analyzer and of the arrays; a file of another version is built again
_log = logging.getLogger(__name__)


def is_special(keywords: Sequence[str]) -> bool:
    """Whether the first keyword makes this something else than a search for words."""
    return bool(keywords) and keywords[0] in ("<r>", *_LISTS)


class SearchIndex:
    """An index of one catalogue. It never changes, and any number of threads may search it."""

    def __init__(self, facts: dict[str, Any], arrays: Arrays) -> None:
        """Wraps what was built or read; use `open` or `build`."""
        self._counted: int = facts["counted"]
        self._hash: str = facts["catalog"]
        self._asins = _Texts(arrays["asin_text"], arrays["asin_starts"])
        self._asin_order = arrays["asin_order"]
        self._terms = _Texts(arrays["term_text"], arrays["term_starts"])
        self._term_ranges = arrays["term_ranges"]
        self._documents = arrays["documents"]
        self._codes = arrays["codes"]
        self._saturations: NDArray[np.float32] = arrays["saturations"]
        self._block_rows = arrays["block_rows"]
        self._block_codes = arrays["block_codes"].reshape(-1, max(1, number_of_blocks(len(self._asin_order))))
        self._numbers = arrays["numbers"]
        self._keys = _Texts(arrays["key_text"], arrays["key_starts"])
        self._key_ranges = arrays["key_ranges"]
        self._key_documents = arrays["key_documents"]
        self._scratch: list[Totals] = []  # as many as there were searches at a time

    @classmethod
    def build(cls, catalog: Catalog) -> "SearchIndex":
        """Builds an index in memory."""
        return cls._new(catalog, None)

    @classmethod
    def open(cls, catalog: Catalog) -> "SearchIndex":
        """Opens the index beside a catalogue, or builds it there.

        Opening takes milliseconds. Several processes may open and build at the same time; the file is always whole.
        A file that is damaged or of another version is built again, with a warning in the log. Where there is no
        folder, or the file can be neither read nor written, the index is built in memory.

        Args:
            catalog: What to search.

        Returns:
            The index.
        """
        if catalog.folder is None:
            return cls._new(catalog, None)
        path = index_path(catalog.folder, catalog.hash)
        try:
            return cls._read(path, catalog.hash)
        except OSError:
            _log.info("building the search index %s", path)
        except ArrayFileError as error:
            _log.warning("%s; building it again", error)
        with catalog.one_builder():
            # Another process may have built it meanwhile.
            with suppress(OSError, ArrayFileError):
                return cls._read(path, catalog.hash)
            return cls._new(catalog, path)

    @classmethod
    def _new(cls, catalog: Catalog, path: Path | None) -> "SearchIndex":
        """Builds an index, in a file if that is possible and wanted."""
        with collect(counted(catalog.products(), "indexing", len(catalog))) as found:
            facts = {"version": _VERSION, "catalog": catalog.hash, "counted": found.counted}
            if path is not None:
                try:
                    with new_file(path, facts, found.shapes) as arrays:
                        fill(found, arrays)
                    return cls._read(path, catalog.hash)
                except OSError as error:
                    _log.warning("the search index %s cannot be written (%s); it is kept in memory", path, error)
            arrays = empty_arrays(found.shapes)
            fill(found, arrays)
            return cls(facts, arrays)

    @classmethod
    def _read(cls, path: Path, catalog_hash: str) -> "SearchIndex":
        facts, arrays = open_file(path)
        if (facts["version"], facts["catalog"]) != (_VERSION, catalog_hash):
            raise ArrayFileError(f"{path} is the index of another catalogue or version")
        return cls(facts, arrays)

    def __len__(self) -> int:
        """Number of products."""
        return len(self._asins)

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
        if keywords and keywords[0] == "<r>":
            # Seeded by text, hence the same in every process and on every page of the results.
            sample = random.Random(f"{self._hash} {query}").sample(range(len(self)), min(limit, len(self)))
            return [self._asins[document] for document in sample]
        if keywords and keywords[0] in _LISTS:
            answers = self._answers(keywords)  # a category has hundreds of thousands
            return OneByOne(len(answers), lambda place: self._asins[answers[place]])
        return [asin for asin, _ in self.scores(query, limit)]

    def scores(self, query: str, limit: int = LIMIT) -> list[tuple[str, float]]:
        """The ranking of a query and Lucene's scores, float32 to the last bit.

        Args:
            query: Any text.
            limit: Most products to return.

        Returns:
            Identifiers with scores above 0, best first; equal scores in the order of the identifiers.
        """
        terms = self.terms(query)
        try:
            scratch = self._scratch.pop()
        except IndexError:  # other threads have them all
            scratch = np.zeros(len(self), np.float32)
        matches, scores = best(terms, limit, scratch)
        self._scratch.append(scratch)
        numbers = self._numbers[matches]
        order = np.lexsort((self._asin_order[numbers], -scores))[:limit]
        return [(self._asins[numbers[i]], float(scores[i])) for i in order.tolist()]

    def terms(self, query: str) -> list[Term]:
        """The terms of a query that occur in the catalogue, in the order of the query."""
        found = ((self._terms.find(term), occurrences) for term, occurrences in Counter(tokens(query)).items())
        return [self._term(number, occurrences) for number, occurrences in found if number is not None]

    def _term(self, number: int, occurrences: int) -> Term:
        start, stop = self._term_ranges[number], self._term_ranges[number + 1]
        weight = np.float32(occurrences) * self._inverse_frequency(int(stop - start))
        gains: NDArray[np.float32] = weight - weight / self._saturations
        row = self._block_rows[number]
        block_codes = None if row < 0 else self._block_codes[row]
        return Term(self._documents[start:stop], self._codes[start:stop], gains, block_codes)

    def _answers(self, keywords: Sequence[str]) -> Sequence[int]:
        """Products that a special query other than `<r>` names. A category is one word, as in the original."""
        rest = keywords[1:2] if keywords[0] == "<c>" else keywords[1:]
        number = self._keys.find(f"{keywords[0]} {' '.join(rest).lower().strip()}")
        if number is None:
            return ()
        answers: Sequence[int] = self._key_documents[self._key_ranges[number] : self._key_ranges[number + 1]].data
        return answers

    def _inverse_frequency(self, documents: int) -> np.float32:
        """What a term that occurs in so many documents weighs."""
        return np.float32(math.log(1 + (self._counted - documents + 0.5) / (documents + 0.5)))


def index_path(folder: Path, catalog_hash: str) -> Path:
    """The path of a catalogue's index."""
    return folder / f"search-{catalog_hash[:16]}.index"


class _Texts:
    """Many texts in one array of bytes."""

    def __init__(self, text: NDArray[np.uint8], starts: NDArray[np.int64]) -> None:
        self._text = text.data
        self._starts = starts.data

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> str:
        return self._bytes(number).decode("utf-8", "surrogatepass")

    def find(self, text: str) -> int | None:
        """The number of a text among sorted ones, or None."""
        wanted = text.encode("utf-8", "surrogatepass")
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._bytes(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self._bytes(low) == wanted else None

    def _bytes(self, number: int) -> bytes:
        return bytes(self._text[self._starts[number] : self._starts[number + 1]])
