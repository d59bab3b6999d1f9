"""Runs side by side on a terminal: answers first, a line for each, at 80 columns."""

from pathlib import Path
from typing import Any

from rich.console import Console
from tests.emulator.report.test_run import RANGES, cost, document, modelled, ranges

from slslab.report.summaries import headline
from slslab.report.terminal import render
from slslab_lab.pages.comparison import comparison, describe_comparison


def shown(*documents: dict[str, Any], page: Path | None = None) -> list[str]:
    """The lines on a terminal of 80 columns."""
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(render(comparison(documents, page)))
    return [line.rstrip() for line in capture.get().splitlines()]


def on_lambda(seconds: float, total: str, **more: Any) -> dict[str, Any]:
    """A modelled run; the deviation of its ratio to another one is 0.11, so 80 % are within a factor of 1.15."""
    own = ranges(seconds=seconds, billed_seconds=seconds, cost=float(total))
    found = modelled(seconds=seconds, **own)
    return document(**more) | {"lambda": found | {"cost": found["cost"] | {"total": total}}}


def sentences(lines: list[str]) -> list[str]:
    """The answers, each on one line."""
    text = " ".join(" ".join(lines[: lines.index("")]).split())
    return [f"{sentence}." for sentence in text.removesuffix(".").split(". ")]


def test_who_is_fastest_cheapest_and_most_accurate_and_by_how_much() -> None:
    runs = [
        on_lambda(30.0, "0.004", accuracy=[0.5, 0.931]),
        on_lambda(10.0, "0.0041", architecture="spirt", accuracy=[0.1]),
        on_lambda(40.0, "0.04", architecture="gpu", accuracy=[0.9312]),
    ]
    assert describe_comparison([one | {"plan": {}, "stack": {}} for one in runs]).answers == (
        "B SPIRT is fastest on AWS: 8 to 13 s, 2.6 to 3.5 times faster than A AllReduce and 3.5 to 4.6 times faster "
        "than C GPU baseline.",
        "A AllReduce (0.0032 to 0.0050 USD) can't be told apart from B SPIRT (0.0033 to 0.0052 USD) as the cheapest on "
        "AWS; C GPU baseline costs 8.7 to 11.5 times as much as A AllReduce.",
        "A AllReduce and C GPU baseline are most accurate: 93.1 %.",
    )
    lines = shown(*runs, page=Path("compared.html"))
    assert sentences(lines) == [
        "Fastest on AWS: SPIRT.",
        "Cheapest: AllReduce or SPIRT.",
        "Most accurate: AllReduce and the GPU baseline.",
        "Modelled on AWS (us-east-1), with 80 % ranges for known errors (docs/replay.md).",
    ]
    assert sentences(shown(*runs[:2]))[-2:] == ["Modelled on AWS (us-east-1).", RANGES]
    assert (
        "The machine of AllReduce, SPIRT and the GPU baseline wasn't compared with Lambda's processors, so"
        in " ".join(" ".join(lines).split())
    )
    assert not any("…" in line for line in lines), "nothing is cut off"
    (spirt,) = (line.split() for line in lines if line.startswith("  SPIRT"))
    assert spirt == ["SPIRT", *"8 to 13 0.0033 to 0.0052 25 % 12.5 10.0 %".split()]
    assert lines[-1].startswith("All figures: compared.html · Next: ")


def test_runs_of_one_architecture_are_told_apart_by_their_time() -> None:
    lines = shown(
        on_lambda(30.0, "0.004", run="20261121-071530-allreduce-lenet-3f2a"),
        on_lambda(30.0, "0.004", run="20261121-081530-allreduce-lenet-3f2b"),
    )
    assert sentences(lines)[0] == (
        "20261121-071530 (24 to 38 s) can't be told apart from 20261121-081530 (24 to 38 s) as the fastest on AWS."
    )
    assert any(line.startswith("All figures, as a page: add --html FILE · Next: ") for line in lines)


def test_runs_for_another_platform_are_not_compared_on_aws() -> None:
    on_gpus = on_lambda(10.0, "0.04", architecture="spirt", plan={"platform": "modal-t4"}, stack={})
    lines = shown(on_lambda(30.0, "0.004", plan={}, stack={}), on_gpus)
    assert sentences(lines)[:2] == [
        "SPIRT is fastest: 8 to 13 s, 2.6 to 3.5 times faster than AllReduce.",
        "AllReduce is cheapest: 0.0032 to 0.0050 USD, 8.7 to 11.5 times cheaper than SPIRT.",
    ]
    assert "Modelled on AWS (us-east-1) and modal-t4." in sentences(lines)
    assert any(line.split()[:4] == ["run", "its", "platform,", "s"] for line in lines)
    page = describe_comparison([on_gpus, on_gpus])
    assert page.answers[0].endswith(" as the fastest on modal-t4.")
    assert page.answers_note.startswith("Modelled on modal-t4.")
    assert page.cards[0].title == "Cost, time and accuracy on its platform"
    assert next(iter(page.cards[1].tables[0].rows))[0] == "time on its platform, s"


