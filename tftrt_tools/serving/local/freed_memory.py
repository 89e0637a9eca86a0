"""Freed memory stays with the process: a fresh page costs more than filling it."""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
# Bytes that may lie free at the end of the heap before they go back to the system.
_KEPT = 1 << 30


def keep() -> None:
    """Let malloc reuse what large requests leave, where it is glibc's: by itself it gives each block from 32 MB on back to the system, and
    the next one is faulted in page by page."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)
