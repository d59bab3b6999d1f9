"""One run of each architecture is recorded, and they hold what every architecture's runs do."""

import pytest
from tests.recorded_runs import RecordedRuns

from slslab.runs.planning import architectures
from slslab.trace.document import check_document


@pytest.mark.parametrize("architecture", architectures())
def test_runs_are_recorded_once(recorded_runs: RecordedRuns, architecture: str) -> None:
    path, document = recorded_runs[architecture]
    made = path.stat().st_mtime_ns
    assert (document["architecture"], document["status"], document["error"]) == (architecture, "done", None)
    assert document["replicas_equal"] is True
    assert check_document(document) == document
    assert recorded_runs[architecture] == (path, document)
    assert path.stat().st_mtime_ns == made
