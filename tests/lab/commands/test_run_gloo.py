"""`slslab run gloo`, from the command to its document: trace, bill, page and replay."""

from decimal import Decimal
from pathlib import Path

import pytest
from tests import commands
from tests.recorded_runs import RecordedRun, RecordedRuns

from slslab.predict.profiles.profile import load_profile
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.programs.recorded import make_program
from slslab_lab.replay.programs.recording import read_recording
from slslab_workers.trace.operations import ALL_REDUCE

pytestmark = pytest.mark.server


@pytest.fixture
def run(recorded_runs: RecordedRuns) -> RecordedRun:
    """A run of three peers."""
    return recorded_runs["gloo"]


def test_the_document_has_the_closed_form_and_seconds_of_instances(run: RecordedRun) -> None:
    document = run.document
    assert (document["status"], document["device"], document["invocations"]) == ("done", "cpu", 0)
    assert document["counts"] == {ALL_REDUCE: 3 * 4 * 4}
    assert {(one["type"], one["status"]) for one in document["instances"]} == {("c5.large", "success")}
    assert document["billed_seconds"] == 180, "a minute at least for each"


def test_the_bill_has_instances_and_no_function(run: RecordedRun) -> None:
    bill = commands.slslab("bill", run.path, "--json").document
    (line,) = [line for line in bill["lines"] if line["item"].startswith("Host")]
    assert line["item"] == "Host c5.large"
    assert line["quantity"] == "180"
    assert round(Decimal(line["amount"]), 12) == Decimal("0.00425"), "three minutes of 0.085 USD an hour"
    assert not [line for line in bill["lines"] if "Lambda" in line["item"]]
    assert bill["host"]["notes"] == [], "a c5.large has no GPU for which the CPU would stand"


def test_a_run_says_what_is_not_enforced(run: RecordedRun) -> None:
    shown = commands.slslab("show", run.path, "--full").out
    assert "The vCPUs and memory of c5.large weren't enforced." in shown
    assert "not enforced: instances have this host's vCPUs and memory, unlike c5.large" in " ".join(shown.split())


def test_the_page_names_the_architecture_and_who_sent_to_whom(run: RecordedRun) -> None:
    page = (run.path / "report.html").read_text()
    assert "IaaS peers" in page
    assert "all-reduce" in page
    assert "no GPU" not in page


def test_each_all_reduce_of_the_replay_begins_when_the_last_peer_has_come(run: RecordedRun) -> None:
    recording = read_recording(run.path)
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


def test_other_numbers_of_peers_are_replayed(run: RecordedRun) -> None:
    replayed = commands.slslab("replay", run.path, "--workers", "1,3,64", "--json").document
    rows = {row["label"]: row for row in replayed["rows"]}
    assert [row["trouble"] for row in rows.values()] == [None] * len(rows)
    seconds = [rows[f"{n} workers" if n > 1 else "1 worker"]["seconds"]["value"] for n in (1, 3, 64)]
    recorded = run.document["lambda"]["seconds"]
    assert seconds[1] == pytest.approx(recorded, rel=0.05)
    # 64 peers send 126 messages for each of four minibatches, one none; of three there are the recorded waits, too.
    assert seconds[2] - seconds[0] > 4 * 126 * 0.00015 * 0.5


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--mode", "per-batch"), 2, "leave out --mode"),
        (("--invoke", "event"), 2, "leave out --mode and --invoke"),
        (("--as-released",), 2, "omit --as-released"),
        (("--device", "cuda"), 2, "--instance-type g4dn.xlarge"),
        (("--device", "cuda", "--instance-type", "g4dn.xlarge"), 3, "torch sees no CUDA device"),
        (("--instance-type", "t2.nano"), 2, "has no instance type 't2.nano'"),
        (("--channel", "redis"), 2, "No such option"),
    ],
)
def test_bad_requests_get_one_sentence_and_a_hint(
    arguments: tuple[str, ...], code: int, says: str, tmp_path: Path
) -> None:
    done = commands.slslab("run", "gloo", *arguments, "--out", tmp_path / "run", variables={"CUDA_VISIBLE_DEVICES": ""})
    assert done.code == code
    assert says in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "run").exists()
