"""`slslab run gloo`, from the command to its document: trace, bill, page and replay; a peer that dies, and one that
hangs."""

import json
import os
import signal
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests import commands
from tests.slslab.cli.test_run import begun, remains

from slslab.replay.kernel.kernel import play
from slslab.replay.profiles.profile import load_profile
from slslab.replay.programs.recorded import make_program
from slslab.replay.programs.recording import read_recording
from slslab.runs.planning import architectures
from slslab_workers.trace.operations import ALL_REDUCE

pytestmark = pytest.mark.server

SMALL = ("--epochs", "2", "--batches", "2")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {"SLSLAB_RUNS": str(tmp_path_factory.mktemp("runs")), "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture(scope="module")
def document(environment: dict[str, str]) -> dict[str, Any]:
    """A run of three peers."""
    before = remains(os.getpid())
    found: dict[str, Any] = commands.slslab(
        "run", "gloo", "--workers", "3", *SMALL, "--json", variables=environment
    ).document
    assert set(remains(os.getpid())) <= set(before)
    return found


def test_the_document_has_the_closed_form_and_seconds_of_instances(document: dict[str, Any]) -> None:
    assert (document["status"], document["device"], document["invocations"]) == ("done", "cpu", 0)
    assert document["replicas_equal"] is True
    expected = architectures()["gloo"].counts(3, 2, 2, 61_706)
    assert document["counts"] == dict(expected.operations) == {ALL_REDUCE: 3 * 4 * 4}
    assert document["bytes"] == {"in": expected.bytes_in, "out": expected.bytes_out}
    assert {(one["type"], one["status"]) for one in document["instances"]} == {("c5.large", "success")}
    assert document["billed_seconds"] == 180, "a minute at least for each"


def test_the_bill_has_instances_and_no_function(document: dict[str, Any], environment: dict[str, str]) -> None:
    bill = commands.slslab("bill", document["run"], "--json", variables=environment).document
    (line,) = [line for line in bill["lines"] if line["item"].startswith("Host")]
    assert line["item"] == "Host c5.large"
    assert line["quantity"] == "180"
    assert round(Decimal(line["amount"]), 12) == Decimal("0.00425"), "three minutes of 0.085 USD an hour"
    assert not [line for line in bill["lines"] if "Lambda" in line["item"]]
    assert bill["host"]["notes"] == [], "a c5.large has no GPU for which the CPU would stand"


def test_the_last_line_says_what_is_not_enforced(document: dict[str, Any], environment: dict[str, str]) -> None:
    shown = commands.slslab("show", document["run"], variables=environment).out
    assert shown.rstrip().endswith("3 × c5.large, whose vCPUs and memory are not enforced")


def test_the_page_names_the_architecture_and_who_sent_to_whom(
    document: dict[str, Any], environment: dict[str, str]
) -> None:
    page = (Path(environment["SLSLAB_RUNS"]) / document["run"] / "report.html").read_text()
    assert "IaaS peers" in page
    assert "all-reduce" in page
    assert "no GPU" not in page


def test_each_all_reduce_of_the_replay_begins_when_the_last_peer_has_come(
    document: dict[str, Any], environment: dict[str, str]
) -> None:
    assert document["lambda"]["status"] == "modelled"
    recording = read_recording(Path(environment["SLSLAB_RUNS"]) / document["run"])
    timeline = play(make_program(recording), load_profile("aws-us-east-1"))
    tracks = timeline.program.tracks
    for place in {(step.epoch, step.step) for step in timeline.steps if step.op == ALL_REDUCE}:
        entries = [n for n, step in enumerate(timeline.steps) if (step.epoch, step.step) == place]
        came = max(timeline.end[n] for n in entries if timeline.steps[n].op == "compute")
        reduced = [n for n in entries if timeline.steps[n].op == ALL_REDUCE]
        assert sorted(tracks[timeline.track[n]].worker for n in reduced) == [0, 1, 2]
        for n in reduced:
            step = timeline.steps[n]
            moved = max(round(step.bytes * 1e3 / 225), step.cpu_ns)
            assert timeline.begin[n] == came
            assert timeline.end[n] - came == 4 * 150_000 + moved


def test_other_numbers_of_peers_are_replayed(document: dict[str, Any], environment: dict[str, str]) -> None:
    replayed = commands.slslab(
        "replay", document["run"], "--workers", "1,3,64", "--json", variables=environment
    ).document
    rows = {row["label"]: row for row in replayed["rows"]}
    assert [row["trouble"] for row in rows.values()] == [None] * len(rows)
    seconds = [rows[f"{n} workers" if n > 1 else "1 worker"]["seconds"]["value"] for n in (1, 3, 64)]
    recorded = document["lambda"]["seconds"]
    assert seconds[1] == pytest.approx(recorded, rel=0.05)
    # 64 peers send 126 messages for each of four minibatches, one none; of three there are the recorded waits, too.
    assert seconds[2] - seconds[0] > 4 * 126 * 0.00015 * 0.5


def instances(pid: int) -> list[psutil.Process]:
    """The instances that a command runs, by rank, which is the order of their launch."""
    found = [
        process
        for process in psutil.Process(pid).children(recursive=True)
        if process.cmdline()[-1:] == ["slslab_workers.gloo.instance"]
    ]
    return sorted(found, key=lambda process: process.pid)


@pytest.mark.parametrize(
    ("number", "rank", "type_", "says"),
    [
        (signal.SIGKILL, 1, "Instance.Killed", "was killed by SIGKILL."),
        (signal.SIGSTOP, 0, "PeerLost", "worker 0 gave no sign of life within 5 s (Timed out waiting 3000ms"),
    ],
)
def test_a_peer_that_dies_or_hangs_ends_the_run_and_is_named(
    environment: dict[str, str], tmp_path: Path, number: signal.Signals, rank: int, type_: str, says: str
) -> None:
    out = tmp_path / "run"
    command = ("run", "gloo", "--workers", "3", "--epochs", "60", "--batches", "2", "--timeout", "3")
    with begun(environment, out, *command, "--out", str(out), "--json", until=ALL_REDUCE) as process:
        peers = instances(process.pid)
        assert len(peers) == 3
        began = time.monotonic()
        os.kill(peers[rank].pid, number)
        stdout, stderr = process.communicate(timeout=60)
        assert time.monotonic() - began < 60
    assert process.returncode == 1, stderr
    assert "Traceback" not in stderr
    found = json.loads(stdout)
    assert found["error"]["type"] == type_
    assert says in found["error"]["message"]
    if number == signal.SIGKILL:
        assert found["error"]["worker"] == rank
    assert len(found["instances"]) == 3, "those that were ended are metered, too"
    assert remains(process.pid) == []


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--mode", "per-batch"), 2, "omit --mode"),
        (("--invoke", "event"), 2, "omit --invoke"),
        (("--as-released",), 2, "omit --as-released"),
        (("--device", "cuda"), 2, "--instance-type g4dn.xlarge"),
        (("--device", "cuda", "--instance-type", "g4dn.xlarge"), 3, "torch sees no CUDA device"),
        (("--instance-type", "t2.nano"), 2, "has no instance type 't2.nano'"),
        (("--channel", "redis"), 2, "No such option"),
    ],
)
def test_bad_requests_get_one_sentence_and_a_hint(
    arguments: tuple[str, ...], code: int, says: str, environment: dict[str, str], tmp_path: Path
) -> None:
    done = commands.slslab("run", "gloo", *arguments, "--out", tmp_path / "run", variables=environment)
    assert done.code == code
    assert says in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "run").exists()
