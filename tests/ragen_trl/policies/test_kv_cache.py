"""SlotCache: what is written to (row, slot) stays there, whatever grows, leaves, moves or pads beside it."""

import pytest
import torch

from ragen_trl.policies.kv_cache import SlotCache

HEADS, DIM = 2, 3


def entry(name: int, slot: int) -> torch.Tensor:
    """Keys (heads, dim) that say where they belong."""
    return torch.full((HEADS, DIM), 1000.0 * (name + 1) + slot)


def write(cache: SlotCache, slots: list[list[int]], names: list[int], length: int | None = None) -> torch.Tensor:
    """Feed one chunk; row ``i`` gets ``entry(names[i], slot)`` in each of ``slots[i]``. Values are negative."""
    width = len(slots[0])
    cache.reserve(max(map(max, slots)) + 1)
    padded = [[cache.spare_slot if slot < 0 else slot for slot in row] for row in slots]
    cache.place(0, torch.tensor(padded), max(map(max, slots)) + 1 if length is None else length)
    keys = torch.stack(
        [torch.stack([entry(name, slot) for slot in row], 1) for name, row in zip(names, slots, strict=True)]
    )
    assert keys.shape == (len(slots), HEADS, width, DIM)
    found, values = cache.update(keys, -keys, 0)
    assert torch.equal(values, -found)
    return found


def holds(found: torch.Tensor, name: int, slots: range) -> bool:
    return all(torch.equal(found[:, slot], entry(name, slot)) for slot in slots)


def test_padding_leaves_the_last_slot_of_a_full_row_as_it_is() -> None:
    cache = SlotCache(2)
    write(cache, [list(range(15))] * 2, [0, 1])
    found = write(cache, [[14], [-1]], [0, 1])
    assert cache.capacity == 16  # 15 and the spare one
    assert holds(found[0], 0, range(15)) and holds(found[1], 1, range(15))


def test_rows_that_leave_give_back_their_memory_and_leave_nothing_behind() -> None:
    cache = SlotCache(8)
    write(cache, [[0, 1]] * 8, list(range(8)))
    cache.select([0, 7, 2, 3, 4])
    cache.add_rows(1)
    found = write(cache, [[2]] * 6, [0, 7, 2, 3, 4, 9], length=cache.capacity)
    assert found.untyped_storage().nbytes() == 6 * HEADS * cache.capacity * DIM * 4
    assert all(holds(found[row], name, range(3)) for row, name in enumerate((0, 7, 2, 3, 4)))
    assert holds(found[5], 9, range(2, 3)) and not found[5, :, :2].any()
    cache.select([])
    assert cache.num_rows == cache.capacity == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_keys_and_values_are_stored_in_the_precision_that_attention_computes_in(
    dtype: torch.dtype,
) -> None:
    cache = SlotCache(1)
    cache.reserve(4)
    keys = torch.linspace(0.1, 0.9, HEADS * DIM).reshape(1, HEADS, 1, DIM)
    with torch.autocast("cpu", dtype=dtype):
        cache.place(0, torch.tensor([[0]]), 1)
        found = cache.update(keys, keys.to(dtype), 0)
    assert [tensor.dtype for tensor in found] == [dtype, dtype]
    assert torch.equal(found[0], keys.to(dtype))
    cache = SlotCache(1)
    cache.reserve(4)
    cache.place(0, torch.tensor([[0]]), 1)
    assert cache.update(keys, keys, 0)[0].dtype == torch.float32
