"""How vectors become bytes for a parameter server, and bytes become vectors: on both sides, with numpy alone."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]
Body = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Serialisation:
    """A way to write float32 vectors (P,): `number_bytes` for each number. What is read may be written to."""

    number_bytes: int
    write: Callable[[Vector], Body]
    read: Callable[[Body], Vector]


def _raw(vector: Vector) -> Body:
    return vector.data.cast("B") if vector.size else b""


def _doubles(vector: Vector) -> Body:
    return struct.pack(f">{vector.size}d", *vector.tolist())


def _from_doubles(body: Body) -> Vector:
    return np.array(struct.unpack(f">{len(body) // 8}d", body), np.float32)


def _from_raw(body: Any) -> Vector:
    return np.frombuffer(body, np.float32)


SERIALISATIONS = MappingProxyType(
    {
        # The vector's own memory.
        "raw": Serialisation(4, _raw, _from_raw),
        # Thrift's lists of doubles, by way of Python's: as HybridPS of LambdaML's code sends them.
        "doubles": Serialisation(8, _doubles, _from_doubles),
    }
)
