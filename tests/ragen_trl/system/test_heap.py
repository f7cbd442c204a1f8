"""Memory that is given back to the system."""

import sys

import pytest
import torch

from ragen_trl.system import heap

BLOCKS, SIZE = 3000, 25_000  # of 100 KB, which the C library takes from its heap: 300 MB in all


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc keeps and returns memory so")
def test_what_was_freed_between_blocks_in_use_goes_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a process with 2 GiB of tensors held 12 after some rollouts of pages of different lengths."""
    blocks = [torch.ones(SIZE) for _ in range(BLOCKS)]
    full = heap.resident()
    last = blocks[-1]
    del blocks
    monkeypatch.setattr(heap, "LEAST", sys.maxsize)
    heap.return_free_memory()
    assert heap.resident() > full - 100 * 2**20  # kept below the last block
    monkeypatch.setattr(heap, "LEAST", 0)
    heap.return_free_memory()
    assert heap.resident() < full - 200 * 2**20
    assert last.sum() == SIZE


def test_a_system_that_counts_no_pages_keeps_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_PAGES", heap.Path("/nowhere/statm"))
    assert heap.resident() == 0
    heap.return_free_memory()
