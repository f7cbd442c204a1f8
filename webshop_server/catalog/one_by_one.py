"""Texts that are read when they are looked at, because there may be a million of them."""

from collections.abc import Callable, Sequence
from typing import overload


class OneByOne(Sequence[str]):
    """A sequence whose texts stay where they are.

    Args:
        length: How many there are.
        read: Gives the text at a place, from 0.
    """

    def __init__(self, length: int, read: Callable[[int], str]) -> None:
        self._length, self._read = length, read

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...

    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        places = range(self._length)[place]
        return self._read(places) if isinstance(places, int) else [self._read(one) for one in places]
