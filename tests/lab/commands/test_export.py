"""`slslab export`: what is written is read back with the formats' own readers.

The runs are recordings of tests/lab/replay: ScatterReduce with 2 functions, 6 epochs of 5 minibatches, and the
same on 2 instances.
"""

import csv
import json
import shutil
import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests import commands
from tests.emulator.run.test_log import event
from tests.lab.replay.recordings import TRACES

from slslab import installation
from slslab.installation import install_command
from slslab.run.directory import RunDirectory
from slslab.run.log import LOG, TraceWriter
from slslab_lab.pages.exports.tables import TABLES

FUNCTIONS, INSTANCES = "20261121-204918-scatterreduce-lenet-7998", "20261121-205208-gpu-lenet-7520"
DOCUMENTS = {name: json.loads((TRACES / name / "run.json").read_text()) for name in ("scatterreduce", "gpu")}
REPORT = json.loads((TRACES / "scatterreduce" / "invocations.jsonl").read_text().splitlines()[0])["report"]
LOSS, ACCURACY = DOCUMENTS["scatterreduce"]["loss"], DOCUMENTS["scatterreduce"]["accuracy"]


Export = Callable[..., commands.Done]


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Export:
    """`slslab export` in an empty directory with two runs in `runs`; no socket connects."""
    for name in ("scatterreduce", "gpu"):
        shutil.copytree(TRACES / name, tmp_path / "runs" / name)
    monkeypatch.setenv("SLSLAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    connect = socket.socket.connect

    def refuse(here: socket.socket, address: Any) -> None:
        # The object store that tests share asks its server from time to time, from a thread of its own.
        if threading.current_thread().name != "object-store-reclaim":
            raise AssertionError("an export connects to nothing")
        connect(here, address)

    monkeypatch.setattr(socket.socket, "connect", refuse)

    return partial(commands.slslab, "export")


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_all_tables_of_all_runs(export: Export) -> None:
    document = export(FUNCTIONS, INSTANCES, FUNCTIONS, "--to", "csv", "--out", "tables", "--json").document
    assert (document["to"], document["runs"]) == ("csv", [FUNCTIONS, INSTANCES])
    tables = {one["table"]: read_csv(Path(one["path"])) for one in document["written"]}
    assert {one["table"]: one["rows"] for one in document["written"]} == {n: len(t) for n, t in tables.items()}
    assert [row["run"] for row in tables["runs"]] == [FUNCTIONS, INSTANCES]
    epochs = [row for row in tables["epochs"] if row["run"] == FUNCTIONS]
    assert [float(row["loss"]) for row in epochs] == LOSS
    assert [float(row["accuracy"]) for row in epochs] == ACCURACY
    # Five minibatches per epoch; the instances' file is their own.
    ends = [float(row["end_s"]) for row in epochs]
    assert ends == sorted(ends)
    report = dict(part.split(": ") for part in REPORT.split("\t")[1:] if ": " in part)
    first = tables["invocations"][0]
    assert f"{float(first['duration_ms']):.2f} ms" == report["Duration"]
    assert f"{first['billed_ms']} ms" == report["Billed Duration"]
    assert f"{first['max_memory_mb']} MB" == report["Max Memory Used"]
    assert f"{float(first['init_ms']):.2f} ms" == report["Init Duration"]
    assert {row["worker"] for row in tables["invocations"]} == {"0", "1"}
    assert [row["type"] for row in tables["instances"]] == ["g4dn.xlarge"] * 2
    for name, run in (("scatterreduce", FUNCTIONS), ("gpu", INSTANCES)):
        told = DOCUMENTS[name]
        cost = [row for row in tables["cost"] if row["run"] == run]
        assert [row["amount_exact"] for row in cost] == [line["amount"] for line in told["cost"]["lines"]]
        assert sum(float(row["amount"]) for row in cost) == pytest.approx(float(told["cost"]["total"]))
    caused = next(row for row in tables["events"] if " " in row["causes"])
    assert all(int(cause) < int(caused["event"]) for cause in caused["causes"].split())
    assert tables.pop("bill") == [], "they are not modelled"
    assert {name: list(rows[0]) for name, rows in tables.items()} == {name: TABLES[name].names for name in tables}


def test_the_bill_is_lambdas_and_the_cost_this_hosts(export: Export, tmp_path: Path) -> None:
    shutil.copytree(TRACES / "mobilenet-idle", tmp_path / "runs" / "modelled")
    told = RunDirectory(tmp_path / "runs" / "modelled").document()
    assert told is not None
    written = export("runs/modelled", "--to", "csv", "--out", "tables", "--json").document["written"]
    tables = {one["table"]: read_csv(Path(one["path"])) for one in written}
    for name, cost in (("bill", told["lambda"]["cost"]), ("cost", told["cost"])):
        assert [row["amount_exact"] for row in tables[name]] == [line["amount"] for line in cost["lines"]]
        assert sum(float(row["amount"]) for row in tables[name]) == pytest.approx(float(cost["total"]))
        assert float(tables["runs"][0][name]) == float(cost["total"])
    assert tables["bill"] != tables["cost"]
    assert float(tables["runs"][0]["modelled_s"]) == told["lambda"]["seconds"]
    assert tables["runs"][0]["modelled_low_s"] == tables["runs"][0]["bill_high"] == "", "it has no range"
    assert list(tables["bill"][0]) == TABLES["bill"].names


def test_parquet_keeps_types_and_the_trace(export: Export) -> None:
    written = export(FUNCTIONS, "--to", "parquet", "--json").document["written"]
    assert {Path(one["path"]).parent for one in written} == {Path("exports/parquet")}
    tables = {one["table"]: pq.ParquetFile(one["path"]).read() for one in written}
    trace = pq.ParquetFile(TRACES / "scatterreduce" / "trace.parquet").read()
    assert tables["events"].equals(trace)
    assert all(table.schema.equals(TABLES[name]) for name, table in tables.items())
    assert tables["invocations"]["cold_start"].to_pylist() == [True, True]
    assert tables["runs"]["cost"].to_pylist() == [float(DOCUMENTS["scatterreduce"]["cost"]["total"])]


def test_files_are_replaced_and_other_makers_files_are_not(export: Export, tmp_path: Path) -> None:
    assert export(FUNCTIONS, INSTANCES, "--to", "csv", "--out", "tables").code == 0
    assert export(FUNCTIONS, "--to", "csv", "--out", "tables").code == 0
    assert len(read_csv(tmp_path / "tables" / "runs.csv")) == 1
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "events.csv").write_text("mine")
    refused = export(FUNCTIONS, "--to", "csv", "--out", "mine")
    assert (refused.code, refused.err.count("\n")) == (2, 2)
    assert "mine contains a events.csv, but not all tables of an export" in refused.err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["events.csv"]
    assert (tmp_path / "mine" / "events.csv").read_text() == "mine"


