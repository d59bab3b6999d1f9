"""LambdaML's Table 1: ratios by hand, the project's own recordings, and refusals."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from slslab.run.bill import Usage, load_book
from slslab_lab.papers.paper import load_paper
from slslab_lab.studies.documents import Estimate
from slslab_lab.studies.lambdaml import table1
from slslab_lab.studies.lambdaml.table1 import RUNNING, STARTED, WAITING, Against, Played, ratio_cell
from slslab_workers.channels.choice import OPENERS

NAME = "lambdaml-table1"
Run = Callable[..., tuple[int, str, str]]
BOOK = load_book("aws-us-east-1")


def played(seconds: float, billed_ms: int, hosts: tuple[tuple[str, Decimal], ...] = ()) -> Played:
    record = {"memory_mb": 1024, "billed_ms": billed_ms, "architecture": "x86_64", "ephemeral_mb": 512}
    return Played(seconds, Usage([record], service_hosts=hosts), 0)


def test_a_node_s_start_counts_in_time_and_in_one_bill_or_the_other() -> None:
    node = (("cache.t3.medium", Decimal(100)),)
    against = Against(played(100, 100_000, node), played(300, 300_000), 120.0, BOOK)
    assert against.slowdown(booted=False) == pytest.approx(1 / 3)
    assert against.slowdown(booted=True) == pytest.approx(220 / 300)
    gb_s, request, second = 0.0000166667, 0.20 / 1e6, 0.068 / 3600
    base = 300 * gb_s + request
    assert against.cost(RUNNING) == pytest.approx((100 * gb_s + request + 100 * second) / base)
    assert against.cost(STARTED) == pytest.approx((100 * gb_s + request + 220 * second) / base)
    assert against.cost(WAITING) == pytest.approx((220 * gb_s + request + 220 * second) / base)


@pytest.mark.parametrize(
    ("published", "modelled", "verdict"),
    [(1.2, 1.0, "agrees"), (4.0, 2.0, "same side"), (0.9, 0.4, "same side"), (1.2, 0.8, "differs")],
)
def test_a_ratio_agrees_or_lies_on_the_same_side_of_1(published: float, modelled: float, verdict: str) -> None:
    assert ratio_cell(Decimal(str(published)), Estimate(modelled)).verdict == verdict


def test_the_only_job_that_cannot_be_is_mobilenet_s_on_dynamodb() -> None:
    refused = table1.refusals()
    assert refused.keys() == {"mobilenet-dynamodb"}
    assert "at most 400 KB" in refused["mobilenet-dynamodb"]
    assert set(table1.CHANNELS) < set(OPENERS)


def test_the_project_s_own_recordings_are_modelled(slslab: Run, tmp_path: Path) -> None:
    code, out, err = slslab("reproduce", NAME, "--json")
    document = json.loads(out)
    assert (code, document["schema"], document["reproduces"]) == (0, 1, NAME)
    paper = load_paper("lambdaml-2021").table("table1")
    assert {(row["name"], row["group"]) for row in document["rows"]} == {(row.name, row.group) for row in paper.rows}
    memcached = [row["cells"]["memcached_slowdown"] for row in document["rows"] if row["variant"] == STARTED]
    assert len(memcached) == len(paper.rows)
    assert {cell["verdict"] for cell in memcached} <= {"agrees", "same side"}
    assert document["findings"][0].startswith("Memcached is slower or faster than S3 as published in 6 of 6 rows")
    saved = tmp_path / "runs" / f"reproduce-{NAME}-replayed"
    assert {path.name for path in saved.iterdir()} == {f"{NAME}.{kind}" for kind in ("json", "csv", "html")}
    assert "Saved: " in err


def test_refusals(slslab: Run, tmp_path: Path) -> None:
    code, _, err = slslab("reproduce", NAME, "--recordings", tmp_path)
    assert code != 0
    assert "Traceback" not in err
    code, _, err = slslab("reproduce", NAME, "--fidelity", "sampled", "--recordings", tmp_path)
    assert (code, "--recordings needs --fidelity replayed." in err) == (2, True)
    code, _, err = slslab("reproduce", NAME, "--profile", "none")
    assert (code, "none" in err) == (2, True)
