"""Tables as a terminal shows them, made from documents of made-up runs."""

import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from slslab.aws.limits import bases, lambda_limits
from slslab.cli.doctor import limits_tables
from slslab.cli.up import service_tables
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.uncertainty import read_uncertainty
from slslab.report import bill_tables, cards, run
from slslab.report.formats import significant
from slslab.report.page import Parts, Table
from slslab.report.summaries import region, replayed
from slslab.report.terminal import render
from slslab.run.bill import Usage, compute_bill, load_book
from slslab.run.directory import RunDirectory, list_runs
from slslab.run.service import open_run
from slslab.up.doctor import MISSING, OK, PARTLY, Finding, findings_table
from slslab_lab.pages.runs import runs_table

RECORD = {
    "request_id": "a", "memory_mb": 1769, "billed_ms": 10_500, "architecture": "x86_64", "ephemeral_mb": 512,
}  # fmt: skip
PHASES = {
    "init": 0.5, "fetch": 1.0, "compute": 6.25, "synchronise": 1.5, "wait": 1.0, "update": 0.25, "other": -0.001,
}  # fmt: skip
NOT_MODELLED = {"status": "not modelled", "reason": "It has no end."}


def cost(book: str = "aws-us-east-1", puts: int = 12) -> dict[str, Any]:
    return compute_bill(Usage([RECORD], {"object.put": puts}), load_book(book)).as_document()


def document(**more: Any) -> dict[str, Any]:
    """A run's document as far as the tables read it."""
    spread = {"min": 9_000.0, "median": 9_500.0, "max": 12_345.5}
    base = {
        "run": "20261121-one",
        "status": "done",
        "error": None,
        "architecture": "allreduce",
        "model": "lenet",
        "dataset": "digits",
        "workers": 2,
        "batches": 5,
        "batch_size": 64,
        "epochs": 2,
        "memory_mb": 1769,
        "lambda": NOT_MODELLED,
        "seconds": {"measured": 12.5},
        "billed_seconds": 10.5,
        "gb_seconds": "18.139",
        "peak_memory_mb": 1300,
        "invocations": 2,
        "cold_starts": 1,
        "phases": PHASES,
        "per_worker": [
            {"worker": 0, "phases": PHASES, "billed_seconds": 10.5, "invocations": 1, "peak_memory_mb": 1300},
            {"worker": -1, "phases": PHASES, "billed_seconds": 0.0, "invocations": 1, "peak_memory_mb": 40},
        ],
        "reports": {
            "endings": {"Sandbox.Timedout": 1, "success": 1},
            "duration_ms": spread,
            "init_ms": None,
            "billed_ms": spread,
            "max_memory_mb": {"min": 40, "median": 670, "max": 1300},
        },
        "counts": {"object.put": 12, "object.get": 1_024},
        "bytes": {"in": 1_000_000, "out": 2_000_000},
        "overheads": {"counts": {"object.list": 7}, "bytes": {"in": 10, "out": 20}},
        "replicas_equal": True,
        "loss": [2.3, 1.25],
        "accuracy": [0.1, 0.5],
        "cost": cost(),
        "host": {"cores": 2, "cpu_share_enforced": True, "delay_seconds": 0.04, "oversubscribed": False},
    }
    return base | more


def shown(parts: Parts | None, width: int = 200) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(render(parts or ()))
    return capture.get()


def row(text: str, first: str) -> list[str]:
    """The cells of the one line that begins with these words."""
    (line,) = [line.strip() for line in text.splitlines() if line.strip().startswith(first)]
    return line.removeprefix(first).split()


def test_a_finished_run() -> None:
    text = shown(run.full(document()))
    assert "20261121-one: allreduce, lenet on digits, 2 workers × 5 batches of 64 × 2 epochs at 1,769 MB — done" in text
    assert row(text, "wall time") == ["12.50", "s"]
    assert row(text, "peak memory  ") == ["1,300", "MB", "(of", "1,769", "MB)"]
    assert row(text, "invocations  ") == ["2", "(1", "cold)"]
    assert row(text, "replicas equal") == ["yes"]
    assert row(text, "test accuracy  ") == ["50.00", "%", "(after", "2", "epochs)"]
    assert row(text, "cores") == ["2"]
    assert row(text, "Lambda's CPU share") == ["enforced"]
    assert row(text, "host delay") == ["0.04000", "s"]
    assert "oversubscribed" not in text
    assert "Hint" not in text


