"""The project's recordings, read once."""

import pytest

from slslab_lab.studies import committed
from slslab_lab.studies.atlas.recordings import Recordings, read_all


@pytest.fixture(scope="session")
def recordings() -> Recordings:
    """All recordings of the atlas."""
    return read_all(committed("atlas"))
