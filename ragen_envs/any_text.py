"""A text space without a list of allowed characters, for texts that were not written here, such as product titles.

`gymnasium.spaces.Text` stores every character three times and copies them with each environment of a vector. That is
fine for the few hundred characters of a game, but takes 25 MB for all of Unicode. In an `AnyText` only the length
decides what is a member; the characters are those of its samples.
"""

from typing import Any

import gymnasium


class AnyText(gymnasium.spaces.Text):
    """Strings of any characters, up to a length. It is made, sampled and copied like a `gymnasium.spaces.Text`.

    Example:
        >>> space = AnyText(5, min_length=0, charset="ab")
        >>> "naïve" in space, "Größe 9" in space
        (True, False)
    """

    def contains(self, x: Any) -> bool:
        """Whether `x` is a string whose length is within the bounds."""
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length

    def __repr__(self) -> str:
        return f"AnyText({self.min_length}, {self.max_length})"
