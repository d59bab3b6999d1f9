"""Table 2 made of committed recordings of all five architectures (LeNet), next to a made-up paper."""

import io
import json
import math
from collections.abc import Mapping
from functools import cache
from statistics import median
from typing import Any, cast

import pytest
from rich.console import Console
from tests.lab.replay.recordings import TRACES
from tests.lab.studies.papers import PUBLISHED, paper
from tests.lab.studies.setups import Watching, setup

from slslab.report.formats import percent
from slslab.report.terminal import render
from slslab_lab.pages.reproduction import reproduction
from slslab_lab.replay.measured import Measured, read_measured
from slslab_lab.replay.programs.recorded import make_program
from slslab_lab.studies.experiments import Experiment
from slslab_lab.studies.saving import FIELDS, cells
from slslab_lab.studies.study import Setup
from slslab_lab.studies.table2 import build

NAMES = ("spirt", "scatterreduce", "allreduce", "mlless", "gpu")


@cache
def document(*released: str) -> dict[str, Any]:
    """All canonical, and these as released, too."""
    done = {Experiment(name, "lenet", released=False): read_measured(TRACES / name) for name in NAMES}
    for name in released:
        done[Experiment(name, "lenet", released=True)] = read_measured(TRACES / f"{name}-as-released")
    given = beside("replayed")
    found = build(given, [done])
    assert cast(Watching, given.watcher).reported[-1][1:] == (len(done), len(done))
    return found


def beside(fidelity: str) -> Setup:
    """The paper that was made up for these recordings."""
    return setup("table2", {"paper": paper()}, fidelity=fidelity)


def rows() -> Mapping[str, Any]:
    return {row["name"]: row for row in document()["rows"] if row["variant"] == "canonical"}


def bills() -> list[Any]:
    return [one for one in document()["bills"] if one["variant"] == "canonical"]


def test_document_is_json() -> None:
    assert json.loads(json.dumps(document())) == document()


def test_one_speed_makes_the_median_row_right() -> None:
    """Of four rows of functions two are modelled longer than published and two shorter."""
    ratios = [
        rows()[name]["cells"]["function_seconds"]["modelled"]["value"] / float(published)
        for name, published in PUBLISHED.items()
    ]
    assert median(map(math.log, ratios)) == pytest.approx(0, abs=1e-2)
    assert document()["calibration"]["cpu_speed"] > 0


@pytest.mark.parametrize("name", PUBLISHED)
def test_costs_are_the_papers_arithmetic(name: str) -> None:
    found = rows()[name]["cells"]
    seconds = found["function_seconds"]["modelled"]["value"]
    assert found["epoch_seconds"]["modelled"]["value"] == pytest.approx(24 * seconds)
    assert found["function_cost"]["modelled"]["value"] == pytest.approx(0.64 * seconds)
    assert found["worker_cost"]["modelled"]["value"] == pytest.approx(24 * 0.64 * seconds)
    assert found["total_cost"]["modelled"]["value"] == pytest.approx(48 * 0.64 * seconds)


def test_instances_cost_their_seconds() -> None:
    found = rows()["gpu"]["cells"]
    seconds = found["epoch_seconds"]["modelled"]["value"]
    assert found["total_cost"]["modelled"]["value"] == pytest.approx(2 * seconds)
    assert found["memory_mb"]["measured"] is None
    assert found["function_cost"]["modelled"] is None


def test_difference_and_verdict() -> None:
    for row in document()["rows"]:
        for cell in row["cells"].values():
            ours = cell["modelled"] or cell["measured"]
            if ours is None or cell["published"] is None:
                assert cell["verdict"] == ""
                continue
            difference = ours["value"] / float(cell["published"]) - 1
            assert cell["difference"] == pytest.approx(difference)
            assert cell["verdict"] == ("agrees" if abs(difference) <= cell["tolerance"] else "differs")
            assert bool(cell["reason"]) == (cell["verdict"] == "differs")


def test_parts_add_up_to_the_minibatch() -> None:
    """Parts of a minibatch's time; little is left between its events and outside them (a function's own start)."""
    for name in PUBLISHED:
        row = rows()[name]
        seconds = row["cells"]["function_seconds"]["modelled"]["value"]
        assert 0.5 * seconds <= sum(row["parts"].values()) <= 1.001 * seconds


def test_peak_memory_is_that_of_functions_with_minibatches() -> None:
    for name in PUBLISHED:
        records = [json.loads(line) for line in (TRACES / name / "invocations.jsonl").read_text().splitlines()]
        found = rows()[name]["cells"]["memory_mb"]["measured"]["value"]
        assert found in {record["max_memory_mb"] for record in records}


def test_whole_bill_has_what_the_paper_counts_and_more() -> None:
    for one in bills():
        assert one["reason"] == ""
        counted = [line for line in one["lines"] if line["in_paper"]]
        assert [line["item"] for line in counted] == ["Minibatches"]
        assert len(one["lines"]) > 3
        assert all(float(line["amount"]) >= 0 for line in one["lines"])


def test_spirts_bill_has_what_others_do_not() -> None:
    lines = {one["name"]: {line["item"] for line in one["lines"]} for one in bills()}
    assert {"Step Functions state transitions", "Other functions", "Host m5.large"} <= lines["spirt"]
    assert not {"Step Functions state transitions", "Host m5.large"} & lines["allreduce"]
    assert "Host mq.t3.micro" in lines["mlless"]


