"""Sentences that a user sees."""

import pickle

import pytest

from slslab.errors import HostError, RequestError, RunError, SlslabError, counted
from slslab_lab.replay.whatif import ImpossibleError
from slslab_workers.plan import PlanError


def test_one_of_a_thing_is_singular() -> None:
    assert [counted(number, "run") for number in (0, 1, 2, 1024)] == ["0 runs", "1 run", "2 runs", "1,024 runs"]
    assert [counted(number, "batch", "batches") for number in (1, 2)] == ["1 batch", "2 batches"]


@pytest.mark.parametrize("kind", [RunError, RequestError, HostError, ImpossibleError, PlanError])
def test_an_error_of_another_process_is_the_same(kind: type[SlslabError | PlanError]) -> None:
    error = pickle.loads(pickle.dumps(kind("It failed.", "try again.")))
    assert (type(error), error.message, error.hint, str(error)) == (kind, "It failed.", "try again.", "It failed.")
