"""The clock at which a GPU runs, read by NVIDIA's management library: times without it cannot be compared."""

from __future__ import annotations

import ctypes
from functools import lru_cache

__all__ = ["sm_clock_mhz"]

LIBRARY = "libnvidia-ml.so.1"
SM = 1
"""Of nvmlClockType_t."""


def sm_clock_mhz() -> int | None:
    """Of the first GPU's multiprocessors, at this moment; None where there is no library or no GPU."""
    found = _opened()
    if found is None:
        return None
    library, device = found
    clock = ctypes.c_uint()
    failed = library.nvmlDeviceGetClockInfo(device, SM, ctypes.byref(clock))
    return None if failed else int(clock.value)


@lru_cache(maxsize=1)
def _opened() -> tuple[ctypes.CDLL, ctypes.c_void_p] | None:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    device = ctypes.c_void_p()
    if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)):
        return None
    return library, device