def test_rankings() -> None:
    (ranking,) = document()["rankings"]
    assert [name for name, _ in ranking["published"]] == ["gpu", "allreduce", "scatterreduce", "spirt", "mlless"]
    assert [name for name, _ in ranking["recomputed"]] == [name for name, _ in ranking["published"]]
    modelled = [value for _, value in ranking["modelled, canonical"]]
    assert modelled == sorted(modelled)
    whole = dict(ranking["whole bill, canonical"])
    assert whole.keys() == set(NAMES)
    assert (ranking["verdict"] == "as published") == (not ranking["reason"])


def test_spirt_as_released_has_a_whole_bill_and_a_place() -> None:
    """What texts cost is in lines of their own: databases and light functions run longer."""
    found = document("spirt")
    bills = {one["variant"]: one for one in found["bills"] if one["name"] == "spirt"}
    assert bills["as released"]["reason"] == ""
    canonical, released = (
        {line["item"]: float(line["amount"]) for line in bills[variant]["lines"]}
        for variant in ("canonical", "as released")
    )
    assert released.keys() == canonical.keys()
    assert all(released[item] > canonical[item] for item in ("Minibatches", "Host m5.large"))
    (ranking,) = found["rankings"]
    whole = dict(ranking["whole bill, as released"])
    assert whole.keys() == set(NAMES)
    assert whole["spirt"] == pytest.approx(sum(released.values()))


def test_peers_that_were_declared_failed_are_named() -> None:
    recorded = read_measured(TRACES / "spirt")
    details = {"deaths": [{"worker": 1, "epoch": 0, "time": 0.0, "found_by": 0}]}
    run = recorded.replace(document={**recorded.document, "details": details})
    found = build(beside("replayed"), [{Experiment("spirt", "lenet", released=False): run}])
    assert any("spirt, LeNet, canonical: 1 of 2 peers were declared failed" in note for note in found["notes"])
    assert not any("declared failed" in note for note in document()["notes"])


def test_rows_of_several_hosts_are_named() -> None:
    done = {}
    for name, node in (("allreduce", "a"), ("scatterreduce", "b")):
        recorded = read_measured(TRACES / name)
        host = {**recorded.document["host"], "name": node, "processors": "2 × Fast"}
        done[Experiment(name, "lenet", released=False)] = recorded.replace(document={**recorded.document, "host": host})
    found = build(beside("sampled"), [done])
    mixed, fitted = found["notes"][-2:]
    assert mixed.startswith("The `measured` column mixes 2 hosts, so its seconds aren't comparable: 1 run on a, ")
    assert fitted.startswith("One speed of processors is fitted to a set even so")
    assert not any("mixes" in note for note in document()["notes"])


def test_printed_and_saved() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render(reproduction(document())))
    text = console.export_text()
    assert "Counted by the paper, and left out" in text
    assert "oversubscribed" in text
    records = list(cells(document()))
    assert all(set(record) <= set(FIELDS) for record in records)
    assert {record["column"] for record in records} == {column["name"] for column in document()["columns"]}


def slower(run: Measured, factor: float) -> Measured:
    """The run as if all its work had taken `factor` times the CPU time."""
    found = run.replace(events=[{**event, "cpu_ns": round(event["cpu_ns"] * factor)} for event in run.events])
    return found.replace(program=make_program(found))


@cache
def recorded_again() -> dict[str, Any]:
    """Two recordings of AllReduce and of ScatterReduce."""
    done = {Experiment(name, "lenet", released=False): read_measured(TRACES / name) for name in NAMES}
    again = {
        experiment: slower(run, 1.1 if experiment.architecture == "allreduce" else 1.3)
        for experiment, run in done.items()
        if experiment.architecture in ("allreduce", "scatterreduce")
    }
    return build(beside("replayed"), [done, again])


def test_several_recordings_of_a_row_are_its_mean_and_widen_its_interval() -> None:
    found = {row["name"]: row for row in recorded_again()["rows"]}
    row = found["allreduce"]
    first, second = row["modelled_recordings"]
    cell = row["cells"]["function_seconds"]["modelled"]
    assert first != second
    assert cell["value"] == pytest.approx((first + second) / 2)
    # Student's t of one degree of freedom at 90 %, and a deviation of half the distance × √2.
    half = 3.0777 * abs(first - second) / math.sqrt(2) * math.sqrt(1.5)
    assert cell["high"] >= cell["value"] + half * 0.999
    assert cell["low"] <= cell["value"] - half * 0.999
    assert row["cells"]["epoch_seconds"]["modelled"]["value"] == pytest.approx(24 * cell["value"])
    assert len(found["spirt"]["modelled_recordings"]) == 1
    assert any(note.startswith("2 of 5 rows have 2 recordings") for note in recorded_again()["notes"])


def test_a_ranking_says_how_probable_it_is() -> None:
    (ranking,) = recorded_again()["rankings"]
    ((first, second, probability),) = ranking["holds"]["modelled, canonical"]
    assert {first, second} == {"allreduce", "scatterreduce"}
    assert 0.5 <= probability < 1
    # Nothing is said of rows with one recording.
    assert document()["rankings"][0]["holds"] == {}
    text = io.StringIO()
    Console(file=text, width=200).print(render(reproduction(recorded_again())))
    assert f"{first} before {second} {percent(probability)}" in text.getvalue()
