"""The best documents of a query, found without adding up all its postings, and their scores to the last bit.

The score of a document is the sum over the query's terms of what each term adds, never less than nothing. A term adds
to no document more than its *top*, which is known without looking. Terms are taken in the order of their tops, so the
rare ones come first. As soon as all that is left cannot lift a new document to the place that is asked for, documents
that have none of the terms so far are out (Turtle and Flood's MaxScore, 1995). The postings of the terms that are left
are then only looked up for those that are still in the running.

What the bounds decide is who is out, never a score. Sums in another order than Lucene's differ in the last bit of
float64, and documents may tie in float32 only, so a document is out only if it stays below the place by more than a
millionth. The scores of all others are added up again in the order of the query.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Documents = NDArray[np.int32]
Sums = NDArray[np.float64]
Codes = NDArray[np.unsignedinteger]

FEW = 1 << 14  # postings of a query that are quicker added up than thought about
_SLACK = 1 - 2.0**-20  # float32 keeps 24 bits
BLOCK = 512  # documents
_FIRST = 16  # blocks that are added up to learn what a document must have
_MOST = 0.5  # of the blocks; more are not worth a copy
_LOOK_UP = 8  # postings that are added in the time of one look-up


@dataclass(frozen=True)
class Term:
    """A term of a query.

    Attributes:
        documents: Those with the term, ascending.
        codes: For each of them, the number of what the term adds.
        gains: What the term adds, by number: never less for a larger number, and nothing for 0.
        block_codes: For each block of `BLOCK` documents, the largest of their numbers, 0 where none has the term. None
            for a rare term.
    """

    documents: Documents
    codes: Codes
    gains: NDArray[np.float32]
    block_codes: Codes | None

    @cached_property
    def top(self) -> float:
        """The most that the term adds to a document."""
        return float(self.gains[(self.codes if self.block_codes is None else self.block_codes).max()])

    def within(self, blocks: NDArray[np.intp]) -> "Term":
        """The same for the documents of some blocks, ascending."""
        begins = np.flatnonzero(np.diff(blocks, prepend=-2) > 1)
        ends = np.append(begins[1:], len(blocks)) - 1
        edges = np.stack([blocks[begins], blocks[ends] + 1], 1).astype(np.int32) * np.int32(BLOCK)
        ranges = [slice(*places) for places in np.searchsorted(self.documents, edges).tolist()]
        documents, codes = (np.concatenate([part[at] for at in ranges]) for part in (self.documents, self.codes))
        return Term(documents, codes, self.gains, None if self.block_codes is None else self.block_codes[blocks])


def number_of_blocks(documents: int) -> int:
    """In how many blocks so many documents are."""
    return -(-documents // BLOCK)


def largest_of_blocks(documents: Documents, codes: Codes, blocks: int) -> Codes:
    """The largest code in each of so many blocks, 0 where there is none."""
    found, begins = np.unique(documents // BLOCK, return_index=True)
    largest = np.zeros(blocks, codes.dtype)
    largest[found] = np.maximum.reduceat(codes, begins)
    return largest


def best(terms: Sequence[Term], limit: int, scratch: Sums) -> tuple[Documents, NDArray[np.float32]]:
    """Finds the documents with the highest scores.

    Args:
        terms: Of the query, in its order, in which the scores are added up.
        limit: How many are wanted, at least 1.
        scratch: A zero for each document; zeros again afterwards.

    Returns:
        The documents whose score is above 0 and not below the one at place `limit`, in no order, and their scores:
        parts in float32, the sum in float64, rounded to float32. More than `limit` only where scores tie.
    """
    if sum(len(term.documents) for term in terms) <= FEW:
        documents, sums = _all(terms, scratch)
    else:
        terms, floor = _in_good_blocks(terms, limit, scratch)
        documents = _contenders(terms, limit, floor, scratch)
        sums = np.zeros(len(documents))
        for term in terms:
            sums += _looked_up(term, documents)
    scores = sums.astype(np.float32)
    good = scores >= _place(scores, limit) if len(scores) > limit else scores > 0
    return documents[good], scores[good]


def _all(terms: Sequence[Term], scratch: Sums) -> tuple[Documents, Sums]:
    """All documents with one of the terms, and their sums."""
    totals = _Totals(scratch)
    for term in terms:
        totals.add(term)
    documents = totals.found()
    sums = scratch[documents]
    totals.clear()
    return documents, sums


def _in_good_blocks(terms: Sequence[Term], limit: int, scratch: Sums) -> tuple[Sequence[Term], float]:
    """The terms in the blocks that may have one of the best documents, and what such a document has at least."""
    bounds = np.zeros(number_of_blocks(len(scratch)))
    for term in terms:
        codes = term.block_codes
        if codes is None:
            codes = largest_of_blocks(term.documents, term.codes, len(bounds))
        bounds += term.gains[codes]
    first = min(_FIRST, len(bounds))
    promising = np.sort(np.argpartition(bounds, -first)[-first:])
    _, sums = _all([term.within(promising) for term in terms], scratch)
    floor = float(_place(sums, limit)) * _SLACK if len(sums) >= limit else 0.0
    blocks = np.flatnonzero(bounds >= floor)
    if len(blocks) > _MOST * len(bounds):
        return terms, floor
    narrowed = [term.within(blocks) for term in terms]
    return [term for term in narrowed if len(term.documents)], floor


def _place(sums: NDArray[np.floating], limit: int) -> np.floating:
    """The sum at place `limit`."""
    last: np.floating = np.partition(sums, len(sums) - limit)[len(sums) - limit]
    return last


def _looked_up(term: Term, documents: Documents) -> NDArray[np.float32]:
    """What a term adds to each of some ascending documents."""
    places = np.searchsorted(term.documents, documents)
    np.minimum(places, len(term.documents) - 1, out=places)
    added = term.gains[term.codes[places]]
    added[term.documents[places] != documents] = 0
    return added


class _Totals:
    """Sums of all documents, of which only those that occur are touched."""

    def __init__(self, scratch: Sums) -> None:
        self._sums = scratch
        self._found: list[Documents] = []
        self._touched: list[Documents] = []

    def add(self, term: Term) -> tuple[Documents, Sums]:
        """Adds a term to all its documents; returns these and their sums."""
        before = self._sums[term.documents]
        sums = before + term.gains[term.codes]
        self._sums[term.documents] = sums  # one posting a document, so setting by index is right
        self._found.append(term.documents[(before == 0) & (sums > 0)])  # a very long document may gain nothing
        self._touched.append(term.documents)
        return term.documents, sums

    def add_for(self, documents: Documents, term: Term) -> Sums:
        """Adds a term to documents that were found, ascending; returns their sums."""
        if len(documents) * _LOOK_UP < len(term.documents):
            self._sums[documents] += _looked_up(term, documents)
        else:
            self._sums[term.documents] += term.gains[term.codes]
            self._touched.append(term.documents)
        return self._sums[documents]

    def found(self) -> Documents:
        """The documents of the terms that were added to all, in no order."""
        return np.concatenate(self._found) if self._found else np.zeros(0, np.int32)

    def clear(self) -> None:
        """Makes the sums zeros again."""
        for documents in self._touched:
            self._sums[documents] = 0


class _Leaders:
    """The documents that are best so far, from which it is known what a document must reach."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._documents = np.zeros(0, np.int32)
        self._mark = 0.0  # what a document must have to become one

    def floor(self, documents: Documents, sums: Sums, scratch: Sums, later: Sequence[Term]) -> float:
        """What the document at place `limit` has at least, a little less.

        Args:
            documents: To which a term was added just now.
            sums: Of these.
            scratch: Sums of all documents.
            later: Terms that were not added yet.
        """
        better = sums > self._mark
        fresh = _highest(documents[better], sums[better], 2 * self._limit)
        documents = np.union1d(self._documents, fresh)
        self._documents = np.sort(_highest(documents, scratch[documents], 2 * self._limit))
        complete = scratch[self._documents]
        if len(complete) < self._limit:
            return 0.0
        if len(complete) == 2 * self._limit:
            self._mark = float(complete.min())
        for term in later:
            complete += _looked_up(term, self._documents)
        return float(_place(complete, self._limit)) * _SLACK


