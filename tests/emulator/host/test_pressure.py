"""The kernel's pressure stall information."""

from pathlib import Path

import pytest

from slslab.host import procfs
from slslab.host.procfs import NO_STALLS, Pressure, Stalls, Times, read_times

LINES = "some avg10=1.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=99\n"


def test_totals_are_read_again_when_they_are_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / name for name in ("cpu", "memory", "io")]
    for number, file in enumerate(files):
        file.write_text(LINES.format(10**number))
    monkeypatch.setattr(procfs, "PRESSURE_FILES", [str(file) for file in files])
    now = [1_000_000_000]
    monkeypatch.setattr("slslab.host.procfs.time.monotonic_ns", lambda: now[0])
    read = Pressure()
    assert (read.known, read.stalls()) == (True, Stalls(1_000, 110_000))
    files[0].write_text(LINES.format(5))
    now[0] += procfs.FRESH_NS
    assert read.stalls() == Stalls(1_000, 110_000)
    now[0] += 1
    assert read.stalls() == Stalls(5_000, 110_000)
    read.close()


def test_a_kernel_that_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "PRESSURE_FILES", [str(tmp_path / "nothing")])
    read = Pressure()
    assert (read.known, read.stalls()) == (False, NO_STALLS)
    read.close()
    monkeypatch.setattr(procfs, "PRESSURE_FILES", [str(tmp_path)] * 3)  # cannot be read, as with psi=0
    read = Pressure()
    assert (read.known, read.stalls()) == (False, NO_STALLS)
    read.close()


def test_stolen_time_is_a_share_of_the_time_in_which_there_was_work() -> None:
    before = Times(busy=1_000, stolen=10)
    assert Times(1_090, 20).stolen_share(before) == pytest.approx(0.1)
    assert Times(1_000, 20).stolen_share(before) == 1
    assert before.stolen_share(before) == 0
    assert Times(990, 5).stolen_share(before) == 0, "the kernel's counter of stolen time may go back"


def test_times_of_this_host_only_grow() -> None:
    before = read_times()
    assert before.busy > 0
    assert read_times().busy >= before.busy
