"""Whole runs through the command line: documents, exit codes, endings."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests import commands

from slslab.host.cgroups import detect
from slslab.host.reaper import MARK
from slslab.runs.planning import architectures
from slslab.stack.channels import find_server
from slslab.trace.document import check_document
from slslab.trace.records import seconds_used

pytestmark = pytest.mark.server

Slslab = Callable[..., commands.Done]
# Their environments are forked from a process of theirs that has made the imports.
PROGRAM = f"""
from functools import partial
from slslab.cli.main import main
from slslab.runs import embedded
embedded.Emulator = partial(embedded.Emulator, template={commands.IMPORTS})
main()
"""
COMMAND = [sys.executable, "-c", PROGRAM]
SMALL = ("--epochs", "2", "--workers", "2", "--batches", "2")
RECORDED = str(Path(__file__).parents[1] / "replay" / "traces" / "allreduce" / "plan.toml")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this module's runs live."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def environment(runs: Path) -> dict[str, str]:
    """Variables of commands: without GPUs, so that all architectures compute on the same device."""
    return {"SLSLAB_RUNS": str(runs), "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture(scope="module")
def slslab(environment: dict[str, str]) -> Slslab:
    """The command line within this process, of which nothing is left, whatever its ending.

    Environments are forks, unless `imported` has each make its own imports.
    """

    def call(*arguments: str, imported: bool = False) -> commands.Done:
        before = remains(os.getpid())
        with ExitStack() as stack:
            if not imported:
                stack.enter_context(commands.forked_environments())
            done = commands.slslab(*arguments, variables=environment)
        assert set(remains(os.getpid())) <= set(before)
        return done

    return call


@pytest.fixture(scope="module")
def documents(slslab: Slslab) -> dict[str, dict[str, Any]]:
    """One small run of each architecture."""
    found = {}
    for name in ("allreduce", "scatterreduce"):
        found[name] = slslab("run", name, *SMALL, "--json", imported=name == "allreduce").document
    return found


def test_document_of_a_finished_run(documents: dict[str, dict[str, Any]]) -> None:
    for name, document in documents.items():
        assert (document["schema"], document["status"], document["error"]) == (2, "done", None)
        assert (document["architecture"], document["parameters"], document["gradient_bytes"]) == (name, 61706, 246824)
        assert len(document["loss"]) == len(document["accuracy"]) == 2
        assert (document["invocations"], document["cold_starts"]) == (2, 2)
        assert 0 < document["peak_memory_mb"] <= document["memory_mb"]
        modelled = document["lambda"]
        assert modelled["status"] == "modelled"
        assert modelled["seconds"] > 0
        assert 0 < modelled["error"]["seconds"]["mean"] < modelled["error"]["seconds"]["worst"] < 1
        assert check_document(document) == document
        assert [worker["worker"] for worker in modelled["per_worker"]] == [0, 1]
        assert document["seconds"]["span"] <= document["seconds"]["measured"]
        assert document["replicas_equal"] is True
        assert "SeaweedFS" in document["stack"]["s3"]
        assert "awslambdaric 4.2.2" in document["stack"]["lambda"]
    assert len({document["parameters_sha256"] for document in documents.values()}) == 1, "equal seeds, equal bits"


def test_instances_compute_what_functions_do_and_are_billed_by_the_second(
    documents: dict[str, dict[str, Any]], slslab: Slslab, runs: Path
) -> None:
    document = slslab("run", "gpu", *SMALL, "--json").document
    assert (document["status"], document["device"], document["invocations"], document["gb_seconds"]) == (
        "done", "cpu", 0, "0",
    )  # fmt: skip
    for same in ("parameters_sha256", "loss", "accuracy"):
        assert document[same] == documents["allreduce"][same]
    expected = architectures()["gpu"].counts(2, 2, 2, 61_706)
    assert document["counts"] == dict(expected.operations)
    assert document["bytes"] == {"in": expected.bytes_in, "out": expected.bytes_out}
    launched = document["instances"]
    lines = (runs / document["run"] / "instances.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == launched
    assert sorted((one["worker"], one["type"], one["status"]) for one in launched) == [
        (0, "g4dn.xlarge", "success"), (1, "g4dn.xlarge", "success"),
    ]  # fmt: skip
    assert document["billed_seconds"] == 120, "a minute at least for each"
    seconds = sum(map(seconds_used, launched))
    assert sum(document["phases"].values()) == pytest.approx(float(seconds), abs=0.01)
    for worker in document["per_worker"]:
        assert min(worker["phases"][phase] for phase in ("compute", "synchronise", "other")) > 0
    for book, quantity in (("aws-us-east-1", Decimal(120)), ("paper-2025", seconds)):
        bill = slslab("bill", document["run"], "--prices", book, "--json").document
        assert sum(Decimal(line["amount"]) for line in bill["lines"]) == Decimal(bill["total"])
        [line] = [line for line in bill["host"]["lines"] if line["item"] == "Host g4dn.xlarge"]
        assert Decimal(line["quantity"]) == quantity
        assert bill["host"]["notes"] == [
            "computed on CPU: times are no GPU's, and seconds are billed as if of g4dn.xlarge"
        ]
    shown = slslab("show", document["run"]).out
    assert shown.startswith("On AWS (us-east-1, modelled): ")
    assert shown.count("computed on CPU: times are no GPU's") == 1
    assert "2 on cpu" in shown
    assert "REPORT" not in shown
    compared = slslab("compare", documents["allreduce"]["run"], document["run"]).out
    assert "gpu: computed on CPU: times are no GPU's" in compared


def test_counts_and_bytes_of_a_run_are_the_closed_form(documents: dict[str, dict[str, Any]]) -> None:
    for name, document in documents.items():
        expected = architectures()[name].counts(2, 2, 2, 61_706)
        assert document["counts"] == dict(expected.operations)
        assert document["bytes"] == {"in": expected.bytes_in, "out": expected.bytes_out}
        assert document["overheads"]["counts"]["object.list"] > 0


def test_bill_adds_up(documents: dict[str, dict[str, Any]], slslab: Slslab, runs: Path) -> None:
    for document in documents.values():
        for prices in ("aws-us-east-1", "paper-2025"):
            bill = slslab("bill", document["run"], "--prices", prices, "--json").document
            assert sum(Decimal(line["amount"]) for line in bill["lines"]) == Decimal(bill["total"])
            assert sum(Decimal(line["amount"]) for line in bill["host"]["lines"]) == Decimal(bill["host"]["total"])
            for line in (*bill["lines"], *bill["host"]["lines"]):
                assert Decimal(line["quantity"]) * Decimal(line["price"]) == Decimal(line["amount"])
        left = json.loads((runs / document["run"] / "bill.json").read_text())
        assert left == slslab("bill", document["run"], "--json").document
        assert left["host"] == document["cost"]
        assert {**document["lambda"]["cost"], **left} == left
        assert left["error"] == document["lambda"]["error"]
        requests = document["cost"]["lines"]
        lists = next(line for line in requests if line["item"] == "S3 LIST requests")
        assert int(lists["quantity"]) == document["overheads"]["counts"]["object.list"]
        assert Decimal(document["gb_seconds"]) == Decimal(requests[0]["quantity"])


def test_phases_are_the_billed_time(documents: dict[str, dict[str, Any]]) -> None:
    for document in documents.values():
        assert sum(document["phases"].values()) == pytest.approx(document["billed_seconds"], abs=0.01)
        for worker in document["per_worker"]:
            assert worker["phases"]["compute"] > 0
            assert worker["phases"]["other"] > -0.01


def test_run_directory_is_complete(documents: dict[str, dict[str, Any]], runs: Path, slslab: Slslab) -> None:
    document = documents["allreduce"]
    directory = runs / document["run"]
    names = {path.name for path in directory.iterdir()}
    assert names == {
        "plan.toml", "trace.parquet", "invocations.jsonl", "bill.json", "metrics.json", "run.json", "logs",
        "report.html",
    }  # fmt: skip
    assert document["report"] == {"file": "report.html", "error": None}
    reports = [json.loads(line)["report"] for line in (directory / "invocations.jsonl").read_text().splitlines()]
    logs = "".join(path.read_text() for path in (directory / "logs").iterdir())
    assert len(reports) == 2
    assert all(report in logs for report in reports)
    printed = slslab("logs", document["run"]).out
    assert all(f"  {report.splitlines()[0]}" in printed for report in reports)


def test_show_runs_and_compare(documents: dict[str, dict[str, Any]], slslab: Slslab) -> None:
    run = documents["scatterreduce"]["run"]
    assert slslab("show", run, "--json").document == documents["scatterreduce"]
    shown = slslab("show", run).out
    assert shown.startswith("On AWS Lambda (us-east-1, modelled): ")
    for heading in ("Phases", "Messages and bytes", "Learning", "Bill", "host delay"):
        assert heading in shown
    listed = slslab("runs", "--json").document["runs"]
    assert {document["run"] for document in documents.values()} <= {document["run"] for document in listed}
    both = slslab("compare", *(document["run"] for document in documents.values())).out
    assert both.startswith("On AWS (us-east-1, modelled")
    assert "Fastest: " in both
    assert "Cheapest: " in both
    assert {line.split()[0] for line in both.splitlines() if line.strip()} >= documents.keys()


@pytest.mark.alone
def test_watchdog_re_invokes_and_the_trajectory_is_the_same(slslab: Slslab) -> None:
    """With a time-out of 4 s, 16 steps of about 0.5 s need several generations of every worker.

    With steps of this length the watchdog keeps 1 s in reserve, which a short stall of the host does not use up.
    """
    size = ("--workers", "2", "--epochs", "16", "--batches", "1", "--batch-size", "700", "--memory", "512")
    plan = ("run", "allreduce", *size, "--no-evaluation", "--json")
    whole = slslab(*plan).document
    pieces = slslab(*plan, "--timeout", "4").document
    assert whole["invocations"] == 2
    assert pieces["invocations"] >= 4
    assert pieces["parameters_sha256"] == whole["parameters_sha256"]
    assert pieces["counts"] == whole["counts"]
    assert pieces["bytes"] == whole["bytes"]
    assert pieces["loss"] == whole["loss"]


def test_until_accuracy_and_early_stopping(slslab: Slslab) -> None:
    plan = ("run", "scatterreduce", "--workers", "2", "--batches", "9", "--epochs", "50", "--json")
    reached = slslab(*plan, "--until-accuracy", "0.5").document
    assert reached["status"] == "done"
    assert reached["epochs_trained"] < 50
    assert reached["accuracy"][-1] >= 0.5
    assert all(accuracy < 0.5 for accuracy in reached["accuracy"][:-1])
    expected = architectures()["scatterreduce"].counts(2, 9, reached["epochs_trained"], 61_706)
    assert reached["counts"] == dict(expected.operations)


def test_a_peer_joins_a_run_of_spirts(slslab: Slslab) -> None:
    """One peer in the first epoch, two in the second; the counts are exact, and everything else stands apart."""
    document = slslab(
        "run", "spirt", *SMALL, "--join", "1:1", "--queue", "embedded", "--light-memory", "1024", "--json"
    ).document
    expected = architectures()["spirt"].counts(2, 2, 2, 61_706, {"join": "1:1"})
    assert document["counts"] == dict(expected.operations)
    assert document["counts"]["transition"] == (1 + 2) * (2 + 8)
    assert document["bytes"] == {"in": expected.bytes_in, "out": expected.bytes_out}
    assert document["details"]["joins"] == [{"worker": 1, "epoch": 1}]
    assert document["plan"]["options"]["join"] == "1:1"
    assert document["replicas_equal"] is True
    assert len(document["loss"]) == len(document["accuracy"]) == 2
    # Initial parameters of one, the model that is handed over, and a request and an answer to and from each.
    assert document["overheads"]["counts"]["tensor.set"] == 2
    assert document["overheads"]["counts"]["queue.publish"] == 4
    # Two births, one model, and the functions of three executions.
    assert document["invocations"] == 3 + 3 * (2 + 7)
    shown = slslab("show", document["run"]).out
    assert "peer that joined" in shown


def test_out_of_memory_ends_the_run_with_a_hint(slslab: Slslab) -> None:
    plan = ["run", "allreduce", "--model", "mobilenet", "--dataset", "synthetic", "--workers", "1", "--batches", "1"]
    plan += ["--batch-size", "128", "--no-evaluation", "--json"]
    ended = slslab(*plan, "--memory", "512")
    assert ended.code == 1
    document = ended.printed
    assert document["status"] == "failed"
    assert document["error"]["type"] == "Runtime.OutOfMemory"
    assert document["error"]["message"].endswith("Runtime exited with error: signal: killed")
    assert document["error"]["hint"] == "killed at its limit of 512 MB; try --memory 1024."
    assert document["error"]["worker"] == 0
    assert document["cost"]["lines"], "what ran is priced"
    reason = "The run did not come to its end, and so its trace has none."
    assert document["lambda"] == {"status": "not modelled", "reason": reason}
    bill = slslab("bill", document["run"], "--json").document
    assert bill == {"schema": 1, **document["lambda"], "host": document["cost"]}
    assert slslab("show", document["run"]).out.startswith(f"On AWS Lambda: not modelled. {reason}")
    measured = slslab(*plan, imported=True).document
    again = slslab(*plan, "--memory", "512").printed
    peak = measured["peak_memory_mb"]
    tried = f"the last run of this plan that finished peaked at {peak:,} MB: try --memory {peak // 64 * 64 + 64}."
    assert again["error"]["hint"].endswith(tried)


@pytest.mark.cifar10
@pytest.mark.exhaustive
def test_the_real_job(slslab: Slslab, real_images: Path) -> None:
    """MobileNet on real CIFAR-10 images, batch 512: enough at 3,008 MB, killed at 1,769 MB with the hint."""
    plan = ["run", "scatterreduce", "--model", "mobilenet", "--dataset", f"folder:{real_images}", "--workers", "2"]
    plan += ["--batch-size", "512", "--batches", "1", "--no-evaluation", "--json", "--memory"]
    document = slslab(*plan, "3008", imported=True).document
    assert document["counts"] == {"object.put": 4, "object.get": 4, "object.delete": 2}
    assert document["bytes"] == {"in": 25_737_808, "out": 25_737_808}
    assert 1769 < document["peak_memory_mb"] < 3008
    assert document["replicas_equal"] is True
    killed = slslab(*plan, "1769", imported=True)
    assert killed.code == 1
    error = killed.printed["error"]
    assert error["type"] == "Runtime.OutOfMemory"
    peak = document["peak_memory_mb"]
    assert error["hint"] == (
        f"killed at its limit of 1,769 MB; the last run of this plan that finished peaked at {peak:,} MB: "
        f"try --memory {peak // 64 * 64 + 64}."
    )


def test_a_plan_is_run_again_with_the_same_bits(
    documents: dict[str, dict[str, Any]], slslab: Slslab, runs: Path, tmp_path: Path
) -> None:
    first = documents["allreduce"]
    left = tomllib.loads((runs / first["run"] / "plan.toml").read_text())
    assert left == first["plan"]
    assert (left["schema"], left["prices"], left["options"]["polling"]) == (2, "aws-us-east-1", "adaptive")
    plan, out = str(runs / first["run"] / "plan.toml"), str(tmp_path / "again")
    again = slslab("run", plan, "--prices", "paper-2025", "--out", out, "--json").document
    for same in ("parameters_sha256", "loss", "accuracy", "counts", "bytes"):
        assert again[same] == first[same]
    assert again["run"] != first["run"]
    assert again["plan"] == left | {"run": again["run"], "prices": "paper-2025"}
    assert again["cost"]["book"]["name"] == "paper-2025"
    assert tomllib.loads((tmp_path / "again" / "plan.toml").read_text()) == again["plan"]


def test_a_plan_with_a_queue_and_databases_of_other_hosts_is_run_again(slslab: Slslab, runs: Path) -> None:
    """Nothing of it is decided by the clock without --max-time, --remove-threshold and --remove-interval."""
    hosts = ("--tensor-host", "t4g.medium", "--queue-host", "mq.m5.large")
    first = slslab("run", "mlless", *SMALL, "--threshold", "0.01", *hosts, "--json").document
    assert first["plan"]["options"]["queue"] in ("rabbitmq", "embedded"), "what `auto` became"
    assumed = {line["item"] for line in first["cost"]["lines"] if line.get("assumed")}
    assert assumed == {"Host t4g.medium", "Host mq.m5.large"}
    again = slslab("run", str(runs / first["run"] / "plan.toml"), "--json").document
    assert again["parameters_sha256"] == first["parameters_sha256"]
    assert again["plan"] == first["plan"] | {"run": again["run"]}
    assert "Host t4g.medium (assumed)" in slslab("show", again["run"]).out
    page = (runs / again["run"] / "report.html").read_text()
    assert "a host that is assumed" in page


def test_instances_are_no_containers_with_the_embedded_stack(slslab: Slslab, tmp_path: Path) -> None:
    done = slslab("run", "gpu", "--environment", "docker", "--out", str(tmp_path / "run"), imported=True)
    assert done.code == 2
    error, hint = done.err.strip().splitlines()[-2:]
    assert error == "Error: Instances are processes of this host with the embedded stack."
    assert hint == "Hint: --stack compose launches them as containers."
    assert not (tmp_path / "run").exists()


def test_a_run_that_its_host_cannot_begin_leaves_nothing(
    slslab: Slslab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    done = slslab("run", "allreduce", "--environment", "docker", "--out", str(tmp_path / "run"), imported=True)
    assert done.code == 3
    error, hint = done.err.strip().splitlines()[-2:]
    assert error == f"Error: No Docker engine answers: No such file or directory at {tmp_path}/nobody.sock."
    assert hint.startswith("Hint: start Docker")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("run", "spirt", "--workers", "4000"), 3, "1 environment at once: 1 × 1,024 MB + 1,076,000 MB of smaller"),
        (("run", "spirt", "--join", "0:1"), 2, "--epochs 2, or more"),
        (("run", "spirt", "--epochs", "3", "--join", "4:1"), 2, "There is no peer 4, so it cannot join"),
        (("run", "allreduce", "--workers", "4000"), 3, "4,000 environments at once: 4,000 × 1,024 MB = 4,096,000 MB"),
        (("run", "allreduce", "--batches", "50"), 2, "= 12,800 samples an epoch, and the training set holds 1,433"),
        (("run", "nothing"), 2, "There is no architecture 'nothing'"),
        (("run", "spirt", "--combine", "sum"), 2, "'sum' is not one of 'mean', 'median'"),
        (("run", "allreduce", "--model", "alexnet"), 2, "There is no model 'alexnet'"),
        (
            ("run", "allreduce", *SMALL, "--model", "lenet", "--dataset", "folder:/nowhere"),
            2,
            "/nowhere is not a directory",
        ),
        (("run", "allreduce", "--memory", "64"), 2, "64 MB does not exist on AWS Lambda"),
        (("run", "allreduce", "--memory", "paper"), 2, "The paper gives no memory size"),
        (("run", "allreduce", "--timeout", "901"), 2, "901 s does not exist on AWS Lambda"),
        (("run", "allreduce", "--mode", "per-batch", "--invoke", "event"), 2, "--invoke sync"),
        (("run", "allreduce", "--prices", "nowhere"), 2, "nowhere"),
        (("run", "gpu", "--mode", "per-batch"), 2, "omit --mode"),
        (("run", "gpu", "--invoke", "event"), 2, "omit --invoke"),
        (("run", "gpu", "--as-released"), 2, "omit --as-released"),
        (("run", "gpu", "--instance-type", "t2.nano"), 2, "has no instance type 't2.nano'"),
        (("run", "mlless", "--queue-host", "t2.nano"), 2, "has no instance type 't2.nano'"),
        (("run", "allreduce", "--tensor-host", "m5.large"), 2, "No such option"),
        (("run", "nothing.toml"), 2, "There is no plan 'nothing.toml'"),
        (("run", "nowhere/plan"), 2, "There is no plan 'nowhere/plan'"),
        (("run", "nowhere/plan", "--epochs", "2"), 2, "--epochs does not apply to a plan"),
        (("run", RECORDED), 2, "cannot be run again, because it has no schema, memory_format"),
        (("run", "gpu", "--device", "cuda"), 3, "torch sees no CUDA device"),
        (("run", "allreduce", "--out", "/proc/x"), 2, "/proc/x cannot be made"),
        (("show", "nothing"), 2, "There is no run 'nothing'"),
        (("compare", "last"), 2, "compare needs two runs"),
        (("frobnicate",), 2, "No such command"),
    ],
)
def test_bad_requests_get_one_sentence_and_a_hint(
    slslab: Slslab, runs: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    before = sorted(runs.iterdir())
    ended = slslab(*arguments)
    assert ended.code == code, ended.err
    assert says in ended.err
    assert "Traceback" not in ended.err
    assert ended.out == ""
    assert sorted(runs.iterdir()) == before, "a wrong request leaves no run behind"


def test_doctor(slslab: Slslab) -> None:
    found = {finding["subject"]: finding for finding in slslab("doctor", "--json").document["findings"]}
    assert found["training"]["state"] == "ok"
    assert "kept from each other, your files and your keys" in found["isolation"]["hint"]


@contextmanager
def begun(
    environment: dict[str, str], out: Path, *arguments: str, until: str = "update"
) -> Iterator[subprocess.Popen[str]]:
    """Start a long command, wait until the trace of the run in `out` has such an operation, and end it afterwards."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    log = out / "trace.jsonl"
    deadline = time.monotonic() + 120
    try:
        while not (log.exists() and f'"op":"{until}"' in log.read_text()):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