def test_phases_stand_in_their_columns_and_an_unknown_worker_is_named_so() -> None:
    text = shown(cards.phases_card(document()))
    seconds = ["0.500", "1.000", "6.250", "1.500", "0.250", "1.000", "-0.001"]
    assert row(text, "worker  ") == [
        *" s ".join(("init", "fetch", "compute", "synchronise", "update", "wait", "other", "billed")).split(),
        "s", "invocations", "peak", "MB",
    ]  # fmt: skip
    assert row(text, "worker 0") == [*seconds, "10.500", "1", "1,300"]
    assert row(text, "unknown") == [*seconds, "0.000", "1", "40"]
    assert row(text, "all") == [*seconds, "10.500", "2", "1,300"]


# Deviations of a figure's logarithm, by source.
UNCERTAINTY = {
    "shared": {"dense work on Lambda": 0.15, "interpreter work on Lambda": 0.003, "the profile's requests": 0.06},
    "own": {"this machine's processor": 0.05, "the replay": 0.06},
}
# What they make of a range in words.
RANGES = (
    "80 % ranges allow for errors in Lambda's processors, this machine's processor, the profile's requests and the "
    "replay (docs/replay.md)."
)
PROCESSOR = {
    "name": "AMD EPYC, Python 3.13", "form": "whole", "anchors": {"chained hash": 2022, "ResNet-50": 2020},
    "missing": "Streaming work has one anchor.",
}  # fmt: skip


def ranges(uncertainty: dict[str, Any] = UNCERTAINTY, **values: float) -> dict[str, Any]:
    """The ranges of these figures, as a document has them."""
    ends = {name: read_uncertainty(uncertainty).around(value) for name, value in values.items()}
    return {
        "ranges": {name: {"low": low, "high": high} for name, (low, high) in ends.items()},
        "uncertainty": dict.fromkeys(values, uncertainty),
    }


def modelled(**more: Any) -> dict[str, Any]:
    worker = {"worker": 0, "seconds": 8.25, "billed_seconds": 9.125}
    return {
        "status": "modelled",
        "profile": {"name": "aws-us-east-1", "date": "2026-11-21"},
        "seconds": 11.5,
        "billed_seconds": 9.125,
        **ranges(seconds=11.5, billed_seconds=9.125, cost=float(cost(puts=20)["total"])),
        "gb_seconds": "15.764",
        "cold_starts": 1,
        "waiting_share": 0.254,
        "critical_path": "The run's 11.500 s are 61 % compute of worker 0.",
        "per_worker": [worker],
        "cost": cost(puts=20),
    } | more


def test_a_modelled_run_begins_with_what_it_takes_and_costs_on_lambda() -> None:
    text = shown(run.full(document(**{"lambda": modelled()})))
    first, waiting, *_ = text.splitlines()
    # The deviation of all sources together is 0.18, and 80 % are within a factor of 1.26.
    assert first == "On AWS Lambda (us-east-1, modelled): 9 to 14 s, 0.00032 to 0.00051 USD"
    assert waiting == "25 % of the billed time is waiting."
    sentences = " ".join(text[: text.index("20261121-one: allreduce, lenet on digits")].split())
    assert RANGES in sentences
    own = text[text.index("Half-widths of the 80 % ranges") :]
    assert row(own, "dense work on Lambda") == ["21", "%", "21", "%"]
    assert row(own, "the profile's requests") == ["8", "%", "8", "%"]
    assert "The machine of this run wasn't compared with Lambda's processors, so the range is wide." in own
    assert "slslab calibrate --processor" in own
    # What this host measured stands next to it; then the bill, whose range the answer has.
    assert text.index("this machine  ") < text.index("Bill (us-east-1, modelled)")
    assert row(text, "S3 PUT requests") == ["20", "request", "0.000005", "0.00010000"]
    assert row(text, "total") == ["0.00040252"], "there is one bill"
    assert row(text, "bill, USD")[-1] == "USD"
    assert "0.0003625 this host's seconds, priced, USD" in text
    assert "oversubscribed" not in text


