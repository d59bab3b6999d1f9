"""Runs side by side on a terminal: answers first, a line for each, at 80 columns."""

from pathlib import Path
from typing import Any

from rich.console import Console
from tests.slslab.reports.terminal.test_run import cost, document, modelled

from slslab.reports.terminal.comparison import comparison


def shown(*documents: dict[str, Any], page: Path | None = None) -> list[str]:
    """The lines on a terminal of 80 columns."""
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(comparison(documents, page))
    return [line.rstrip() for line in capture.get().splitlines()]


def on_lambda(seconds: float, total: str, **more: Any) -> dict[str, Any]:
    found = modelled()
    return document(**more) | {"lambda": found | {"seconds": seconds, "cost": found["cost"] | {"total": total}}}


def test_who_is_fastest_cheapest_and_most_accurate_and_by_how_much() -> None:
    lines = shown(
        on_lambda(30.0, "0.004", accuracy=[0.5, 0.931]),
        on_lambda(10.0, "0.0041", architecture="spirt", accuracy=[0.1]),
        on_lambda(40.0, "0.04", architecture="gpu", accuracy=[0.9312]),
        page=Path("compared.html"),
    )
    assert lines[:5] == [
        "On AWS (us-east-1, modelled ± 13 %):",
        "  Fastest: spirt, 10.0 s; allreduce takes 3.0 times as long, gpu 4.0 times",
        "  Cheapest: allreduce, $0.00400; spirt costs 1.03 times as much (± 12 % does not",
        "tell them apart), gpu 10 times",
        "  Most accurate: allreduce and gpu, 93.1%; spirt, 10.0%",
    ]
    assert len(lines) <= 15
    assert not any("…" in line for line in lines), "nothing is cut off"
    assert [line.split() for line in lines if line.startswith("  spirt")] == [
        ["spirt", "10.0", "0.00410", "25%", "1", "12.5", "10.0%"]
    ]
    assert "The page with all figures: compared.html" in lines


def test_runs_of_one_architecture_are_told_apart_by_their_time() -> None:
    lines = shown(
        on_lambda(30.0, "0.004", run="20261121-071530-allreduce-lenet-3f2a"),
        on_lambda(30.0, "0.004", run="20261121-081530-allreduce-lenet-3f2b"),
    )
    assert lines[1] == "  Fastest: 20261121-071530 and 20261121-081530, 30.0 s"
    assert "All figures, as a page: add --html FILE" in lines


def test_a_run_that_is_not_modelled_has_no_place_and_is_named() -> None:
    lines = shown(on_lambda(30.0, "0.004"), document(architecture="spirt", cost=cost(puts=40)))
    assert lines[1] == "  Fastest: allreduce, 30.0 s"
    assert "Not modelled: spirt; the bill is this host's seconds, priced." in lines


def test_where_none_is_modelled_this_hosts_figures_decide() -> None:
    lines = shown(document(), document(architecture="spirt", seconds={"measured": 25.0}, cost=cost(puts=40)))
    assert lines[:3] == [
        "As this host measured and priced it, because no run is modelled on AWS:",
        "  Fastest: allreduce, 12.5 s; spirt takes 2.0 times as long",
        "  Cheapest: allreduce, $0.000363; spirt costs 1.4 times as much",
    ]


def test_what_a_reader_must_know_of_the_host_is_said_once() -> None:
    short = document()["host"] | {"oversubscribed": True}
    lines = shown(document(host=short), document(architecture="spirt", host=short))
    assert len([line for line in lines if "This host was short of processors in all runs" in line]) == 1
