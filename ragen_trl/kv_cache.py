"""Keys and values of many growing contexts, kept between turns.

Token ``p`` of a row always lies in slot ``p``, whatever the other rows do, so a row's attention mask is just
"slots up to my position" and nothing ever has to be shifted or compacted along the time axis. Padding inside a
chunk is written to a spare last slot that no mask ever reaches.
"""

from typing import Any

import torch
from transformers import Cache


class SlotCache(Cache):
    """A transformers cache addressed by (row, slot).

    Set ``rows`` and ``slots`` before each forward pass; ``update`` then writes the new keys and values there and
    returns those of the addressed rows up to ``length``.

    Args:
        num_rows: Rows to keep.

    Attributes:
        rows: (b,) rows of this forward pass, or ``None`` for all rows in order (no copy is made then).
        slots: (b, n) slot of each new token.
        length: Slots that attention may look at in this forward pass.
    """

    def __init__(self, num_rows: int) -> None:
        super().__init__(layers=[])
        self.num_rows = num_rows
        self.rows: torch.Tensor | None = None
        self.slots = torch.zeros((0, 0), dtype=torch.long)
        self.length = 0
        self._capacity = 0
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []

    @property
    def spare_slot(self) -> int:
        """The slot that takes padding."""
        return self._capacity - 1

    def reserve(self, length: int) -> None:
        """Make room for contexts of ``length`` tokens; grows by half so that the copies are few."""
        if length + 1 <= self._capacity:
            return
        self._capacity = max(length + 1, self._capacity * 3 // 2, 64)
        self._keys = [self._grown(tensor) for tensor in self._keys]
        self._values = [self._grown(tensor) for tensor in self._values]

    def keep(self, rows: torch.Tensor) -> None:
        """Drop every row but these; the kept ones are renumbered 0, 1, … in the given order."""
        self._keys = [tensor.index_select(0, rows) for tensor in self._keys]
        self._values = [tensor.index_select(0, rows) for tensor in self._values]
        self.num_rows = len(rows)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new keys and values, both (b, heads, n, dim), and return (b, heads, length, dim) of each."""
        if layer_idx == len(self._keys):
            shape = (self.num_rows, key_states.shape[1], self._capacity)
            self._keys.append(key_states.new_zeros((*shape, key_states.shape[-1])))
            self._values.append(value_states.new_zeros((*shape, value_states.shape[-1])))
        return (
            self._write_and_read(self._keys[layer_idx], key_states),
            self._write_and_read(self._values[layer_idx], value_states),
        )

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Slots in use; models ask only to default their position ids, which a ``SlotCache`` user passes itself."""
        return self.length

    def _write_and_read(self, store: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(self.num_rows, device=store.device) if self.rows is None else self.rows
        store[rows[:, None], :, self.slots] = new.transpose(1, 2)  # both sides (b, n, heads, dim)
        return store[:, :, : self.length] if self.rows is None else store[self.rows, :, : self.length]

    def _grown(self, tensor: torch.Tensor) -> torch.Tensor:
        grown = tensor.new_zeros((*tensor.shape[:2], self._capacity, tensor.shape[-1]))
        grown[:, :, : tensor.shape[2]] = tensor
        return grown