def test_a_run_that_is_not_modelled_has_no_place_and_is_named() -> None:
    why = {"lambda": {"status": "not modelled", "reason": "It goes on."}}
    others = [document(architecture=name, cost=cost(puts=40), status="failed") | why for name in ("spirt", "mlless")]
    lines = shown(on_lambda(30.0, "0.004"), *others)
    assert sentences(lines)[0] == "Fastest on AWS: AllReduce."
    said = "SPIRT and MLLess are not modelled; the bill is this host's seconds, priced. It goes on."
    assert said in " ".join(" ".join(lines).split())
    assert "SPIRT has failed." in lines


def test_where_none_is_modelled_this_hosts_figures_decide() -> None:
    lines = shown(document(), document(architecture="spirt", seconds={"measured": 25.0}, cost=cost(puts=40)))
    assert sentences(lines) == [
        "AllReduce is fastest on this host: 12.5 s, 2.0 times faster than SPIRT.",
        "AllReduce is cheapest on this host: $0.000363, 1.4 times cheaper than SPIRT.",
        "AllReduce and SPIRT are most accurate: 50.0 %.",
        "As this host measured and priced it, since no run is modelled on AWS.",
    ]


def test_runs_of_unequal_work_are_named_after_the_verdicts() -> None:
    given = [
        on_lambda(30.0, "0.004", plan={}, stack={}),
        on_lambda(60.0, "0.008", architecture="spirt", epochs=1, batch_size=512, plan={}, stack={}),
    ]
    assert "Their plans differ in minibatch size: 64 and 512; epochs: 2 and 1." in sentences(shown(*given))
    assert describe_comparison(given).answers[-1].startswith("Their plans differ in ")


def test_another_run_may_be_cheapest_with_a_cache_of_its_own() -> None:
    shared = document(architecture="spirt", cost={**cost(puts=1), "total_alone": "0.0685"})
    lines = sentences(shown(document(), shared))
    assert lines[1].startswith("SPIRT is cheapest on this host")
    assert lines[2] == (
        "With hosts of its own, a run pays for each hour of its cache that begins: then AllReduce is cheapest with "
        "$0.000363, and SPIRT costs $0.0685."
    )


def test_a_run_that_was_recorded_without_a_total_of_its_own_pays_for_its_cache_by_the_hour_too() -> None:
    line = {"item": "Host cache.t3.medium", "quantity": "11", "unit": "second", "price": "0", "amount": "0"}
    given = cost(puts=1)
    cached = document(architecture="spirt", cost={**given, "lines": [*given["lines"], line]})
    (said,) = (one for one in sentences(shown(document(), cached)) if one.startswith("With hosts of its own"))
    assert said.endswith("then AllReduce is cheapest with $0.000363, and SPIRT costs $0.0681.")


def test_totals_with_hosts_of_their_own_that_look_equal_are_not_told_apart() -> None:
    def costing(architecture: str, total: str, alone: str) -> dict[str, Any]:
        one = on_lambda(30.0, total, architecture=architecture)
        one["lambda"]["cost"]["total_alone"] = alone
        return one

    first = costing("allreduce", "0.0040", "0.07200")
    for alone, told in (("0.0715", False), ("0.05", True)):
        lines = sentences(shown(first, costing("spirt", "0.0041", alone)))
        assert any(line.startswith("With hosts of its own") for line in lines) is told
    # Without ranges, the printed figures decide.
    for alone, told in (("0.071999", False), ("0.0715", True)):
        others = [
            document(cost={**cost(puts=n), "total_alone": total}, architecture=name)
            for n, total, name in ((1, "0.07200", "allreduce"), (2, alone, "spirt"))
        ]
        assert any(line.startswith("With hosts of its own") for line in sentences(shown(*others))) is told


def test_a_run_that_is_modelled_with_its_stragglers_is_named() -> None:
    faults = [{"kind": "straggler", "times": 3}]
    slow, fine = on_lambda(30.0, "0.004", faults=faults), on_lambda(10.0, "0.004", architecture="spirt")
    assert "AllReduce ran and is modelled with the stragglers of its fault plan." in shown(slow, fine)
    assert "with the stragglers of its fault plan" in headline(slow)
    others = [fine, document(faults=faults), on_lambda(30.0, "0.004", faults=[{"kind": "straggler", "times": 0}])]
    assert not any("stragglers" in text for text in [*shown(*others), *map(headline, others)])


def test_runs_that_were_recorded_before_ranges_are_compared_by_their_figures() -> None:
    given = [on_lambda(30.0, "0.004"), on_lambda(10.0, "0.0041", architecture="spirt")]
    for one in given:
        for name in ("ranges", "uncertainty"):
            del one["lambda"][name]
    lines = sentences(shown(*given))
    assert lines[0] == "SPIRT is fastest on AWS: 10.0 s, 3.0 times faster than AllReduce."
    assert lines[-2] == "Modelled on AWS (us-east-1), without ranges: close runs may not differ."
    assert lines[-1] == "Recorded before ranges: `slslab replay RUN` gives one."


def test_what_a_reader_must_know_of_the_host_is_said_once() -> None:
    short = document()["host"] | {"oversubscribed": True}
    lines = shown(document(host=short), document(architecture="spirt", host=short))
    assert len([line for line in lines if "This machine was overloaded during all runs" in line]) == 1