def test_an_oversubscribed_run_has_one_short_mark() -> None:
    host = {"cores": 2, "cpu_share_enforced": True, "delay_seconds": 3.0, "oversubscribed": True}
    for found in (modelled(), NOT_MODELLED):
        text = shown(run.full(document(**{"lambda": found}, host=host)))
        assert text.splitlines()[0].endswith(" [oversubscribed]")
        assert text.count("oversubscribed") == 1
        assert "3.000 s: this machine was overloaded. The functions waited for it for more than 2 %" in text


def test_a_run_that_was_not_modelled_says_why_in_the_place_of_its_figures() -> None:
    text = shown(run.full(document()))
    assert text.splitlines()[0] == "On AWS Lambda: not modelled. It has no end."
    assert "±" not in text
    assert "Bill (" not in text
    assert "This host's seconds, priced" in text
    assert row(text, "total") == ["0.00036252"]


def test_the_anchors_of_the_processor_are_named() -> None:
    def said(**processor: Any) -> str:
        return " ".join(shown(run.full(document(processor=PROCESSOR | processor, **{"lambda": modelled()}))).split())

    assert (
        "Anchors of the processor, measured on AMD EPYC, Python 3.13 at full length: chained hash (2022) and ResNet-50 "
        "(2020). Streaming work has one anchor." in said()
    )
    assert "in short form, which widens the range" in said(form="short")
    assert "calibrate" not in said()
    assert "calibrate --processor" in said(form="not anchored", anchors={})


def test_a_range_that_does_not_depend_on_the_processor_names_none() -> None:
    uncertainty = {"shared": {}, "own": {"this machine's processor": 0.0, "the replay": 0.06}}
    own = ranges(uncertainty, seconds=11.5, billed_seconds=9.125, cost=0.0004)
    text = " ".join(shown(run.full(document(**{"lambda": modelled(**own)}))).split())
    assert (
        "80 % ranges allow for errors in the replay (docs/replay.md). The profile's requests were never tested" in text
    )
    assert "calibrate" not in text


@pytest.mark.parametrize("error", [None, {"seconds": {"mean": 0.13, "worst": 0.25}}])
def test_a_run_that_was_recorded_before_ranges_has_none(error: object) -> None:
    found = {name: value for name, value in modelled(error=error).items() if name not in ("ranges", "uncertainty")}
    text = shown(run.full(document(**{"lambda": found})))
    assert text.splitlines()[:3] == [
        "On AWS Lambda (us-east-1, modelled): 11.5 s, $0.000403",
        "25 % of the billed time is waiting.",
        "Recorded before ranges: `slslab replay RUN` gives one.",
    ]
    assert "range" not in "".join(text.splitlines()[3:])
    assert "±" not in text


@pytest.mark.parametrize("profile", ["aws-us-east-1", "aws-us-east-1-2026", DEFAULT_PROFILE])
def test_a_region_is_named_without_the_date_of_its_profile(profile: str) -> None:
    assert region({"profile": {"name": profile}}) == "us-east-1"


def test_instances_run_on_aws_and_not_on_lambda() -> None:
    host = {"cores": 2, "cpu_share_enforced": True, "delay_seconds": 0.0, "oversubscribed": False}
    launched = [{"type": "g4dn.xlarge"}]
    given = document(instances=launched, device="cpu", cost=cost() | {"notes": ["computed on CPU"]}, host=host)
    text = shown(run.full(given | {"lambda": modelled()}))
    assert text.startswith("On AWS (us-east-1, modelled): 9 to 14 s, 0.000")
    assert "The speed of g4dn.xlarge is assumed, so its error isn't in the range." in text
    assert text.count("Computed on CPU.") == 1
    assert "The vCPUs and memory of g4dn.xlarge weren't enforced." in text


