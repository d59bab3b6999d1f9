"""Memory that large requests leave."""

import ctypes
import gc
import mmap

import pytest

from slslab.host import litter


def test_memory_is_given_back_to_the_host_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests leave free memory: a later allocation would reuse it, and the first collection would give it back.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    found = litter.Litter()
    collected: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    # A busy host may take longer for the next line than for a collection.
    monkeypatch.setattr(litter, "PAUSES", 10**9)
    found.collect()
    assert not collected
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    with mmap.mmap(-1, 2 * litter.LITTER_BYTES, flags=flags):
        found.collect()
        found.collect()  # in the pause
        assert collected == [1]
        found._next_s = 0.0
        found.collect()
        assert collected == [1, 1]
