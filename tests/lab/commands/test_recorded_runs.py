"""What every architecture's run leaves and what commands print about it: documents, counts, bills, phases, logs."""

import csv
import json
import re
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.commands import slslab
from tests.recorded_runs import RecordedRuns

from slslab.run.directory import RunDirectory
from slslab.run.document import check_document
from slslab.run.records import seconds_used
from slslab_lab.runs.planning import architectures
from slslab_workers.architecture import title
from slslab_workers.plan import Plan

# Of two workers on functions, of which each stays for the whole run.
RESIDENT = ("allreduce", "scatterreduce")
INSTANCES = ("gloo", "gpu")
# Their aggregators, job or supervisor count as further workers.
AGGREGATING = ("gradssharding", "kubeml", "mlless")
every_architecture = pytest.mark.parametrize("architecture", architectures())


@every_architecture
def test_document_of_a_finished_run(recorded_runs: RecordedRuns, architecture: str) -> None:
    document = recorded_runs[architecture].document
    assert (document["schema"], document["status"], document["error"]) == (2, "done", None)
    assert (document["architecture"], document["parameters"], document["gradient_bytes"]) == (
        architecture, 61706, 246824,
    )  # fmt: skip
    assert len(document["loss"]) == len(document["accuracy"]) == 2
    if architecture in RESIDENT:
        assert (document["invocations"], document["cold_starts"]) == (2, 2)
    assert 0 < document["peak_memory_mb"] <= document["memory_mb"]
    modelled = document["lambda"]
    assert modelled["status"] == "modelled"
    assert modelled["seconds"] > 0
    assert 0 < modelled["ranges"]["seconds"]["low"] < modelled["seconds"] < modelled["ranges"]["seconds"]["high"]
    assert check_document(document) == document
    directory = RunDirectory(recorded_runs[architecture].path)
    assert {name: digest for name, digest in document["files"].items() if name != "run.json"} == directory.digests()
    directory.verify(document)
    assert {"plan.toml", "trace.parquet", "invocations.jsonl"} <= document["files"].keys()
    # Those that only add up or supervise come last.
    ranks = list(range(len(document["per_worker"])))
    assert [worker["worker"] for worker in modelled["per_worker"]] == ranks
    assert len(ranks) == document["workers"] or (architecture in AGGREGATING and len(ranks) > document["workers"])
    assert document["seconds"]["span"] <= document["seconds"]["measured"]
    assert document["replicas_equal"] is True
    assert document["stack"]["s3"].startswith("slslab S3 ")
    if architecture not in INSTANCES:
        assert "awslambdaric 4.2.2" in document["stack"]["lambda"]


@every_architecture
def test_a_run_is_recorded_once(recorded_runs: RecordedRuns, architecture: str) -> None:
    made = recorded_runs[architecture].path.stat().st_mtime_ns
    assert recorded_runs[architecture].path.stat().st_mtime_ns == made


def test_equal_seeds_give_equal_bits(recorded_runs: RecordedRuns) -> None:
    """Two exchanges of gradients between functions, and the same number of instances."""
    documents = [recorded_runs[name].document for name in (*RESIDENT, "gpu")]
    for figure in ("parameters_sha256", "loss", "accuracy"):
        first, *others = (document[figure] for document in documents)
        assert others == [first] * 2


@every_architecture
def test_counts_and_bytes_of_a_run_are_the_closed_form(recorded_runs: RecordedRuns, architecture: str) -> None:
    document = recorded_runs[architecture].document
    plan = Plan.from_document(document["plan"])
    expected = architectures()[architecture].counts_of(plan, 2, 61_706)
    assert document["counts"] == dict(expected.operations)
    assert document["bytes"] == {"in": expected.bytes_in, "out": expected.bytes_out}
    if architecture in RESIDENT:
        assert document["overheads"]["counts"]["object.list"] > 0
    if architecture in INSTANCES:
        assert document["updates"] == 4


@every_architecture
def test_bill_adds_up(recorded_runs: RecordedRuns, architecture: str) -> None:
    path, document = recorded_runs[architecture]
    for prices in ("aws-us-east-1", "paper-2025"):
        bill = slslab("bill", path, "--prices", prices, "--json").document
        assert sum(Decimal(line["amount"]) for line in bill["lines"]) == Decimal(bill["total"])
        assert sum(Decimal(line["amount"]) for line in bill["host"]["lines"]) == Decimal(bill["host"]["total"])
        for line in (*bill["lines"], *bill["host"]["lines"]):
            assert Decimal(line["quantity"]) * Decimal(line["price"]) == Decimal(line["amount"])
    bill = slslab("bill", path, "--json").document
    assert bill["host"] == document["cost"]
    assert {**document["lambda"]["cost"], **bill} == bill
    assert bill["range"] == document["lambda"]["ranges"]["cost"]
    quantities = {line["item"]: Decimal(line["quantity"]) for line in document["cost"]["lines"]}
    lists = document["overheads"]["counts"].get("object.list", 0)
    assert quantities.get("S3 LIST requests", 0) == lists
    if architecture not in INSTANCES:
        assert Decimal(document["gb_seconds"]) == Decimal(document["cost"]["lines"][0]["quantity"])


@every_architecture
def test_phases_are_the_billed_time(recorded_runs: RecordedRuns, architecture: str) -> None:
    document = recorded_runs[architecture].document
    used = float(sum(map(seconds_used, document["instances"]))) if document["instances"] else document["billed_seconds"]
    # A billed millisecond that has begun is a whole one.
    assert sum(document["phases"].values()) == pytest.approx(used, abs=max(0.01, 0.001 * document["invocations"]))
    for worker in document["per_worker"]:
        assert (worker["phases"]["compute"] > 0) is (worker["worker"] < document["workers"])
        assert worker["phases"]["other"] > -0.01