def test_scripts_whose_time_a_compose_stack_does_not_measure_are_named() -> None:
    scripts = {"counts": {"tensor.script": 20}}
    says = "The CPU time of scripts isn't measured on a compose stack: a replay takes the time that callers waited."
    assert says in shown(run.full(document(plan={"stack": "compose"}, **scripts)))
    assert says not in shown(run.full(document(plan={"stack": "embedded"}, **scripts)))
    assert says not in shown(run.full(document(plan={"stack": "compose"})))


def test_what_the_model_rests_on_stands_before_the_phases() -> None:
    text = shown(run.full(document(**{"lambda": modelled()})))
    own = text[text.index("Half-widths of the 80 % ranges") : text.index("Phases")]
    assert "Modelled on the profile aws-us-east-1 of 2026-11-21." in own
    assert "61 % compute of worker 0. Of the billed time 25 % is waiting (modelled)." in own


def test_the_bill_is_lambdas_and_what_this_host_used_stands_behind_it() -> None:
    found = modelled()
    one = {"range": found["ranges"]["cost"], "uncertainty": found["uncertainty"]["cost"]}
    given = {**found["cost"], "profile": found["profile"], **one, "host": cost()}
    text = shown(bill_tables.both_bills(given))
    assert text.startswith("Bill (us-east-1, modelled): 0.00032 to 0.00051 USD")
    bill, host = text.split("This host's seconds, priced")
    assert row(bill, "total") == ["0.00040252"]
    assert row(host, "total") == ["0.00036252"]
    assert "80 % ranges allow for errors in Lambda's processors" in bill
    none = shown(bill_tables.both_bills({**NOT_MODELLED, "host": cost()}))
    assert none.startswith("No bill, because it is not modelled: It has no end.")
    assert row(none, "total") == ["0.00036252"]
    predicted = {**found["cost"], "profile": found["profile"], "range": one["range"], "notes": ["It waits."]}
    of_up = shown(bill_tables.both_bills({**predicted, "host": cost()}))
    assert of_up.startswith("Bill (us-east-1, modelled): 0.00032 to 0.00051 USD")
    assert "It waits." in of_up
    assert "80 % ranges allow for errors in Lambda's processors, this machine's processor" in of_up


def test_cpu_seconds_measured_alone_are_told_and_marked_if_the_host_was_not_quiet() -> None:
    alone = {"status": "measured", "seconds": 12.34, "quiet": True, "probe_ratio": 1.01, "kinds": [{"count": 7}] * 2}
    text = shown(run.full(document(alone=alone)))
    assert "Replay uses CPU seconds of 14 steps measured alone before the run, within 12.3 s." in text
    assert "NOT QUIET" not in text
    loaded = shown(run.full(document(alone={**alone, "quiet": False, "probe_ratio": 1.987})))
    assert "NOT QUIET: other programs slowed the host 1.99 times, so the range is wider." in loaded
    assert "normal priority" not in shown(run.full(document(alone={**alone, "priority": "high"})))
    refused = " ".join(shown(run.full(document(alone={**alone, "priority": "normal"}))).split())
    assert "at normal priority: this host doesn't allow a higher one, so the range is wider." in refused
    failed = shown(run.full(document(alone={"status": "not measured", "reason": "It failed."})))
    assert "CPU seconds weren't measured alone, so replay uses the run's own. It failed." in failed


def test_report_lines_name_every_ending_and_leave_out_what_no_invocation_had() -> None:
    text = shown(cards.invocations_card(document()))
    assert "Endings: 1 Sandbox.Timedout, 1 success." in text
    assert row(text, "Duration, ms") == ["9,000.00", "9,500.00", "12,345.50"]
    assert "Init Duration" not in text


def test_traffic_lists_protocol_and_overheads_side_by_side() -> None:
    text = shown(cards.traffic_card(document()))
    assert row(text, "object.get") == ["1,024", "0"]
    assert row(text, "object.list") == ["0", "7"]
    assert row(text, "bytes sent") == ["1,000,000", "10"]
    assert row(text, "bytes received") == ["2,000,000", "20"]


