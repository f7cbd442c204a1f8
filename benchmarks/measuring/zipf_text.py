"""Texts of drawn words, as long and as rich as those of real products: what would a million of these cost a search?

Fitted to the documents of the public 1000 products (107,608 terms, 12,074 different ones): lengths are log-normal, and
the term of rank r is drawn with a probability proportional to (r + OFFSET) ** -EXPONENT (Zipf's law as Mandelbrot wrote
it). That meets how the vocabulary grows (Heaps' law) and how much of a text the ten most frequent terms are.
`tests/benchmarks/test_zipf_text.py` holds the fit next to the real products. Terms are drawn independently of each
other, where real texts have topics: so no group of documents is of one kind, which is the hardest case for a search.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from webshop_server.catalog.array_file import new_file, open_file
from webshop_server.search.build import Postings, fill
from webshop_server.search.index import SearchIndex

EXPONENT, OFFSET = 1.6, 80.0
RANKS = 6_000_000  # the rarest words are hardly drawn
LOG_LENGTH = (4.349, 0.847)  # mean and standard deviation of the logarithm of a document's number of terms
QUERY_TERMS = (22.3, 3.7)  # mean and standard deviation of the different terms of an instruction, options included
_BATCH = 5000  # documents drawn at a time


def probabilities() -> NDArray[np.float64]:
    """Of each rank."""
    weights = (np.arange(1.0, RANKS + 1) + OFFSET) ** -EXPONENT
    return weights / weights.sum()


def expected_vocabulary(terms: int) -> float:
    """How many different terms so many drawn ones have, on average."""
    return -float(np.expm1(-terms * probabilities()).sum())


def drawn_documents(count: int, seed: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Documents in batches: the number of terms of each, and the ranks of all their terms, one after the other."""
    rng = np.random.default_rng(seed)
    limits = np.cumsum(probabilities())
    for first in range(0, count, _BATCH):
        lengths = np.exp(rng.normal(*LOG_LENGTH, min(_BATCH, count - first))).round().astype(np.int64).clip(1)
        yield lengths, np.searchsorted(limits, rng.random(lengths.sum()))


def build_index(path: Path, count: int, seed: int) -> SearchIndex:
    """Builds a search index of drawn documents. Their texts are not written out and analyzed, only counted."""
    with tempfile.TemporaryFile() as spool:
        found = Postings(spool)
        numbers = np.full(RANKS, -1, np.int32)  # of the ranks that have been seen
        for lengths, ranks in drawn_documents(count, seed):
            first = len(found.asins)
            found.asins += [f"Z{number:09d}".encode() for number in range(first, first + len(lengths))]
            found.lengths.extend(lengths.tolist())
            found.shelves.extend([0] * len(lengths))
            keys, counts = np.unique(np.repeat(np.arange(len(lengths)), lengths) * RANKS + ranks, return_counts=True)
            documents, ranks = np.divmod(keys, RANKS)
            new = np.unique(ranks[numbers[ranks] < 0])
            numbers[new] = np.arange(len(found.vocabulary), len(found.vocabulary) + len(new))
            new_terms = zip(new.tolist(), numbers[new].tolist(), strict=True)
            found.vocabulary |= {f"t{rank}": number for rank, number in new_terms}
            distinct = np.bincount(documents, minlength=len(lengths))
            found.put_aside(*(part.astype(np.int32) for part in (distinct, numbers[ranks], counts)))
        found.shelf_numbers["", ""] = 0
        facts = {"counted": found.counted, "catalog": f"zipf {count} {seed}"}
        with new_file(path, facts, found.shapes) as arrays:
            fill(found, arrays)
    return SearchIndex(*open_file(path))


def drawn_queries(count: int, seed: int) -> list[str]:
    """As many terms as real instructions have, drawn from those of a document each that has so many."""
    rng = np.random.default_rng([seed, 1])
    made: list[str] = []
    for lengths, ranks in drawn_documents(_BATCH, seed):
        for document in np.split(ranks, np.cumsum(lengths)[:-1]):
            wanted = max(1, round(rng.normal(*QUERY_TERMS)))
            terms = list(dict.fromkeys(rng.permutation(document).tolist()))[:wanted]
            if len(terms) == wanted and len(made) < count:
                made.append(" ".join(f"t{rank}" for rank in terms))
    return made
