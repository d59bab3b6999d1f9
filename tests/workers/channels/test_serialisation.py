"""Whatever vectors travel as, their bits arrive."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from slslab_workers.architecture import architectures
from slslab_workers.channels.serialisation import SERIALISATIONS
from slslab_workers.patterns import Workload
from slslab_workers.plan import PlanError

FLOATS = st.one_of(st.sampled_from([0.0, -0.0, 1e-45]), st.floats(width=32, allow_nan=False))


@pytest.mark.parametrize("name", SERIALISATIONS)
@given(vector=arrays(np.float32, st.integers(0, 30), elements=FLOATS))
def test_every_bit_arrives_in_as_many_bytes_as_there_are_numbers(name: str, vector: Any) -> None:
    serialisation = SERIALISATIONS[name]
    body = serialisation.write(vector)
    assert len(body) == serialisation.number_bytes * len(vector)
    read = serialisation.read(bytearray(body))
    assert (read.dtype, read.tobytes()) == (np.dtype(np.float32), vector.tobytes())
    read += 1


@pytest.mark.parametrize("channel", ["s3", "parameter-server"])
def test_a_recorded_run_of_a_serialisation_that_is_gone_has_no_pattern(channel: str) -> None:
    with pytest.raises(PlanError, match="no serialisation 'sparse'"):
        architectures()["allreduce"].pattern(Workload(2, 1, 1, 90, {"serialisation": "sparse", "channel": channel}))