def learning(**more: Any) -> str:
    text = shown(run.full(document(**more)))
    return text[text.index("Loss and accuracy") : text.index("Messages and bytes")]


def test_learning_shows_every_epoch() -> None:
    losses = [100.0 - number for number in range(61)]
    text = learning(loss=losses, accuracy=[0.5] * 60)
    epochs = [int(line.split()[0]) for line in text.splitlines() if line.split() and line.split()[0].isdigit()]
    assert epochs == list(range(1, 62))
    assert row(text, "8 ") == ["93.0000", "50.00", "%"]
    assert row(text, "61") == ["40.0000", "–"], "an epoch that was never evaluated has no accuracy"
    few = learning(loss=[3.0, 2.0], accuracy=[None, 0.25])
    assert row(few, "1 ") == ["3.0000", "–"]
    assert row(few, "2 ") == ["2.0000", "25.00", "%"]


def test_who_joined_is_told_with_its_first_epoch() -> None:
    joins = [{"worker": 2, "epoch": 1}, {"worker": 3, "epoch": None}]
    text = shown(run.full(document(details={"joins": joins})))
    assert row(text[text.index("Joins") :], "worker ")[:1] == ["epoch"]
    assert row(text[text.index("Joins") :], "2 ") == ["2"], "as in all tables, the first is 1"
    assert row(text[text.index("Joins") :], "3 ") == ["–"]
    assert "Joins" not in shown(run.full(document(details={"joins": []})))
    uneven = shown(run.full(document(details={"joins": [{"worker": 2, "epoch": 1}, {"worker": 3, "name": "x"}]})))
    assert row(uneven[uneven.index("Joins") :], "3 ") == ["–"], "each value stays in its column"


def test_a_terminal_and_a_page_show_the_same_parts_in_the_same_order() -> None:
    joined = {"joins": [{"worker": 2, "epoch": 1}]}
    given = document(details=joined, stack={"s3": "MinIO 1"}, **{"lambda": modelled()})
    page = run.run_page(given)
    text = " ".join(shown(run.full(given)).split())
    titles = [(card.tables and card.tables[0].caption) or card.title for card in page.cards]
    assert {"Joins", "Parts and result", "Bill (us-east-1, modelled)"} <= set(titles)
    assert titles == sorted(titles, key=text.index)
    assert all(answer in text for answer in (*page.answers, page.figures[0].value))


def test_a_failed_run_says_where_why_and_what_to_do() -> None:
    error = {"type": "Runtime.OutOfMemory", "message": "killed", "hint": "use --memory", "worker": 1, "step": 7}
    text = shown(run.full(document(status="failed", error=error)))
    assert "1,769 MB — failed" in text
    assert "Runtime.OutOfMemory: killed (worker 1, step 7)\n" in text
    assert "Hint: use --memory\n" in text
    unplaced = {"type": "Interrupted", "message": "by the user", "hint": None, "worker": None, "step": None}
    text = shown(run.full(document(status="interrupted", error=unplaced)))
    assert "1,769 MB — interrupted" in text
    assert "Interrupted: by the user\n" in text
    assert "worker 1" not in text
    assert "Hint" not in text
    short = shown(run.brief(document(status="interrupted", error=unplaced))).splitlines()
    assert len(short) == 3
    assert short[1] == "Interrupted: by the user"
    assert short[2].startswith("More: slslab show ")


def test_a_run_that_trains_nothing_names_the_size_of_its_vectors() -> None:
    untrained = document(accuracy=[], loss=[], replicas_equal=None, peak_memory_limit_mb=2000)
    untrained |= {"parameters": 4_000_000, "gradient_bytes": 16_000_000}
    text = " ".join(shown(run.full(untrained)).split())
    assert "allreduce, 4,000,000 parameters, 2 workers × 5 rounds × 2 epochs at 2,000 MB — done" in text
    assert "peak memory 1,300 MB (of 2,000 MB)" in text


