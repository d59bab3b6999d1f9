"""Context managers that are made of others."""

from contextlib import ExitStack

import pytest

from slslab.host.managed import Managed


class Pair(Managed):
    def __init__(self, *, fails: bool = False) -> None:
        self.steps: list[str] = []
        self._fails = fails

    def _enter(self, stack: ExitStack) -> None:
        stack.callback(self.steps.append, "first released")
        stack.callback(self.steps.append, "second released")
        if self._fails:
            raise OSError("while it enters")
        self.steps.append("entered")


def test_what_was_acquired_is_released_in_reverse() -> None:
    pair = Pair()
    with pytest.raises(RuntimeError, match="of the block"), pair:
        raise RuntimeError("of the block")
    assert pair.steps == ["entered", "second released", "first released"]


def test_what_was_acquired_before_a_failure_is_released_at_once() -> None:
    pair = Pair(fails=True)
    with pytest.raises(OSError, match="while it enters"), pair:
        pytest.fail("it was entered")
    assert pair.steps == ["second released", "first released"]
