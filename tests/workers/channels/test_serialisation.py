"""Whatever vectors travel as, their bits arrive."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from slslab_workers.channels.serialisation import SERIALISATIONS

FLOATS = st.one_of(st.sampled_from([0.0, -0.0, 1e-45]), st.floats(width=32, allow_nan=False))


@pytest.mark.parametrize("name", SERIALISATIONS)
@given(vector=arrays(np.float32, st.integers(0, 30), elements=FLOATS))
def test_every_bit_arrives_in_as_many_bytes_as_there_are_numbers(name: str, vector: Any) -> None:
    serialisation = SERIALISATIONS[name]
    body = serialisation.write(vector)
    numbers = len(vector) if serialisation.dense else int(np.count_nonzero(vector.view(np.uint32)))
    assert len(body) == serialisation.number_bytes * numbers + (0 if serialisation.dense else 4)
    read = serialisation.read(bytearray(body))
    assert (read.dtype, read.tobytes()) == (np.dtype(np.float32), vector.tobytes())
    read += 1
