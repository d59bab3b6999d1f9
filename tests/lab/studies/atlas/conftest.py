"""The project's recordings, read once."""

import pytest

from slslab_lab.studies.atlas.recordings import Recordings, committed, read_all


@pytest.fixture(scope="session")
def recordings() -> Recordings:
    """All recordings of the atlas."""
    return read_all(committed())
