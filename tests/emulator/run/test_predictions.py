"""Parts of documents about Lambda: sums, their ranges, and the sentences that say what they rest on."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from tests.lab.replay.recordings import TRACES
from tests.metered import ANCHORED, PROFILE, SAME, START_NS, record

from slslab.errors import RequestError
from slslab.predict.invocation import Predictor, Request, make_predictor
from slslab.predict.processor import UNANCHORED, Processor
from slslab.predict.profiles.profile import Figure, with_speed
from slslab.report.cards import functions_card
from slslab.report.page import Cell
from slslab.report.sessions import session_document
from slslab.report.summaries import cost_text, headline, predicted_notes
from slslab.run.directory import RunDirectory
from slslab.run.events import own_event
from slslab.run.predictions import Predicted, bill_of, predict, requests_of
from slslab.run.service import Service, open_run
from slslab.run.table import tabulate
from slslab_lab.runs.on_lambda import bill_of as bill_of_run

ABOUT: dict[str, Any] = {
    "started_at": "2026-11-28T10:00:00.000+00:00",
    "cores": 2,
    "cpu_share_enforced": True,
    "stack": {},
    "environment": "process",
    "confinement": "cgroup",
}


def metered(*arguments: Any, **changed: Any) -> dict[str, Any]:
    """A record with what bills and tables read, too."""
    more = {"version": "$LATEST", "environment": "f-0001", "status": "success", "template": ""}
    return {**more, **record(*arguments, **changed)}


def service(*records: dict[str, Any], **about: Any) -> Service:
    """A service that has ended after a second, with these records and no requests."""
    return Service(about={**ABOUT, **about}, status="done", seconds=1.0, events=[], invocations=records)


def predicted(*records: dict[str, Any], processor: Processor = ANCHORED, kind: str | None = None) -> Predicted:
    return predict(records, {}, make_predictor(processor, kind, True))


def test_the_range_of_a_sum_is_the_sum_of_the_ends() -> None:
    one, other = metered(100, 100), metered(300, 400)
    figures = [predicted(*records).figures(bill_of()) for records in ([one], [other], [one, other])]
    for end in ("value", "low", "high"):
        first, second, both = (each["billed_seconds"][end] for each in figures)
        assert both == pytest.approx(first + second)
    first, second, both = (float(each["cost"]["total"]) for each in figures)
    assert both == pytest.approx(first + second)
    assert figures[2]["cost"]["range"]["low"] < both < figures[2]["cost"]["range"]["high"]
    assert figures[2]["duration_ms"]["value"] == (200 + 700) / 2
    assert figures[2]["parts"] == {"init": 0, "cpu": 0.8, "requests": 0, "waits": 0.1}


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (predicted(metered(1, 1), processor=UNANCHORED), "run: slslab calibrate --processor"),
        (predicted(metered(1, 1)), "--kind (in a test, kind=) dense, streaming or interpreter."),
        (predicted(metered(10, 5010)), "5.00 s of waits for anything but S3"),
        (predicted(metered(1, 1, error_type="Sandbox.Timedout")), "1 invocation timed out here."),
        (predicted(metered(1, 1, template="torch")), "Environments were forked from a template"),
        (predict([metered(1, 1)], {}, Predictor(SAME, PROFILE, enforced=False)), "doesn't enforce CPU shares"),
    ],
)
def test_a_reader_learns_what_the_figures_rest_on(found: Predicted, sentence: str) -> None:
    assert any(sentence in note for note in found.document(bill_of())["notes"])


def test_nothing_is_said_that_does_not_matter() -> None:
    known = replace(ANCHORED, missing="")
    assert predicted(metered(10, 10), processor=known, kind="dense").document(bill_of())["notes"] == []
    speed = Figure(value=0.5, status="measured", source="REPORT lines")
    by_lines = predict([metered(10, 10)], {}, Predictor(UNANCHORED, with_speed(PROFILE, speed)))
    assert by_lines.document(bill_of())["notes"] == []


def test_requests_of_functions_are_read_from_the_trace() -> None:
    event = {**own_event("object.get", 5, "", resource="", function="stack"), "end_ns": 9, "requests": 1}
    others = [{"function": ""}, {"invocation": "of a worker's tracer"}, {"op": "state.Task"}]
    events = [{**event, "bytes": 7}, *({**event, **other} for other in others)]
    assert requests_of(events) == {"stack": [Request("object.get", 5, 9, 7)]}


def test_a_service_shows_both_hosts() -> None:
    document = service(metered(50, 100), processor=ANCHORED.to_dict()).summary()
    assert document["predicted"]["processor"] == {"name": "host", "form": "whole", "anchors": {"hash": 2025}}
    (function,) = document["functions"]
    assert function["predicted"]["duration_ms"]["value"] == 150
    sentence = headline(document)
    assert sentence.startswith("On AWS Lambda (us-east-1, modelled): 0.1")
    assert sentence.endswith("This host: 0.100 s, $0.00000308.")
    assert predicted_notes(document)[0].startswith("80 % ranges allow for errors in Lambda's processors")
    card = functions_card(document)
    assert card is not None
    (row,), (total,) = card.tables[0].rows, card.tables[0].totals
    assert (row[0], total[0], row[2:5]) == (function["function"], "all", total[2:5])
    assert row[-2] == Cell("60 MB", "3 % of it")
    assert row[-1] == cost_text(function["predicted"])


def test_a_function_has_a_row_for_each_memory_size_with_its_requests_to_s3() -> None:
    """Of two invocations, 2 s apart, the second puts three objects."""
    second = metered(50, 100, memory_mb=3008, start_ns=START_NS + 2 * 10**9, end_ns=START_NS + 21 * 10**8)
    put = own_event("object.put", START_NS + 2 * 10**9 + 1, "", resource="", function="f")
    puts = [{**put, "end_ns": put["start_ns"] + 10**6, "bytes": 5, "requests": 1, "overhead": False}] * 3
    events = tabulate([{"record": "header", "run": "up", "clock": ""}, *puts])
    document = service(metered(50, 100), second).replace(events=events).summary()
    small, large = document["functions"]
    assert [row["memory_mb"] for row in document["functions"]] == [1769, 3008]
    assert [row["invocations"] for row in document["functions"]] == [1, 1]
    assert {line["item"] for line in small["predicted"]["cost"]["lines"]} == {
        "Lambda duration, x86_64",
        "Lambda requests",
    }
    (line,) = (line for line in large["predicted"]["cost"]["lines"] if line["item"] == "S3 PUT requests")
    assert (line["quantity"], line["amount"]) == ("3", "0.000015")
    assert Decimal(large["cost"]) > Decimal("0.000015") > Decimal(small["cost"])
    assert predict([second], requests_of(puts), make_predictor(UNANCHORED, None, True)).costs()["cost"] == large["cost"]


def test_a_poll_costs_the_invocation_before_it_and_handlers_their_own_requests_to_queues() -> None:
    first, second = metered(50, 100), metered(50, 100, start_ns=START_NS + 2 * 10**9, end_ns=START_NS + 21 * 10**8)
    moments = [-(10**9), 10**6, 10**9, 3 * 10**9]
    polls = [Request("sqs.poll", START_NS + moment, START_NS + moment + 10**6, 0) for moment in moments]
    sent = Request("sqs.request", START_NS + 2 * 10**9 + 1, START_NS + 2 * 10**9 + 2, 65_537)
    found = predict([second, first], {"f": [*polls, sent], "idle": polls}, make_predictor(SAME, None, True))
    assert found.requests == [[sent, polls[3]], polls[1:3]]
    assert found.predictions == predict([second, first], {}, make_predictor(SAME, None, True)).predictions
    bills = [one.bill()(one.records) for one in found.by(["second", "first"]).values()]
    quantities = [{line["item"]: line["quantity"] for line in bill["lines"]} for bill in bills]
    assert [one.get("SQS requests") for one in quantities] == ["2", None]
    assert [one["SQS requests of event sources"] for one in quantities] == ["1", "2"]


def test_a_service_without_invocations_has_nothing_to_predict() -> None:
    document = service().summary()
    assert headline(document) == ""
    assert predicted_notes(document) == []
    assert document["predicted"]["cost"]["total"] == document["cost"]["total"] == "0"


def test_a_session_has_both_for_each_test_and_function() -> None:
    invoked = [("one", metered(100, 100)), ("two", metered(100, 100, memory_mb=3538))]
    document = session_document(invoked, make_predictor(SAME, "dense", True), {})
    assert [row["test"] for row in document["tests"]] == ["one", "two"]
    assert [row["memory_mb"] for row in document["functions"]] == [1769, 3538]
    for rows in (document["tests"], document["functions"]):
        assert [row["cost"] for row in rows] == [row["predicted"]["cost"]["total"] for row in rows]
    card = functions_card(document)
    assert card is not None
    assert (card.tables[0].columns[-1], card.tables[0].totals) == ("Lambda: cost", ())
    assert document["answer"].startswith("2 tests invoked 1 function 2 times. On Lambda: ")
    assert session_document([], make_predictor(SAME, None, True), {})["answer"] == "No test invoked a function."


def test_the_operations_of_a_run_have_kinds_of_their_own() -> None:
    for read in (
        lambda: open_run(RunDirectory(TRACES / "spirt"), "dense"),
        lambda: bill_of_run(str(TRACES / "spirt"), "aws-us-east-1", "dense"),
    ):
        with pytest.raises(RequestError, match="its operations have kinds of their own") as refused:
            read()
        assert "--kind" in refused.value.hint
