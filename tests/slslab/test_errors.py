"""Sentences that a user sees."""

from slslab.errors import counted


def test_one_of_a_thing_is_singular() -> None:
    assert [counted(number, "run") for number in (0, 1, 2, 1024)] == ["0 runs", "1 run", "2 runs", "1,024 runs"]
    assert [counted(number, "batch", "batches") for number in (1, 2)] == ["1 batch", "2 batches"]
