"""What earlier invocations tell of memory sizes: records of `slslab up`, and earlier tunings."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.emulator.tune.test_estimates import BOOK
from tests.metered import PROFILE, SAME, record

from slslab.predict.invocation import Predictor
from slslab.report.tuning import answers
from slslab.run.directory import RunDirectory
from slslab.tune import document
from slslab.tune.estimates import Measured
from slslab.tune.tuning import Payload, TunedFunction
from slslab.up.tuning import TUNINGS, Ledger


def ask(
    records: Sequence[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, memory: str | None = None
) -> dict[str, Any]:
    """Return the document of the only function that was recorded."""
    service = SimpleNamespace(invocations=records, events=[], predictor_of=lambda _: Predictor(SAME, PROFILE))
    monkeypatch.setattr(document, "read_service", lambda *_: service)
    directory = RunDirectory(Path("up-1"))
    return document.describe_recorded(directory, {"cores": 2}, None, None, memory, None, BOOK)


def waits(memory_mb: int, **changed: Any) -> list[dict[str, Any]]:
    return [record(2, 1000, memory_mb, **changed) for _ in range(3)]


@pytest.mark.parametrize(
    ("error_type", "reason"),
    [("Runtime.OutOfMemory", "it ran out of memory"), ("Sandbox.Timedout", "it timed out")],
)
def test_a_size_at_which_it_failed_is_left_out_with_smaller_ones(
    error_type: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [*waits(256), record(2, 1000, 256, error_type=error_type), *waits(1024)]
    document = ask(records, monkeypatch, "128,256,512,1024")
    reasons = {row["memory_mb"]: row["reason"] for row in document["sizes"]}
    assert reasons == {128: f"{reason} at 256 MB already", 256: reason, 512: "", 1024: ""}
    assert document["memory"] == 512
    # If the function has no other size, none is recommended.
    alone = ask(records[:4], monkeypatch, "128,256")
    assert alone["memory"] is None
    assert list(answers(alone)) == [f"No memory size works. At 256 MB, {reason}."]


def test_an_error_of_the_code_leaves_out_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    document = ask([*waits(256), record(2, 1000, 256, error_type="KeyError")], monkeypatch, "256,512")
    assert [row["reason"] for row in document["sizes"]] == ["", ""]
    assert document["memory"] == 256


def test_cold_starts_count_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    cold = record(300, 100, 512, cold_start=True, init_ms=200.0, init_cpu_ms=200.0)
    row = ask([cold, *waits(512)], monkeypatch, "512")["sizes"][0]
    assert (row["here"]["cold_starts"], row["here"]["rounds"]) == (1, 3)


def test_a_tuning_that_broke_off_and_a_record_that_lost_invocations_are_measured_again(tmp_path: Path) -> None:
    records = [record(2, 1000, 512, request_id="kept"), record(2, 1000, 256, request_id="lost")]
    configuration = {"FunctionName": "f", "Version": "$LATEST", "MemorySize": 512, "Timeout": 3, "CodeSha256": "c"}
    client = SimpleNamespace(get_function_configuration=lambda **_: configuration)
    function = TunedFunction(client, "f", lambda: (records, {}))
    ledger = Ledger(tmp_path, function, [Payload(1.0, {})])
    kept, lost = ([function.samples([name])] for name in ("kept", "lost"))
    ledger.add(Measured(256, [*lost]))
    line = (tmp_path / TUNINGS).read_text()
    (tmp_path / TUNINGS).write_text(line + line[:20])
    ledger.add(Measured(512, [*kept]))
    assert sorted(ledger.measured()) == [256, 512]
    del records[1]
    assert ledger.measured() == {512: Measured(512, [*kept])}
