"""Returns memory that is free inside this process to the system.

Rollouts allocate tensors of always different sizes. The C library keeps what they free, in pieces between what is in
use, so that a process with two gigabytes of tensors came to hold twelve, and two of them filled a machine of 24. Left
out: other C libraries than glibc, where nothing happens, and memory of GPUs, which PyTorch keeps itself.
"""

import ctypes
import os
from pathlib import Path

LEAST = 2 * 2**30
"""Bytes. What a smaller process could give back is not worth the time of asking for it again."""
_PAGES = Path("/proc/self/statm")


def resident() -> int:
    """Bytes of this process that are in memory; 0 where the system does not say."""
    try:
        return int(_PAGES.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def return_free_memory() -> None:
    """Return free memory to the system if this process holds more than `LEAST` bytes."""
    if resident() <= LEAST:
        return
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:  # not glibc
        return
    trim(ctypes.c_size_t(0))