def test_instances_are_billed_by_the_second(recorded_runs: RecordedRuns) -> None:
    path, document = recorded_runs["gpu"]
    assert (document["device"], document["invocations"], document["gb_seconds"]) == ("cpu", 0, "0")
    launched = document["instances"]
    assert [json.loads(line) for line in (path / "instances.jsonl").read_text().splitlines()] == launched
    assert sorted((one["worker"], one["type"], one["status"]) for one in launched) == [
        (0, "g4dn.xlarge", "success"), (1, "g4dn.xlarge", "success"),
    ]  # fmt: skip
    assert document["billed_seconds"] == 120, "a minute at least for each"
    for worker in document["per_worker"]:
        assert min(worker["phases"][phase] for phase in ("compute", "synchronise", "other")) > 0
    for book, quantity in (("aws-us-east-1", Decimal(120)), ("paper-2025", sum(map(seconds_used, launched)))):
        bill = slslab("bill", path, "--prices", book, "--json").document
        [line] = [line for line in bill["host"]["lines"] if line["item"] == "Host g4dn.xlarge"]
        assert Decimal(line["quantity"]) == quantity
        assert bill["host"]["notes"] == ["ran on the CPU, not on a GPU, though g4dn.xlarge is billed"]
    shown = slslab("show", path, "--full").out
    assert shown.startswith("On AWS (us-east-1, modelled): ")
    assert shown.count("Ran on the CPU, not on a GPU") == 1
    assert "2 (on cpu)" in shown
    assert "REPORT" not in shown
    compared = slslab("compare", recorded_runs["allreduce"].path, path).out
    assert "The GPU baseline ran on the CPU, not on a GPU" in compared


@every_architecture
def test_run_directory_is_complete(recorded_runs: RecordedRuns, architecture: str) -> None:
    path, document = recorded_runs[architecture]
    assert {file.name for file in path.iterdir()} == {
        "plan.toml", "trace.parquet", "invocations.jsonl", "run.json", "logs",
        "report.html", *(("instances.jsonl",) if architecture in INSTANCES else ()),
    }  # fmt: skip
    assert document["report"] == {"file": "report.html", "error": None}
    assert tomllib.loads((path / "plan.toml").read_text()) == document["plan"]
    reports = [json.loads(line)["report"] for line in (path / "invocations.jsonl").read_text().splitlines()]
    logs = "".join(log.read_text() for log in (path / "logs").iterdir())
    assert len(reports) == document["invocations"]
    assert all(report in logs for report in reports)
    if reports:
        printed = slslab("logs", path).out
        assert all(f"  {report.splitlines()[0]}" in printed for report in reports)


@every_architecture
def test_a_run_is_shown(recorded_runs: RecordedRuns, architecture: str) -> None:
    document = recorded_runs[architecture].document
    assert slslab("show", document["run"], "--json", variables=recorded_runs.variables).document == document
    answer = slslab("show", document["run"], variables=recorded_runs.variables).out
    assert len(answer.splitlines()) <= 25
    assert f"More: slslab show {document['run']} --full" in answer
    shown = slslab("show", document["run"], "--full", variables=recorded_runs.variables).out
    assert shown.startswith(f"On AWS{'' if architecture in INSTANCES else ' Lambda'} (us-east-1, modelled): ")
    for heading in ("Phases", "Messages and bytes", "Loss and accuracy", "Bill", "host delay"):
        assert heading in shown


def test_runs_are_listed_and_compared(recorded_runs: RecordedRuns, tmp_path: Path) -> None:
    documents: dict[str, dict[str, Any]] = {name: recorded_runs[name].document for name in architectures()}
    listed = slslab("runs", "--json", variables=recorded_runs.variables).document["runs"]
    assert {document["run"] for document in documents.values()} <= {document["run"] for document in listed}
    ids = [document["run"] for document in documents.values()]
    compared = slslab("compare", *ids, variables=recorded_runs.variables).out
    slslab("compare", *ids, "--plot", tmp_path / "compared.svg", variables=recorded_runs.variables)
    assert "Cost and time on AWS" in (tmp_path / "compared.svg").read_text()
    # A busy host makes more runs look alike, so the sentence has more names, and more lines.
    assert re.match(r"Fastest on AWS: .+\. Cheapest: .+\. Most accurate: ", " ".join(compared.split()))
    assert "with 80 % ranges for known errors" in compared
    assert all(f"\n  {title(name)} " in compared for name in documents)


@every_architecture
def test_other_commands_read_a_run(recorded_runs: RecordedRuns, architecture: str, tmp_path: Path) -> None:
    path, document = recorded_runs[architecture]
    checked = slslab("check", path)
    assert (checked.code, checked.out.startswith("Holds: ")) == (0, True)
    assert slslab("export", path, "--to", "csv", "--out", tmp_path / "tables").code == 0
    with (tmp_path / "tables" / "epochs.csv").open(newline="") as file:
        losses = [float(row["loss"]) for row in csv.DictReader(file)]
    assert losses == document["loss"]
    measured, replayed = slslab("replay", path, "--json").document["rows"]
    assert measured["seconds"]["basis"] == "measured"
    assert replayed["seconds"]["value"] == pytest.approx(document["lambda"]["seconds"])
    path_document = slslab("ask", "path", path, "--json").document
    assert path_document["seconds"]["value"] == pytest.approx(document["lambda"]["seconds"])
    assert slslab("report", path, "--out", tmp_path / "page.html").code == 0
    assert document["run"] in (tmp_path / "page.html").read_text()