def test_a_killed_run_is_exported_as_far_as_it_came(export: Export, tmp_path: Path) -> None:
    killed = tmp_path / "runs" / "killed"
    killed.mkdir()
    text = (TRACES / "scatterreduce" / "plan.toml").read_text()
    (killed / "plan.toml").write_text(text.replace(FUNCTIONS, "killed"))
    with TraceWriter(killed / LOG, "killed") as writer:
        writer.write(event("compute", 1_000, 3_000, epoch=0, step=0, worker=0))
    assert export("killed", "--to", "csv", "--out", "tables").code == 0
    assert [row["op"] for row in read_csv(tmp_path / "tables" / "events.csv")] == ["compute"]
    assert read_csv(tmp_path / "tables" / "epochs.csv") == []
    assert read_csv(tmp_path / "tables" / "runs.csv")[0]["status"] == "interrupted"
    assert export("killed", "--to", "mlflow", "--out", "store").code == 0

    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=(tmp_path / "store").as_uri())
    found = client.get_experiment_by_name("slslab")
    assert found is not None
    assert [run.info.status for run in client.search_runs([found.experiment_id])] == ["KILLED"]


def test_mlflow_has_each_run_once(export: Export, tmp_path: Path) -> None:
    (tmp_path / "runs" / "scatterreduce" / "report.html").write_text("<!doctype html>")
    first = export(FUNCTIONS, "--to", "mlflow", "--out", "store", "--experiment", "digits", "--json").document
    assert [one["state"] for one in first["written"]] == ["written"]
    again = export(
        FUNCTIONS, INSTANCES, "--to", "mlflow", "--out", "store", "--experiment", "digits", "--json"
    ).document
    assert [one["state"] for one in again["written"]] == ["was there", "written"]

    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=(tmp_path / "store").as_uri())
    experiment = client.get_experiment_by_name("digits")
    assert experiment is not None
    found = {run.data.tags["slslab.run"]: run for run in client.search_runs([experiment.experiment_id])}
    assert sorted(found) == [FUNCTIONS, INSTANCES]
    run = found[FUNCTIONS]
    id_ = run.info.run_id
    assert (id_, run.info.status) == (first["written"][0]["mlflow_run"], "FINISHED")
    history = client.get_metric_history(id_, "loss")
    assert [(one.step, one.value) for one in history] == list(enumerate(LOSS, 1))
    assert [one.value for one in client.get_metric_history(id_, "accuracy")] == ACCURACY
    # Within the run: from the launch of its first environment to its last event.
    assert all(run.info.start_time <= one.timestamp <= run.info.end_time for one in history)
    assert run.data.metrics["cost_usd"] == pytest.approx(float(DOCUMENTS["scatterreduce"]["cost"]["total"]))
    assert run.data.metrics["peak_memory_mb"] == DOCUMENTS["scatterreduce"]["peak_memory_mb"]
    assert (run.data.params["workers"], run.data.params["batch_size"]) == ("2", "64")
    assert run.data.tags["version.torch"] == DOCUMENTS["scatterreduce"]["torch"]
    assert {one.path for one in client.list_artifacts(id_)} == {"run.json", "plan.toml", "report.html"}
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "store"}


