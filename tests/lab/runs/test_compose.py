"""The driver's side of a recording: when a launch of instances is over."""

import threading
from pathlib import Path
from typing import Any

import pytest

from slslab_lab.runs.compose import Received
from slslab_workers.architecture import Fleet, RunFailed


class Recording:
    """A recording of which every request succeeds, until the emulator dies."""

    alive = True

    def ask(self, *_arguments: str, **_body: Any) -> None:
        """Accept a request."""

    def receives(self) -> bool:
        return self.alive


def test_instances_of_an_emulator_that_died_are_waited_for_no_longer(tmp_path: Path) -> None:
    def check() -> None:
        raise RunFailed("StackFailed", "the emulator ended")

    launcher = Received(None, tmp_path, Fleet("g4dn.xlarge", "cpu"), check)  # type: ignore[arg-type]
    recording = launcher.recording = Recording()  # type: ignore[assignment]
    ended = threading.Event()

    def launch() -> None:
        with launcher.launch("slslab_workers.gpu.instance", [{}], {}), pytest.raises(RunFailed, match="emulator ended"):
            launcher.join()
        ended.set()

    threading.Thread(target=launch).start()
    assert not ended.wait(1)
    recording.alive = False
    assert ended.wait(10)


def test_logs_are_written_as_they_are(tmp_path: Path) -> None:
    received = Received(None, tmp_path / "logs", None, print)  # type: ignore[arg-type]
    for text in (b"a\r\n\xff", b"b", b""):
        received.record({"record": "log", "environment": "f-0", "text": text.decode("latin-1")})
    assert (tmp_path / "logs" / "f-0.log").read_bytes() == b"a\r\n\xffb"


def test_a_log_that_cannot_be_written_is_named() -> None:
    received = Received(None, Path("/proc/x"), None, print)  # type: ignore[arg-type]
    received.record({"record": "log", "environment": "f-0", "text": "text"})
    assert str(received.unwritten).startswith("/proc/x/f-0.log cannot be written")
