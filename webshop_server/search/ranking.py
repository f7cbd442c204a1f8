"""The best documents of a query, with scores exact to the last bit, without adding up all postings.

This is MaxScore (Turtle and Flood, 1995). No document gains more from a term than the term's known *top*. Terms are
taken by falling tops; once the terms left cannot lift a new document to the place asked for, they are only looked up
for the documents still in the running. Float32 bounds in any order decide only who is out, by more than the rounding
of all additions; the others' scores are added up again as Lucene does it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Documents = NDArray[np.int32]
Totals = NDArray[np.float32]
Codes = NDArray[np.unsignedinteger]
Blocks = NDArray[np.intp]

BLOCK = 512  # documents
SMALL = 1 << 14  # documents that are no trouble
FEW = 1 << 15  # postings a term that are quicker added up than thought about
_FIRST = 16  # blocks that are added up to learn what a document must have
_MOST = 0.5  # of the blocks; more are not worth a copy
_AT_ONCE = 1 << 15  # postings whose intermediate results stay in the processor's cache
_LOOK_UP = 40  # postings that are added in the time of one look-up
_ULP = 2.0**-24  # of what rounding to float32 may change


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

    def within(self, blocks: Blocks, edges: Documents) -> "Term":
        """The same in some blocks alone, whose documents are numbered from 0 on; see `_within`."""
        documents, codes, start = [], [], 0
        for (first, last), (begin, end) in zip(
            edges.tolist(), self.documents.searchsorted(edges).tolist(), strict=True
        ):
            documents.append(self.documents[begin:end] - np.int32(first - start))
            codes.append(self.codes[begin:end])
            start += last - first
        block_codes = None if self.block_codes is None else self.block_codes[blocks]
        return Term(np.concatenate(documents), np.concatenate(codes), self.gains, block_codes)


def _within(terms: Sequence[Term], blocks: Blocks) -> list[Term]:
    """The terms in some blocks, ascending, with their documents renumbered as if there were no others.

    Terms that are in none of the blocks are left out.
    """
    begins = np.flatnonzero(np.diff(blocks, prepend=-2) > 1)
    ends = np.append(begins[1:], len(blocks)) - 1
    edges = np.stack([blocks[begins], blocks[ends] + 1], 1).astype(np.int32) * np.int32(BLOCK)
    narrowed = [term.within(blocks, edges) for term in terms]
    return [term for term in narrowed if len(term.documents)]


def number_of_blocks(documents: int) -> int:
    """In how many blocks so many documents are."""
    return -(-documents // BLOCK)


def largest_of_blocks(documents: Documents, codes: Codes, blocks: int) -> Codes:
    """The largest code in each of so many blocks, 0 where there is none."""
    found, begins = np.unique(documents // BLOCK, return_index=True)
    largest = np.zeros(blocks, codes.dtype)
    largest[found] = np.maximum.reduceat(codes, begins)
    return largest


def best(terms: Sequence[Term], limit: int, scratch: Totals) -> tuple[Documents, NDArray[np.float32]]:
    """Finds the documents with the highest scores.

    Args:
        terms: Of the query, in its order, in which the scores are added up.
        limit: How many are wanted, at least 1.
        scratch: A zero for each document; zeros again afterwards.

    Returns:
        The documents whose score is above 0 and not below the one at place `limit`, ascending, and their scores: parts
        in float32, the sum in float64, rounded to float32. More than `limit` only where scores tie.
    """
    if len(scratch) <= SMALL:
        documents, sums = _plain_sums(terms, len(scratch))
    else:
        documents = _candidates(terms, limit, scratch)
        sums = np.zeros(len(documents))
        for term in terms:
            sums += _looked_up(term, documents)
    scores = sums.astype(np.float32)
    good = scores >= _place(scores, limit) if len(scores) > limit else scores > 0
    return documents[good], scores[good]


def _plain_sums(terms: Sequence[Term], size: int) -> tuple[Documents, NDArray[np.float64]]:
    """All documents of `size` that have gained anything, and their sums."""
    sums = np.zeros(size)
    for term in terms:
        sums[term.documents] += term.gains[term.codes]
    documents = np.flatnonzero(sums).astype(np.int32)
    return documents, sums[documents]


def _candidates(terms: Sequence[Term], limit: int, scratch: Totals) -> Documents:
    """All documents that may be at place `limit` or above, ascending, and few others."""
    slack = 1 - 4 * (len(terms) + 2) * _ULP
    if sum(len(term.documents) for term in terms) <= FEW * len(terms):
        documents = _all(terms, scratch)
        totals = scratch[documents]
        _clear(scratch, terms)
        return documents if len(documents) <= limit else documents[totals >= _place(totals, limit) * slack]
    blocks, floor = _good_blocks(terms, limit, slack, scratch)
    if len(blocks) * BLOCK > _MOST * len(scratch):
        return _contenders(terms, limit, floor, slack, scratch)
    found = _contenders(_within(terms, blocks), limit, floor, slack, scratch[: len(blocks) * BLOCK])
    return (blocks[found // BLOCK] * BLOCK + found % BLOCK).astype(np.int32)


def _add(term: Term, totals: Totals) -> Totals:
    """Adds a term to all its documents; returns their totals. One posting a document, so setting by index is right."""
    added = np.empty(len(term.documents), np.float32)
    for start in range(0, len(added), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        places = term.documents[part].astype(np.intp)  # NumPy takes these at three times the speed of others
        sums = term.gains.take(term.codes[part].astype(np.intp))
        sums += totals.take(places)
        totals[places] = added[part] = sums
    return added


def _all(terms: Sequence[Term], totals: Totals) -> Documents:
    """Adds terms to all their documents; returns those that have gained anything, ascending."""
    for term in terms:
        _add(term, totals)
    return _above(totals, 0)


def _clear(totals: Totals, terms: Sequence[Term]) -> None:
    """Makes the totals zeros again after these terms were added."""
    if _LOOK_UP * sum(len(term.documents) for term in terms) > len(totals):
        totals.fill(0)
    else:
        for term in terms:
            totals[term.documents] = 0


def _good_blocks(terms: Sequence[Term], limit: int, slack: float, scratch: Totals) -> tuple[Blocks, float]:
    """The blocks that may have one of the best documents, ascending, and what such a document has at least."""
    bounds = np.zeros(number_of_blocks(len(scratch)))
    for term in terms:
        codes = term.block_codes
        if codes is None:
            codes = largest_of_blocks(term.documents, term.codes, len(bounds))
        bounds += term.gains[codes]
    first = min(_FIRST, len(bounds))
    promising = _within(terms, np.sort(np.argpartition(bounds, -first)[-first:]))
    few = scratch[: first * BLOCK]
    totals = few[_all(promising, few)]
    _clear(few, promising)
    floor = float(_place(totals, limit)) * slack if len(totals) >= limit else 0.0
    return np.flatnonzero(bounds >= floor), floor


def _place(totals: NDArray[np.float32], limit: int) -> np.float32:
    """The value at place `limit`."""
    last: np.float32 = np.partition(totals, len(totals) - limit)[len(totals) - limit]
    return last


def _looked_up(term: Term, documents: Documents) -> NDArray[np.float32]:
    """What a term adds to each of some ascending documents."""
    places = term.documents.searchsorted(documents)
    np.minimum(places, len(term.documents) - 1, out=places)
    added = term.gains[term.codes[places]]
    added[term.documents[places] != documents] = 0
    return added


class _Leaders:
    """The documents that are best so far, from which it is known what a document must reach."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._documents = np.zeros(0, np.int32)
        self._fresh: list[Documents] = []
        self._mark = 0.0  # what a document must have to become one

    def add(self, documents: Documents, totals: Totals) -> None:
        """Takes in the best of the documents to which a term was added just now, with their totals."""
        better = np.flatnonzero(totals > self._mark)
        self._fresh.append(_highest(documents[better], totals[better], 2 * self._limit))

    def floor(self, totals: Totals, later: Sequence[Term]) -> float:
        """What the document at place `limit` has at least.

        Args:
            totals: Of all documents.
            later: Terms that were not added yet.
        """
        documents = np.unique(np.concatenate([self._documents, *self._fresh]))
        self._documents = np.sort(_highest(documents, totals[documents], 2 * self._limit))
        self._fresh.clear()
        complete = totals[self._documents]
        if len(complete) < self._limit:
            return 0.0
        if len(complete) == 2 * self._limit:
            self._mark = float(complete.min())
        for term in later:
            complete += _looked_up(term, self._documents)
        return float(_place(complete, self._limit))


