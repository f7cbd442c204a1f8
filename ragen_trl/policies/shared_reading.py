"""Which contexts begin alike, so a model reads once what they have in common.

A tree of two levels is enough: rows with a common beginning (system prompt and instruction), each with a remainder of
its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Beginning:
    """What several contexts have in common.

    ``length`` are its tokens, ``known`` a context that has been read and begins so (or None), ``new`` those to read.
    """

    length: int
    known: int | None
    new: tuple[int, ...]

    @property
    def saved(self) -> int:
        """Tokens that need not be read."""
        return self.length * (len(self.new) - (self.known is None))


_Row = tuple[tuple[int, ...], int, bool]  # tokens, index, whether it is new


@dataclass
class _Alike:
    """Neighbours in the order of their tokens that begin with so many in common, and how those inside do best."""

    length: int
    first: int
    saved: int
    shared: list[Beginning]

    def take(self, inner: "_Alike") -> None:
        self.saved += inner.saved
        self.shared += inner.shared

    def at_best(self, rows: Sequence[_Row], pass_tokens: int) -> "_Alike":
        """With one beginning for all of them, where that saves more than those inside do."""
        known = next((index for _, index, is_new in rows if not is_new), None)
        found = Beginning(self.length, known, tuple(sorted(index for _, index, is_new in rows if is_new)))
        saved = found.saved - (pass_tokens if known is None else pass_tokens // 16)
        return _Alike(self.length, self.first, saved, [found]) if saved > self.saved else self


def common_beginnings(
    new: Sequence[Sequence[int]], known: Sequence[Sequence[int]], pass_tokens: int
) -> list[Beginning]:
    """Find the beginnings to share that save most; no new context is in two of them.

    Args:
        new: Token ids of contexts to read. The last token of each is left to its own remainder.
        known: Token ids of contexts that have been read.
        pass_tokens: What a pass costs, in tokens. A beginning that no known context has takes a pass of its own, and is
            left out if it saves less; so is one of a known context that saves less than a sixteenth of that, for its
            copies.

    Example:
        >>> common_beginnings([(1, 2, 3, 4), (1, 2, 3, 5), (7, 8)], [], 2)
        [Beginning(length=3, known=None, new=(0, 1))]
    """
    rows = [(tuple(ids[:-1]), index, True) for index, ids in enumerate(new)]
    rows += [(tuple(ids), index, False) for index, ids in enumerate(known)]
    rows.sort()
    shared = [_common(one[0], other[0]) for one, other in zip(rows, rows[1:], strict=False)]

    pending: list[_Alike] = []  # neighbours that begin alike, inside those before them
    for last, length in enumerate([*shared, -1]):
        alike = _Alike(0, last, 0, [])  # the row by itself
        while pending and pending[-1].length > length:
            outer = pending.pop()
            outer.take(alike)
            alike = outer.at_best(rows[outer.first : last + 1], pass_tokens)
        if not pending or pending[-1].length < length:
            pending.append(_Alike(length, alike.first, 0, []))
        pending[-1].take(alike)
    return pending[0].shared


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
