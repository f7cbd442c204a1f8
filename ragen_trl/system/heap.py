"""Returns memory that is free inside this process to the system; glibc only.

Rollouts allocate tensors of ever different sizes, and the C library keeps what they free in pieces: a process with two
gigabytes of tensors came to hold twelve.
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
