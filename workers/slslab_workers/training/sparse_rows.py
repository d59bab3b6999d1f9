"""Rows of features that are mostly zero; only the other numbers are stored, in memory and as bytes.

Importing this module does not import torch.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class SparseRows:
    """Rows (N, width) as float32 entries in ascending columns (CSR); row i has the entries starts[i]:starts[i + 1]."""

    starts: NDArray[np.int64]
    columns: NDArray[np.uint32]
    values: NDArray[np.float32]
    width: int

    @classmethod
    def of(cls, lengths: Any, columns: Any, values: Any, width: int) -> "SparseRows":
        """Return rows of these lengths, made from the entries of one row after the other."""
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        return cls(starts, np.asarray(columns, np.uint32), np.asarray(values, np.float32), width)

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of rows and features."""
        return len(self.starts) - 1, self.width

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Return the number of entries of each row."""
        return np.diff(self.starts)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, chosen: Any) -> "SparseRows":
        """Return some of the rows: a slice, or their indices."""
        lengths = self.lengths[chosen]
        ends = np.cumsum(lengths, dtype=np.int64)
        entries = np.arange(lengths.sum()) + np.repeat(self.starts[:-1][chosen] - (ends - lengths), lengths)
        return self.of(lengths, self.columns[entries], self.values[entries], self.width)

    def to_array(self) -> NDArray[np.float32]:
        """Return the rows as a dense array, with the zeros."""
        rows = np.zeros(self.shape, np.float32)
        rows[self._row_of_each(), self.columns] = self.values
        return rows

    def to_tensor(self) -> "torch.Tensor":
        """Return the rows as PyTorch's sparse tensor (COO: its CSR needs MKL, which not every processor has)."""
        import torch

        coordinates = torch.from_numpy(np.stack([self._row_of_each(), self.columns.astype(np.int64)]))
        values = torch.from_numpy(self.values)
        return torch.sparse_coo_tensor(coordinates, values, self.shape, is_coalesced=True, check_invariants=True)

    def to_bytes(self) -> bytes:
        """Return the columns, the values, and the number of entries per row: 8 bytes per entry and 4 per row."""
        return b"".join(
            part.tobytes()
            for part in (self.columns.astype("<u4"), self.values.astype("<f4"), self.lengths.astype("<u4"))
        )

    @classmethod
    def from_bytes(cls, body: Any, rows: int, width: int) -> "SparseRows":
        """Read the bytes of `to_bytes` without copying the entries."""
        entries = (len(body) - 4 * rows) // 8
        columns, values, lengths = (
            np.frombuffer(body, kind, count, offset)
            for kind, count, offset in (("<u4", entries, 0), ("<f4", entries, 4 * entries), ("<u4", rows, 8 * entries))
        )
        if lengths.sum() != entries:
            raise ValueError(f"{rows} sparse rows have {lengths.sum()} entries, and {entries} are there")
        return cls.of(lengths, columns, values, width)

    def _row_of_each(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self)), self.lengths)