def _highest(documents: Documents, sums: Sums, count: int) -> Documents:
    """Those with the highest sums, in no order."""
    return documents if len(documents) <= count else documents[np.argpartition(sums, len(sums) - count)[-count:]]


def _contenders(terms: Sequence[Term], limit: int, floor: float, scratch: Sums) -> Documents:
    """All documents that may be at place `limit` or above, ascending; those below `floor` are not."""
    ordered = sorted(terms, key=lambda term: -term.top)
    rest = np.cumsum([0.0, *(term.top for term in reversed(ordered))])[::-1].tolist()  # the most that later terms add
    totals, leaders = _Totals(scratch), _Leaders(limit)
    place = 0
    while place < len(ordered) and rest[place] >= floor:
        documents, sums = totals.add(ordered[place])
        place += 1
        if place < len(ordered):
            floor = max(floor, leaders.floor(documents, sums, scratch, ordered[place:]))
    documents = totals.found()
    sums = scratch[documents]
    documents = np.sort(documents[sums + rest[place] >= floor])
    for number in range(place, len(ordered)):
        sums = totals.add_for(documents, ordered[number])
        documents = documents[sums + rest[number + 1] >= floor]
    sums = scratch[documents]
    if len(sums) > limit:
        floor = max(floor, float(_place(sums, limit)) * _SLACK)
    totals.clear()
    return documents[sums >= floor]