def object_store_sockets(pid: int) -> list[Path]:
    """Unix sockets that the S3 server of this command makes outside the command's directory."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK, "").startswith(f"{pid}-") and "server" in process.cmdline():
                ports = [part.rpartition("=")[2] for part in process.cmdline() if ".port" in part]
                return [socket for port in ports for socket in Path("/tmp").glob(f"seaweedfs-*-{port}.sock")]
    return []


def remains(pid: int) -> list[str]:
    """Processes, control groups, sockets and files of the command with this process id."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                variables = Path(f"/proc/{entry}/environ").read_bytes()
            except OSError:
                continue
            if f"{MARK}={pid}-".encode() in variables:
                found.append(entry)
    groups = [str(g) for parent in detect().parents.values() for g in parent.glob(f"slslab-{pid}-*")]
    homes = [str(home) for home in Path(tempfile.gettempdir()).glob(f"slslab-{pid}-*")]
    return found + groups + homes


@pytest.mark.parametrize(
    ("architecture", "number", "code"),
    [
        ("allreduce", signal.SIGINT, 130),
        pytest.param("allreduce", signal.SIGHUP, 129, marks=pytest.mark.exhaustive),
        ("allreduce", signal.SIGKILL, -signal.SIGKILL),
        ("gloo", signal.SIGINT, 130),
        pytest.param("gpu", signal.SIGTERM, 143, marks=pytest.mark.exhaustive),
    ],
)
def test_no_ending_leaves_anything_but_the_trace(
    slslab: Slslab, environment: dict[str, str], tmp_path: Path, architecture: str, number: signal.Signals, code: int
) -> None:
    out = tmp_path / "run"
    command = ("run", architecture, "--workers", "2", "--epochs", "60", "--batches", "1", "--out", str(out), "--json")
    with begun(environment, out, *command) as process:
        sockets = object_store_sockets(process.pid)
        assert sockets
        assert len(remains(process.pid)) >= 4, "two workers, an S3 server, control groups"
        os.kill(process.pid, number)
        stdout, _ = process.communicate(timeout=60)
        assert process.returncode == code
    deadline = time.monotonic() + 20
    while remains(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert remains(process.pid) == []
    assert not [socket for socket in sockets if socket.exists()]
    shown = slslab("show", str(out), "--json")
    document = shown.document
    assert document["status"] == "interrupted"
    assert document["error"]["type"] == ("Killed" if number == signal.SIGKILL else "Interrupted")
    assert max(document["counts"].values()) > 0
    assert (out / "trace.parquet").exists()
    assert not (out / "trace.jsonl").exists()
    if number != signal.SIGKILL:
        assert json.loads(stdout)["run"] == document["run"]
        metered = document["invocations"] + len(document["instances"])
        assert metered == 2, "what was ended is metered and billed"


def test_an_interrupted_table_leaves_no_process_and_no_run_that_had_not_begun(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """In what is measured before the first of its nine runs, SPIRT's at full size."""
    table, out = tmp_path / "table", tmp_path / "table" / "mobilenet-spirt"
    command = ("reproduce", "table2", "--model", "mobilenet", "--dataset", "synthetic", "--out", str(table))
    with begun(environment, out / "alone", *command, until="invoke") as process:
        os.kill(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (130, ""), stderr
    assert "\nInterrupted: 0 of 9 runs exist; the same command makes the others.\n" in stderr
    assert remains(process.pid) == []
    assert list(table.iterdir()) == []


SPIRT = ("spirt", "--batches", "1", "--light-memory", "1024")
ROWS = ("allreduce", "--dataset", "breast-cancer", "--channel")


@pytest.mark.parametrize(
    ("named", "part", "which"),
    [
        ("weed", "object store", SPIRT),
        pytest.param("slslab.tensordb", "tensor databases", SPIRT, marks=pytest.mark.exhaustive),
        ("memcached", "memcached server", (*ROWS, "memcached")),
        pytest.param("redis-server", "redis server", (*ROWS, "redis"), marks=pytest.mark.exhaustive),
        pytest.param("slslab.aws_services", "dynamodb server", (*ROWS, "dynamodb"), marks=pytest.mark.exhaustive),
        pytest.param(
            "slslab_workers.parameter_server",
            "parameter server",
            (*ROWS, "parameter-server"),
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_a_server_that_dies_ends_the_run_at_once(
    slslab: Slslab, environment: dict[str, str], tmp_path: Path, named: str, part: str, which: tuple[str, ...]
) -> None:
    """Nobody waits for those who ask it to give up, and what they had measured is kept."""
    if named in ("memcached", "redis-server") and find_server(named) is None:
        pytest.skip(f"{named} is not installed (apt-get install {named})")
    out = tmp_path / "run"
    command = ("run", *which, "--workers", "2", "--epochs", "60", "--out", str(out), "--json")
    with begun(environment, out, *command, until="compute") as process:
        (server,) = (c for c in psutil.Process(process.pid).children() if any(named in a for a in c.cmdline()[:4]))
        server.kill()
        stdout, stderr = process.communicate(timeout=15)
    assert process.returncode == 1, stderr
    assert "Traceback" not in stderr
    document = json.loads(stdout)
    assert document["error"]["type"] == "StackFailed"
    assert document["error"]["message"] == f"the {part} ended (killed by SIGKILL)"
    assert (out / "logs" / f"{part.replace(' ', '_')}.log").exists()
    assert remains(process.pid) == []
    assert slslab("show", str(out), "--json").document["invocations"] > 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with room for a part of a trace."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root may mount a disk")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_ends_a_run_with_one_sentence_and_its_trace_is_kept(slslab: Slslab, small_disk: Path) -> None:
    out = small_disk / "run"
    ended = slslab("run", "allreduce", *SMALL, "--out", str(out))
    assert (ended.code, ended.out) == (3, "")
    assert "Traceback" not in ended.err
    assert f"Error: {out}/" in ended.err
    assert "cannot be written: No space left on device.\nHint: make room for runs; the trace so far" in ended.err
    refused = slslab("show", str(out))
    assert (refused.code, refused.out) == (3, "")
    assert refused.err.startswith(f"Error: {out}/trace.parquet cannot be written: No space left on device.\n")
    subprocess.run(["mount", "-o", "remount,size=1m", small_disk], check=True)
    document = slslab("show", str(out), "--json").document
    assert (document["status"], document["error"]["type"]) == ("interrupted", "Killed")
    assert document["counts"]["object.put"] > 0
