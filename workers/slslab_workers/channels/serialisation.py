"""Serialise vectors for a parameter server, using only numpy.

numpy isn't imported with this module.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# How many numbers are converted to Python's at a time.
PART = 1 << 16

Vector: TypeAlias = "npt.NDArray[np.float32]"
Body = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Serialisation:
    """A way to write float32 vectors (P,), with `number_bytes` for each number. Vectors that were read are writable."""

    number_bytes: int
    write: Callable[[Vector], Body]
    read: Callable[[Any], Vector]


def _raw(vector: Vector) -> Body:
    return vector.data.cast("B") if vector.size else b""


def _doubles(vector: Vector) -> Body:
    """Convert in parts, because a list of all numbers takes eight times their memory."""
    body = bytearray(8 * vector.size)
    for begin in range(0, vector.size, PART):
        part = vector[begin : begin + PART].tolist()
        struct.pack_into(f">{len(part)}d", body, 8 * begin, *part)
    return body


def _from_doubles(body: Body) -> Vector:
    import numpy as np

    vector = np.empty(len(body) // 8, np.float32)
    for begin in range(0, vector.size, PART):
        size = min(PART, vector.size - begin)
        vector[begin : begin + size] = struct.unpack_from(f">{size}d", body, 8 * begin)
    return vector


def _from_raw(body: Any) -> Vector:
    import numpy as np

    return np.frombuffer(body, np.float32)


SERIALISATIONS = MappingProxyType(
    {
        # The vector's own memory, without a copy.
        "raw": Serialisation(4, _raw, _from_raw),
        # Thrift's lists of doubles, made from Python's lists, as HybridPS in LambdaML's code sends them.
        "doubles": Serialisation(8, _doubles, _from_doubles),
    }
)
