"""Keys and values of many growing contexts, kept between turns.

Token ``p`` of a row is always in slot ``p``, so a row's attention mask is just "slots up to my position", and nothing
is ever shifted or compacted along the time axis. Padding inside a chunk is written to a spare last slot that no mask
reaches. The rows of one forward pass are neighbours, so attention reads the stored tensors themselves and no copy.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import Cache

_MARGIN = 16  # slots: capacities are multiples of it, so that the tensors grow seldom and shapes repeat


class SlotCache(Cache):
    """A Transformers cache addressed by (row, slot), at first of ``num_rows`` empty rows.

    Call `place` before each forward pass. ``update`` then writes the new keys and values there and returns the whole
    rows of the pass.

    Attributes:
        capacity: Number of slots of every row, the spare one included.
    """

    def __init__(self, num_rows: int = 0) -> None:
        super().__init__(layers=[])
        self.num_rows = num_rows
        self.capacity = 0
        self._stores: list[list[torch.Tensor]] = []  # a layer each: keys and values, (rows, heads, capacity, dim)
        self._span = slice(0, 0)
        self._places = (torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long))
        self._length = 0

    @property
    def spare_slot(self) -> int:
        """The slot that takes padding."""
        return self.capacity - 1

    def reserve(self, length: int) -> None:
        """Make room for contexts of ``length`` tokens; the cache grows by at least an eighth."""
        if length + 1 > self.capacity:
            wanted = max(length + 1, self.capacity * 9 // 8)
            self.capacity = -(-wanted // _MARGIN) * _MARGIN
            self._replace(self._enlarged)

    def add_rows(self, count: int) -> None:
        """Append empty rows."""
        if count:
            self.num_rows += count
            self._replace(self._enlarged)

    def select(self, rows: Sequence[int]) -> None:
        """Replace row ``i`` by row ``rows[i]`` of before: drops, reorders and repeats rows. No row leaves no slots."""
        if list(rows) == list(range(self.num_rows)):
            return
        self.num_rows = len(rows)
        if not rows:
            self._stores, self.capacity = [], 0
        self._replace(lambda tensor: tensor.index_select(0, torch.tensor(rows, device=tensor.device)))

    def copy(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Give each target row the first ``length`` slots of its source row, which is no target."""
        for tensor in (tensor for layer in self._stores for tensor in layer):
            tensor[list(targets), :, :length] = tensor[list(sources), :, :length]

    def place(self, first_row: int, slots: torch.Tensor, length: int) -> None:
        """Say where the next pass over neighbouring rows writes, (b, n) slots, and how many slots attention reads.

        Empty slots hold zeros.
        """
        self._span = slice(first_row, first_row + len(slots))
        self._places = (torch.arange(len(slots), device=slots.device)[:, None], slots)
        self._length = length

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new keys and values, both (b, heads, n, dim), and return (b, heads, length, dim) of each."""
        if layer_idx == len(self._stores):
            self._stores.append([self._empty(key_states), self._empty(value_states)])
        rows, slots = self._places
        keys, values = (store[self._span] for store in self._stores[layer_idx])
        for part, new in ((keys, key_states), (values, value_states)):
            part[rows, :, slots] = new.transpose(1, 2).to(part.dtype)  # both sides (b, n, heads, dim)
        return keys[:, :, : self._length], values[:, :, : self._length]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Slots in use. Models ask for it only to make default position ids; here the caller passes position ids."""
        return self._length

    def _empty(self, states: torch.Tensor) -> torch.Tensor:
        """A layer's store, in the precision of attention; rotary positions leave keys in float32 under autocast."""
        device, dtype = states.device.type, states.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        return states.new_zeros((self.num_rows, states.shape[1], self.capacity, states.shape[-1]), dtype=dtype)

    def _replace(self, made_from: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Exchange the tensors one by one, so old and new ones of two layers never are in memory together."""
        for layer in self._stores:
            for kind in range(len(layer)):
                layer[kind] = made_from(layer[kind])

    def _enlarged(self, tensor: torch.Tensor) -> torch.Tensor:
        rows, heads, slots, width = tensor.shape
        enlarged = tensor.new_zeros((self.num_rows, heads, self.capacity, width))
        enlarged[:rows, :, :slots] = tensor
        return enlarged
