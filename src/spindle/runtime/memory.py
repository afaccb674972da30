"""Settings of the C library for large buffers.

By default glibc maps every buffer of 128 KiB and more, and unmaps it after use, so each frame and
each read of a log touches hundreds of new pages. On the heap, the buffers are reused. Measured with
`benchmarks/` (item produce-1KiB-acks1, alternating, 1 MiB requests): 1.4 times the rate at two
thirds of the CPU; consume does not change.
"""

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

_MAX_KEPT_BYTES: Final = 16 * 1024 * 1024
_KEPT_BYTES: Final = 32 * 1024 * 1024
_ARENAS: Final = 2


def keep_large_buffers() -> bool:
    """Make the C library reuse buffers of up to 16 MiB; return False if it cannot be configured."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = (
        (_M_MMAP_THRESHOLD, _MAX_KEPT_BYTES),
        (_M_TRIM_THRESHOLD, _KEPT_BYTES),
        (_M_ARENA_MAX, _ARENAS),
    )
    return all(mallopt(option, value) for option, value in settings)
