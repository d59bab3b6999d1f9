"""Memory that large requests leave."""

import gc

import pytest

from slslab.host import litter


def test_memory_is_given_back_to_the_host_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    found = litter.Litter()
    collected: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    found.collect()
    assert not collected
    ballast = b"x" * (2 * litter.LITTER_BYTES)
    found.collect()
    found.collect()  # in the pause
    assert collected == [1]
    found._next_s = 0.0
    found.collect()
    assert collected == [1, 1]
    del ballast
