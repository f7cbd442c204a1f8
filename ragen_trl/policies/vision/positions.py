"""Where tokens are for a vision model: Qwen's rotary positions in three dimensions (mRoPE).

A token of text is at the same place in time, height and width. The tokens of a picture that begins at place p are at
(p, p + row, p + column), and what comes after it goes on at p + max(rows, columns). So a picture takes fewer places
than it has tokens. Transformers computes this for whole rows (`get_rope_index`); here a context grows.
"""

from dataclasses import dataclass, field

from ragen_trl.trajectory import Picture

Place = tuple[int, int, int]


@dataclass
class SeenContext:
    """The pictures of one growing context, and where its tokens are.

    Attributes:
        places: Of the tokens up to the last picture's end and beyond, as far as `extend` was told.
        pictures: Each picture with the index of its first token and its number of tokens.
        shift: What is added to the index of a token after all of these to get its place; 0 or less.

    Example:
        >>> context = SeenContext()
        >>> context.extend(2)
        >>> context.places
        [(0, 0, 0), (1, 1, 1)]
        >>> context.see(None, 2, 2)
        >>> context.places[2:], context.place(6), context.shift
        ([(2, 2, 2), (2, 2, 3), (2, 3, 2), (2, 3, 3)], (4, 4, 4), -2)
    """

    places: list[Place] = field(default_factory=list)
    pictures: list[tuple[Picture | None, int, int]] = field(default_factory=list)
    shift: int = 0

    def extend(self, length: int) -> None:
        """The context has so many tokens; those that are new are text."""
        first = len(self.places)
        self.places += [(index + self.shift,) * 3 for index in range(first, length)]

    def see(self, picture: Picture | None, rows: int, columns: int) -> None:
        """A picture of so many rows and columns of tokens follows."""
        first = len(self.places)
        begin = first + self.shift
        self.pictures.append((picture, first, rows * columns))
        self.places += [(begin, begin + row, begin + column) for row in range(rows) for column in range(columns)]
        self.shift += max(rows, columns) - rows * columns

    def place(self, index: int) -> Place:
        """Where the token with this index is; after the last one that is known there is text."""
        return self.places[index] if index < len(self.places) else (index + self.shift,) * 3