def test_one_of_a_thing_is_told_in_the_singular() -> None:
    host = {"cores": 1, "cpu_share_enforced": True, "delay_seconds": 0.04, "oversubscribed": False}
    one = document(workers=1, batches=1, batch_size=1, epochs=1, host=host)
    text = shown(run.full(one))
    assert "1 worker × 1 batch of 1 × 1 epoch at 1,769 MB — done" in text
    untrained = shown(
        run.full({**one, "replicas_equal": None, "parameters": 1, "gradient_bytes": 4, "peak_memory_limit_mb": 2000})
    )
    assert "1 parameter, 1 worker × 1 round × 1 epoch at" in untrained


def test_a_run_that_was_killed_at_once_has_no_empty_tables() -> None:
    error = {"type": "Killed", "message": "killed", "hint": "run it again", "worker": None, "step": None}
    nothing = document(per_worker=[], invocations=0, counts={}, accuracy=[], loss=[], replicas_equal=None)
    nothing |= {"status": "failed", "error": error}
    nothing["host"] = {"cores": None, "delay_seconds": 1.5, "oversubscribed": False}
    text = shown(run.full(nothing))
    for title in ("Phases", "REPORT lines", "Messages and bytes", "Learning"):
        assert title not in text
    for label in ("replicas equal", "training loss", "test accuracy"):
        assert label not in text
    assert row(text, "Lambda's CPU share") == ["not", "recorded"]
    assert row(text, "host delay") == ["1.500", "s"]


def test_a_host_that_could_not_enforce_is_told() -> None:
    host = {"cores": 2, "cpu_share_enforced": False, "delay_seconds": 1_234.5, "oversubscribed": False}
    assert "This host could not enforce Lambda's CPU share." in shown(run.brief(document(host=host)))


def test_a_run_that_was_made_on_a_node_names_it() -> None:
    host = {**document()["host"], "name": "b (10.0.0.2)", "processors": "2 × Fast"}
    assert "b (10.0.0.2), 2 × Fast" in shown(cards.host_card(document(host=host)))


def test_a_package_that_is_too_large_for_a_zip_file_is_named_with_awss_limit() -> None:
    package = {"unzipped_bytes": 2**20, "layer": "torch 2.13.0", "layer_bytes": 665 * 2**20, "limit_bytes": 262_144_000}
    text = shown(cards.host_card(document(package={**package, "needs_container_image": True})))
    assert "666 MB with the layer torch 2.13.0 exceeds the 250 MB limit for zip packages" in text
    assert "package" not in shown(cards.host_card(document(package={**package, "needs_container_image": False})))


def test_where_no_function_ran_nothing_is_told_of_its_cpu_share() -> None:
    text = shown(cards.host_card(document(status="interrupted", invocations=0)))
    assert row(text, "Lambda's CPU share") == ["no", "function", "ran"]


def test_a_bill_adds_up_on_the_screen_and_names_what_its_book_leaves_out() -> None:
    text = shown(bill_tables.bill_table(cost()))
    amounts = [Decimal(row(text, item)[-1]) for item in ("Lambda duration", "Lambda requests", "S3 PUT requests")]
    total = Decimal(row(text, "total")[-1])
    assert abs(sum(amounts, Decimal(0)) - total) <= Decimal("0.00000002")
    assert row(text, "S3 PUT requests") == ["12", "request", "0.000005", "0.00006000"]
    assert row(text, "Lambda duration, x86_64")[0] == "18.139160"
    paper = shown(bill_tables.bill_table(cost("paper-2025")))
    assert row(paper, "S3 PUT requests (no price in paper-2025)") == ["12", "request"]


def test_a_bill_with_a_cache_has_the_total_for_a_run_alone() -> None:
    usage = Usage(service_hosts=(("cache.t3.medium", 360),))
    text = shown(bill_tables.bill_table(compute_bill(usage, load_book("aws-us-east-1")).as_document()))
    assert (row(text, "total"), row(text, "with hosts of its own")) == (["0.00680000"], ["0.06800000"])
    assert "a share, by the second, of hosts that are always on" in " ".join(text.split())
    assert "hosts of its own" not in shown(bill_tables.bill_table(cost()))


