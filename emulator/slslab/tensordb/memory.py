"""Memory for values, as numpy allocates it: aligned, not zeroed, in huge pages where the kernel has them."""

from typing import Any

import numpy as np
import numpy.typing as npt

# A cache line, which is also the widest vector register.
ALIGNMENT = 64


def allocate(length: int) -> memoryview:
    """Allocate writable bytes, which the kernel backs when they are first written."""
    padded = np.empty(length + ALIGNMENT, np.uint8)
    start = -padded.ctypes.data % ALIGNMENT
    return bytes_of(padded[start : start + length])


def bytes_of(array: npt.NDArray[Any]) -> memoryview:
    """Return the memory of an array in C order."""
    view: Any = array.reshape(-1).view(np.uint8)
    return memoryview(view)