def _highest(documents: Documents, totals: Totals, count: int) -> Documents:
    """Those with the highest totals, in no order."""
    return documents if len(documents) <= count else documents[np.argpartition(totals, len(totals) - count)[-count:]]


def _contenders(terms: Sequence[Term], limit: int, floor: float, slack: float, scratch: Totals) -> Documents:
    """All documents that may be at place `limit` or above, ascending; those below `floor` are not."""
    ordered = sorted(terms, key=lambda term: -term.top)
    rest = np.cumsum([0.0, *(term.top for term in reversed(ordered))])[::-1].tolist()  # the most that later terms add
    leaders = _Leaders(limit)
    place = since = before = 0  # postings since and before the last look at the leaders
    while place < len(ordered) and rest[place] >= floor:
        totals = _add(ordered[place], scratch)
        leaders.add(ordered[place].documents, totals)
        place, since = place + 1, since + len(totals)
        if place < len(ordered) and since > 2 * before:  # a look costs a look-up a term, so they become rarer
            floor = max(floor, leaders.floor(scratch, ordered[place:]) * slack)
            since, before = 0, before + since
    # Documents that have only later terms are below the floor, whether these are added to them or not.
    while place < len(ordered):
        found = np.count_nonzero(_are_above(scratch, floor - rest[place]))
        if found * _LOOK_UP < len(ordered[place].documents):
            break
        _add(ordered[place], scratch)
        place += 1
    documents = _above(scratch, floor - rest[place])
    totals = scratch[documents]
    _clear(scratch, ordered[:place])
    for number in range(place, len(ordered)):
        totals += _looked_up(ordered[number], documents)
        kept = totals >= floor - rest[number + 1]
        documents, totals = documents[kept], totals[kept]
    if len(totals) > limit:
        floor = max(floor, float(_place(totals, limit)) * slack)
    return documents[totals >= floor]


def _are_above(totals: Totals, bound: float) -> NDArray[np.bool_]:
    """Which documents have at least so much, and more than nothing."""
    above: NDArray[np.bool_] = totals >= bound if bound > 0 else totals > 0
    return above


def _above(totals: Totals, bound: float) -> Documents:
    """These documents, ascending."""
    return np.flatnonzero(_are_above(totals, bound)).astype(np.int32)
