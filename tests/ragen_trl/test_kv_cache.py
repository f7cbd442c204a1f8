"""SlotCache: what is written to (row, slot) stays there, whatever grows, leaves or pads beside it."""

import torch

from ragen_trl.kv_cache import SlotCache

HEADS, DIM = 2, 3


def entry(row: int, slot: int) -> torch.Tensor:
    """Keys (heads, dim) that say where they belong."""
    return torch.full((HEADS, DIM), 100.0 * row + slot)


def write(cache: SlotCache, slots: list[list[int]], names: list[int], rows: list[int] | None = None) -> torch.Tensor:
    """Feed one chunk; row ``names[i]`` writes ``entry`` in each of ``slots[i]``. Values are the negative keys."""
    width = len(slots[0])
    cache.reserve(max(map(max, slots)) + 1)
    padded = [[cache.spare_slot if slot < 0 else slot for slot in row] for row in slots]
    cache.rows = None if rows is None else torch.tensor(rows)
    cache.slots = torch.tensor(padded)
    cache.length = max(map(max, slots)) + 1
    keys = torch.stack(
        [torch.stack([entry(name, slot) for slot in row], 1) for name, row in zip(names, slots, strict=True)]
    )
    assert keys.shape == (len(slots), HEADS, width, DIM)
    found, values = cache.update(keys, -keys, 0)
    assert torch.equal(values, -found)
    return found


def holds(found: torch.Tensor, name: int, slots: range) -> bool:
    return all(torch.equal(found[:, slot], entry(name, slot)) for slot in slots)


def test_growth_keeps_what_was_written() -> None:
    cache = SlotCache(2)
    write(cache, [[0, 1, 2], [0, 1, 2]], [0, 1])
    first_spare = cache.spare_slot
    found = write(cache, [[200], [200]], [0, 1])
    assert cache.spare_slot > first_spare
    assert found.shape == (2, HEADS, 201, DIM)
    assert all(holds(found[row], row, range(3)) and holds(found[row], row, range(200, 201)) for row in (0, 1))


def test_capacity_grows_by_half_so_that_copies_are_few() -> None:
    cache = SlotCache(1)
    capacities = set()
    for slot in range(1000):
        write(cache, [[slot]], [0])
        capacities.add(cache.spare_slot + 1)
    assert min(capacities) == 64
    assert len(capacities) <= 8  # 64 · 1.5⁷ > 1000


def test_keeping_rows_renumbers_them_in_the_given_order() -> None:
    cache = SlotCache(4)
    write(cache, [[0, 1]] * 4, [0, 1, 2, 3])
    cache.keep(torch.tensor([1, 3]))
    assert cache.num_rows == 2
    found = write(cache, [[2], [2]], [1, 3])
    assert holds(found[0], 1, range(3))
    assert holds(found[1], 3, range(3))


def test_no_row_may_be_left() -> None:
    cache = SlotCache(2)
    write(cache, [[0], [0]], [0, 1])
    cache.keep(torch.tensor([], dtype=torch.long))
    assert cache.num_rows == 0


def test_some_rows_can_go_on_while_others_wait() -> None:
    cache = SlotCache(3)
    write(cache, [[0, 1]] * 3, [0, 1, 2])
    found = write(cache, [[2], [2]], [2, 0], rows=[2, 0])
    assert holds(found[0], 2, range(3))
    assert holds(found[1], 0, range(3))
    found = write(cache, [[2], [3], [3]], [1, 0, 2], rows=[1, 0, 2])
    assert holds(found[0], 1, range(3))
    assert holds(found[1], 0, range(4))


def test_padding_goes_to_the_spare_slot_that_is_never_returned() -> None:
    cache = SlotCache(2)
    found = write(cache, [[0, 1, 2], [-1, -1, 0]], [0, 1])
    assert found.shape[2] == 3 <= cache.spare_slot
    assert holds(found[0], 0, range(3))
    assert holds(found[1], 1, range(1))
    assert torch.equal(found[1, :, 1:], torch.zeros(HEADS, 2, DIM))  # nothing of the padding


def test_layers_are_apart_and_the_length_is_that_of_the_last_pass() -> None:
    cache = SlotCache(1)
    cache.reserve(1)
    cache.slots, cache.length = torch.tensor([[0]]), 1
    one = torch.ones(1, HEADS, 1, DIM)
    cache.update(one, one, 0)
    keys, _ = cache.update(5 * one, one, 1)
    assert keys.unique().tolist() == [5.0]
    keys, _ = cache.update(one, one, 0)
    assert keys.unique().tolist() == [1.0]
    assert cache.get_seq_length() == 1