def test_runs_of_every_kind_have_a_line() -> None:
    interrupted: Mapping[str, Any] = {"run": "begun", "status": "interrupted", "architecture": "allreduce"}
    bare: Mapping[str, Any] = {"run": "bare", "status": "interrupted"}
    text = shown(runs_table([document(**{"lambda": modelled()}), document(run="20261121-two"), interrupted, bare]))
    plan = ["done", "allreduce", "lenet", "digits", "2", "2"]
    assert row(text, "20261121-one") == [*plan, *"9 to 14 0.00032 to 0.00051 50.0 %".split()]
    assert row(text, "20261121-two") == [*plan, "50.0", "%"], "not modelled"
    assert row(text, "begun") == ["interrupted", "allreduce"]
    assert row(text, "bare") == ["interrupted"]


def test_limits_with_their_sources() -> None:
    limits = lambda_limits()
    rows = {
        name: {
            "value": {"minimum": 128, "maximum": 10_240, "default": 128}
            if name == "memory_mb"
            else getattr(limits, name),
            **basis,
        }
        for name, basis in bases().items()
        if name in ("memory_mb", "processors", "vcpu_mb", "descriptors")
    }
    document = {"version": limits.version, "limits": rows, "without_effect": {"VpcConfig": "none of it"}}
    text = shown(limits_tables(document), width=400)
    assert row(text, "VpcConfig") == ["none", "of", "it"]
    assert f"version {limits.version}" in text
    assert row(text, "memory_mb")[:8] == [
        "128",
        "to",
        "10,240,",
        "by",
        "default",
        "128",
        "documented",
        "configuration-memory.html:",
    ]
    assert "2 up to 3,008 MB, 3 up to 5,307 MB" in text
    assert row(text, "vcpu_mb")[:2] == ["1,769", "documented"]
    assert row(text, "descriptors") == ["1,024", "documented", "gettingstarted-limits.html"]


def test_a_service_shows_what_a_client_must_set() -> None:
    described = {
        "endpoints": {"lambda": "http://127.0.0.1:1", "s3": "http://127.0.0.1:2"},
        "confinement": "cgroup v2", "isolation": "none", "logs": "/logs", "pid": 7,
    }  # fmt: skip
    text = shown(service_tables(described))
    assert row(text, "AWS_ENDPOINT_URL_LAMBDA") == ["http://127.0.0.1:1"]
    assert row(text, "AWS_ENDPOINT_URL_S3") == ["http://127.0.0.1:2"]
    assert row(text, "keys") == ["eval", '"$(slslab', 'env)"']
    assert row(text, "pid") == ["7"]


