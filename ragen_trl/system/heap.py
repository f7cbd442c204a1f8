"""Returns memory that is free inside this process to the system; glibc only.

Rollouts allocate tensors of ever different sizes, and the C library keeps what they free in pieces: a process with two
gigabytes of tensors came to hold twelve.
"""

import ctypes
import sys

_LEAST = 2 * 2**30  # bytes; what a smaller process could give back is not worth the time


def return_free_memory() -> None:
    """Return free memory to the system if this process has held more than two gigabytes."""
    if sys.platform != "linux":
        return
    import resource

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > _LEAST:
        trim(ctypes.c_size_t(0))
