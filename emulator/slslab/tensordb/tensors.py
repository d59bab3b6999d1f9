"""Parse and hold tensors: RedisAI's data types, shapes as clients send them, and their bytes."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from slslab.tensordb.memory import allocate
from slslab.tensordb.replies import LARGE, Blob, CommandError, Reply
from slslab.tensordb.resp import MAX_BULK, integer

# RedisAI's names, little-endian and in C order. STRING tensors aren't supported.
DTYPES = {
    name: np.dtype(code)
    for name, code in (
        ("FLOAT", "<f4"),
        ("DOUBLE", "<f8"),
        ("INT8", "i1"),
        ("INT16", "<i2"),
        ("INT32", "<i4"),
        ("INT64", "<i8"),
        ("UINT8", "u1"),
        ("UINT16", "<u2"),
        ("BOOL", "?"),
    )
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
FORMS = ("BLOB", "VALUES")
# numpy 1's maximum.
MAX_DIMENSIONS = 32
NUMBER = re.compile(rb"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|inf(?:inity)?|nan)", re.IGNORECASE)

INVALID_SHAPE = "ERR invalid or negative value found in tensor shape"


@dataclass(frozen=True, eq=False)
class Tensor:
    """An array in C order that is never written to."""

    array: npt.NDArray[Any]

    @property
    def bytes(self) -> int:
        """The bytes of its elements."""
        return int(self.array.nbytes)

    def blob(self) -> memoryview:
        """Return its elements as stored in memory."""
        elements: Any = self.array.reshape(-1).view(np.uint8)
        return memoryview(elements)

    def meta(self) -> list[Reply]:
        """Return the reply to `AI.TENSORGET key META`."""
        return ["dtype", NAMES[self.array.dtype], "shape", list(self.array.shape)]

    def values(self) -> list[Reply]:
        """Return the reply to `AI.TENSORGET key VALUES`: ints for integer types, else doubles."""
        values: list[Reply] = self.array.reshape(-1).tolist()
        return [int(value) for value in values] if self.array.dtype == np.bool_ else values  # type: ignore[arg-type]


def parse_tensor(arguments: Sequence[Blob]) -> Tensor:
    """Parse `AI.TENSORSET`'s arguments, `key dtype d0 [d1 …] [BLOB bytes | VALUES …]`; CommandError if invalid."""
    dtype = DTYPES.get(bytes(arguments[1][:8]).upper().decode("latin-1"))
    if dtype is None:
        raise CommandError("ERR invalid data type")
    words = (bytes(argument[:7]).upper().decode("latin-1") for argument in arguments[2:])
    form, at = next(((word, at) for at, word in enumerate(words, 2) if word in FORMS), (None, len(arguments)))
    shape = tuple(_dimension(argument) for argument in arguments[2 : min(at, 3 + MAX_DIMENSIONS)])
    if len(shape) > MAX_DIMENSIONS:
        raise CommandError(f"ERR invalid tensor shape: more than {MAX_DIMENSIONS} dimensions")
    if not shape:
        raise CommandError(INVALID_SHAPE)
    size = math.prod(shape) * dtype.itemsize
    data = arguments[at + 1 :]
    if form == "BLOB":
        if len(data) != 1 or len(data[0]) != size:
            raise CommandError("ERR data length does not match tensor shape and type")
        return Tensor(np.frombuffer(_owned(data[0]), dtype).reshape(shape))
    if size > MAX_BULK:
        raise CommandError(f"ERR tensor of {size} bytes is larger than {MAX_BULK}")
    if form is None:
        return Tensor(np.zeros(shape, dtype))
    if len(data) != math.prod(shape):
        raise CommandError("ERR wrong number of values was given in 'AI.TENSORSET' command")
    return Tensor(_numbers(data, dtype).reshape(shape))


def _dimension(argument: Blob) -> int:
    try:
        size = integer(argument)
    except ValueError:
        size = 0
    if size <= 0:
        raise CommandError(INVALID_SHAPE)
    return size


def _owned(data: Blob) -> memoryview:
    """Return memory that only the tensor uses; a large argument already has its own."""
    if len(data) >= LARGE and isinstance(data, memoryview):
        return data
    owned = allocate(len(data))
    owned[:] = data
    return owned


def _numbers(words: Sequence[Blob], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    try:
        if np.dtype(dtype).kind == "f":
            if not all(NUMBER.fullmatch(word) for word in words):
                raise ValueError
            with np.errstate(over="ignore"):
                return np.array([float(bytes(word)) for word in words], np.float64).astype(dtype)
        return np.array([integer(word) for word in words], dtype)
    except (ValueError, OverflowError):
        raise CommandError("ERR invalid value") from None
