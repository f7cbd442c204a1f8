"""Keys and values of many growing contexts, kept between turns.

Token ``p`` of a row is always in slot ``p``, whatever the other rows do. So a row's attention mask is just "slots up to
my position", and nothing is ever shifted or compacted along the time axis. Padding inside a chunk is written to a spare
last slot that no mask ever reaches. The rows of one forward pass are neighbours, so that attention reads the stored
tensors themselves and no copy. Left out: pages (rows that share memory), because attention without a special kernel
could only read them through copies.
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache

_MARGIN = 16  # slots: capacities are multiples of it, so that the tensors grow seldom and shapes repeat


class SlotCache(Cache):
    """A transformers cache addressed by (row, slot).

    Call `place` before each forward pass. ``update`` then writes the new keys and values there and returns those of the
    rows of the pass.

    Args:
        num_rows: Number of rows.

    Attributes:
        capacity: Number of slots of every row, the spare one included.
    """

    def __init__(self, num_rows: int) -> None:
        super().__init__(layers=[])
        self.num_rows = num_rows
        self.capacity = 0
        self._keys: list[torch.Tensor] = []  # a layer each: (num_rows, heads, capacity, dim)
        self._values: list[torch.Tensor] = []
        self._span = slice(0, 0)
        self._places = (torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long))
        self._length = 0

    @property
    def spare_slot(self) -> int:
        """The slot that takes padding."""
        return self.capacity - 1

    def reserve(self, length: int) -> None:
        """Make room for contexts of ``length`` tokens.

        The cache grows by at least a quarter. Attention reads all slots for every token, and next to that the copies
        and the empty slots cost little.
        """
        if length + 1 <= self.capacity:
            return
        wanted = max(length + 1, self.capacity * 5 // 4)
        self.capacity = -(-wanted // _MARGIN) * _MARGIN
        self._keys = [self._grown(tensor) for tensor in self._keys]
        self._values = [self._grown(tensor) for tensor in self._values]

    def select(self, rows: Sequence[int]) -> None:
        """Replace row ``i`` by the former row ``rows[i]``: drops, reorders and repeats rows."""
        self.num_rows = len(rows)
        self._keys = [_selected(tensor, rows) for tensor in self._keys]
        self._values = [_selected(tensor, rows) for tensor in self._values]

    def place(self, first_row: int, slots: torch.Tensor, length: int) -> None:
        """Say where the next forward pass reads and writes.

        Args:
            first_row: The first row of the pass; the others follow it.
            slots: (b, n) slot of each new token.
            length: Number of slots that attention may read, at most ``capacity``. Reading all of them is fastest; empty
                slots hold zeros.
        """
        self._span = slice(first_row, first_row + len(slots))
        self._places = (torch.arange(len(slots), device=slots.device)[:, None], slots)
        self._length = length

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new keys and values, both (b, heads, n, dim), and return (b, heads, length, dim) of each."""
        if layer_idx == len(self._keys):
            shape = (self.num_rows, key_states.shape[1], self.capacity)
            self._keys.append(key_states.new_zeros((*shape, key_states.shape[-1])))
            self._values.append(value_states.new_zeros((*shape, value_states.shape[-1])))
        return (
            self._write_and_read(self._keys[layer_idx], key_states),
            self._write_and_read(self._values[layer_idx], value_states),
        )

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Slots in use. Models ask for it only to make default position ids; here the caller passes position ids."""
        return self._length

    def _write_and_read(self, store: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        rows, slots = self._places
        part = store[self._span]
        part[rows, :, slots] = new.transpose(1, 2)  # both sides (b, n, heads, dim)
        return part[:, :, : self._length]

    def _grown(self, tensor: torch.Tensor) -> torch.Tensor:
        grown = tensor.new_zeros((*tensor.shape[:2], self.capacity, tensor.shape[-1]))
        grown[:, :, : tensor.shape[2]] = tensor
        return grown


def _selected(tensor: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
    return tensor.index_select(0, torch.tensor(rows, dtype=torch.long, device=tensor.device))
