"""A text space without a list of allowed characters, for texts that come from the world outside.

`gymnasium.spaces.Text` holds its characters one by one, three times, and copies them with each environment of a vector:
right for the few hundred that a game emits, and 25 MB a space for all of Unicode. Here membership asks for the length
alone; the characters given are those that samples are made of.
"""

from typing import Any

import gymnasium


class AnyText(gymnasium.spaces.Text):
    """Strings of any characters, up to a length. It is built, sampled and copied as `gymnasium.spaces.Text` is.

    Example:
        >>> space = AnyText(5, min_length=0, charset="ab")
        >>> "naïve" in space, "Größe 9" in space
        (True, False)
    """

    def contains(self, x: Any) -> bool:
        """Whether `x` is a string of a length within the bounds."""
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length

    def __repr__(self) -> str:
        """The bounds; the characters are only what samples are made of."""
        return f"AnyText({self.min_length}, {self.max_length})"

    def __eq__(self, other: object, /) -> bool:
        """Whether `other` is such a space with the same bounds and the same characters for samples."""
        return isinstance(other, AnyText) and super().__eq__(other)
