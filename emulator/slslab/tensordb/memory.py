"""Memory for values, as numpy's: aligned, not zeroed, in huge pages where the kernel gives them."""

from typing import Any

import numpy as np
import numpy.typing as npt

# A cache line, which is also the widest vector register.
ALIGNMENT = 64


def allocate(length: int) -> memoryview:
    """Writable bytes; the kernel backs them when they are first written."""
    room = np.empty(length + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return bytes_of(room[start : start + length])


def bytes_of(array: npt.NDArray[Any]) -> memoryview:
    """The memory of an array in C order."""
    view: Any = array.reshape(-1).view(np.uint8)
    return memoryview(view)