@pytest.mark.parametrize(("state", "colour"), [(OK, "32"), (PARTLY, "33"), (MISSING, "31")])
def test_findings_carry_the_colour_of_their_state(state: str, colour: str) -> None:
    console = Console(width=100, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        console.print(render(findings_table([Finding("memory", state, "8 GB", "buy more")])))
    assert f"\x1b[{colour}m{state}" in capture.get()
    assert "buy more" in capture.get()


RECORDED = Path(__file__).parents[3] / "results" / "table2"


@pytest.mark.parametrize("name", sorted(path.name for path in RECORDED.iterdir() if path.is_dir()))
def test_nothing_of_a_run_is_cut_at_80_columns(name: str) -> None:
    recorded = open_run(RunDirectory(RECORDED / name)).summary()
    narrow, wide = (shown(run.full(recorded), width) for width in (80, 400))
    assert "…" not in narrow
    assert max(map(len, narrow.splitlines())) <= 80
    # Every figure is there, but for prices of a unit.
    found = replayed(recorded)
    assert found is not None
    absent = set(re.findall(r"[\d,]+\.\d+", wide)) - set(re.findall(r"[\d,]+\.\d+", narrow))
    assert absent <= {line["price"] for line in found["cost"]["lines"]}
    assert bool(absent) == ("Not shown at this width: price USD." in narrow)


def test_runs_are_told_by_their_ids_bills_and_statuses_at_80_columns() -> None:
    documents = [directory.listed() for directory in list_runs(RECORDED)]
    interrupted = {"run": "20261122-000000-gradssharding-torchvision-0123", "status": "interrupted"}
    narrow = shown(runs_table([*documents, interrupted]), 80)
    assert "…" not in narrow
    assert max(map(len, narrow.splitlines())) <= 80
    for document in documents:
        assert row(narrow, document["run"])[-1] == significant(float(document["lambda"]["cost"]["total"]))
    assert row(narrow, interrupted["run"]) == ["interrupted"]
    assert "Not shown at this width: dataset, model, architecture, epochs, workers," in narrow
    assert "Not shown" not in shown(runs_table(documents), 200)


def test_a_table_that_does_not_fit_is_turned_then_has_fewer_columns_and_last_breaks_words() -> None:
    table = Table(("name", "first", "second"), [("a", "1111", "22")], caption="T", dispensable=("second",))
    assert [line.split() for line in shown(table, 25).splitlines() if line.strip()][1] == ["name", "first", "second"]
    turned = shown(table, 19)
    assert [row(turned, name) for name in ("name", "first", "second")] == [["a"], ["1111"], ["22"]]
    rows = [(f"n{number}", "1111", "22") for number in range(9)]
    totals = [("all", "9999", "")]
    many = Table(("name", "first", "second"), rows, totals, note="A note.", dispensable=("second",))
    fewer = shown(many, 20)
    assert row(fewer, "name") == ["first"]
    assert row(fewer, "all") == ["9999"]
    assert [" ".join(line.split()) for line in fewer.splitlines()[-4:]] == [
        "A note.", "Not shown at", "this width:", "second.",
    ]  # fmt: skip
    broken = shown(many, 10)
    assert "…" not in broken
    assert broken.count("1") == 9 * 4 + 1, "of n1, too"


def test_a_narrow_table_shortens_its_widest_columns() -> None:
    table = Table(("name", "USD"), [("a name of many words", "0.026 to 0.059")], dispensable=())
    narrow = shown(table, 34)
    assert "0.026 to 0.059" in narrow
    assert "a name of many words" not in narrow


@pytest.mark.parametrize(("reached", "said"), [(0.91, True), (0.5, False)])
def test_a_run_that_stopped_at_its_accuracy_says_so_and_no_other(reached: float, said: bool) -> None:
    given = document(epochs=80, epochs_trained=8, accuracy=[reached])
    given["plan"] = {"until_accuracy": 0.905}
    text = " ".join(shown(run.brief(given)).split())
    assert "8 of 80 epochs" in text
    assert ("until 90.5 % accuracy" in text) is said


def test_a_run_for_a_platform_with_gpus_names_it_and_the_memory_of_a_gpu_that_was_used() -> None:
    note = "ran on cuda:0 Tesla T4: these are its times, and containers of modal-t4 are billed for them"
    gpu = {"kind": "T4", "memory_mb": 15258, "peak_memory_mb": 1812}
    of = document(
        **{"lambda": modelled(), "plan": {"platform": "modal-t4"}, "gpu": gpu, "memory_mb": 8192},
        cost={**cost(), "notes": [note]},
    )
    reports = {**of["reports"], "max_gpu_memory_mb": {"min": 1700, "median": 1750, "max": 1812}}
    brief, full = shown(run.brief(of)), shown(run.full({**of, "reports": reports}))
    assert brief.startswith("On modal-t4 (T4, modelled): ")
    assert "at 8,192 MB for modal-t4" in brief
    assert "on modal-t4, modelled" in brief
    assert row(brief, "peak GPU memory") == ["1,812", "of", "15,258", "MB"]
    assert f"R{note[1:]}." in brief
    assert "Modelled on the profile" in full
    assert row(full, "GPU memory, MB")[-3:] == ["1,700.00", "1,750.00", "1,812.00"]
    assert f"R{note[1:]}." in full
    on_cpu = shown(run.brief({**of, "gpu": {"kind": "T4", "memory_mb": 15258}}))
    assert "GPU memory" not in on_cpu, "absent, not zero"