def test_mlflow_replaces_what_an_export_did_not_end(export: Export, tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    assert export(INSTANCES, "--to", "mlflow", "--out", "store").code == 0
    client = MlflowClient(tracking_uri=(tmp_path / "store").as_uri())
    found = client.get_experiment_by_name("slslab")
    assert found is not None
    experiment = found.experiment_id
    torn = client.create_run(experiment, tags={"slslab.run": FUNCTIONS}).info.run_id
    (written,) = export(FUNCTIONS, "--to", "mlflow", "--out", "store", "--json").document["written"]
    assert written["state"] == "written"
    kept = [run.info.run_id for run in client.search_runs([experiment], f"tags.`slslab.run` = '{FUNCTIONS}'")]
    assert kept == [written["mlflow_run"]]
    assert torn not in kept


def test_tensorboard_shows_each_run_once(export: Export, tmp_path: Path) -> None:
    for state in ("written", "replaced"):
        document = export(FUNCTIONS, "--to", "tensorboard", "--out", "boards", "--json").document
        assert [one["state"] for one in document["written"]] == [state]

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "boards" / FUNCTIONS))
    events.Reload()
    assert [(one.step, one.value) for one in events.Scalars("loss")] == [
        (step, pytest.approx(loss)) for step, loss in enumerate(LOSS, 1)
    ]
    walls = [one.wall_time for one in events.Scalars("accuracy")]
    assert len(walls) == 6
    assert walls == sorted(walls)
    (peak,) = events.Scalars("run/peak_memory_mb")
    assert peak.value == DOCUMENTS["scatterreduce"]["peak_memory_mb"]
    plan = events.Tensors("plan/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "| batch_size | 64 |" in plan
    assert [path.name for path in (tmp_path / "boards").iterdir()] == [FUNCTIONS]
    (tmp_path / "boards" / FUNCTIONS / "notes.txt").write_text("mine")
    assert "something other than event files" in export(FUNCTIONS, "--to", "tensorboard", "--out", "boards").err
    assert (tmp_path / "boards" / FUNCTIONS / "notes.txt").read_text() == "mine"


def test_without_an_extra_one_sentence_and_the_command(export: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "find_spec", lambda _name: None)
    for kind, package in (("mlflow", "mlflow"), ("tensorboard", "tensorboard")):
        refused = export(FUNCTIONS, "--to", kind)
        assert refused.code == 3
        said = f"Error: The package {package} is not installed.\nHint: {install_command(kind)}\n"
        assert refused.err == said


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--to", "csv", "--tracking-uri", "file:///nowhere"), 2, "need --to mlflow"),
        (("--to", "tensorboard", "--experiment", "x"), 2, "need --to mlflow"),
        (("--to", "mlflow", "--out", "a", "--tracking-uri", "file:///nowhere"), 2, "two places"),
        (("--to", "mlflow", "--tracking-uri", "nothing://at.all"), 3, "MLflow cannot write to nothing://at.all"),
        (("--to", "xml",), 2, "'xml' is not one of"),
        (("--to", "csv", "--out", "runs/scatterreduce/run.json/x"), 2, "cannot be made"),
        (("nowhere", "--to", "csv"), 2, "There is no run 'nowhere'"),
    ],
)  # fmt: skip
def test_refusals(export: Export, arguments: tuple[str, ...], code: int, says: str) -> None:
    refused = export(FUNCTIONS, *arguments)
    assert refused.code == code
    assert says in refused.err
    assert "Traceback" not in refused.err


def test_an_id_is_no_path(export: Export, tmp_path: Path) -> None:
    path = tmp_path / "runs" / "gpu" / "run.json"
    path.write_text(json.dumps(DOCUMENTS["gpu"] | {"run": "../../elsewhere"}))
    refused = export("runs/gpu", "--to", "tensorboard")
    assert refused.code == 2
    assert "can't be used as a file name, as a run's id must" in refused.err


def test_two_runs_of_one_id_are_told_apart(export: Export, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "runs" / "gpu", tmp_path / "copy")
    assert f"Two of these runs have the id {INSTANCES}." in export(INSTANCES, "copy", "--to", "csv").err
