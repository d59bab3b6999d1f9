"""Rules on runs without planted violations: what is right, what they can't judge, and the document."""

from dataclasses import replace
from typing import Any, cast

import pytest
from tests.lab.checks.planting import Planting
from tests.lab.checks.plants import PLANTS

from slslab.run.document import RunDocument
from slslab.run.records import UNREAD
from slslab_lab.checks.run import RULES, check


def test_a_check_as_a_document() -> None:
    planted = PLANTS["a minibatch that was computed twice"]()
    assert planted.event is not None
    document = check(planted.run, ("lost", "twice", "totals")).as_document()
    [violation] = document["violations"]
    assert {**violation, "sentence": ""} == {
        "rule": "twice", "sentence": "", "worker": 1, "epoch": 1, "step": 1, "event": planted.event["event"],
    }  # fmt: skip
    assert {**document, "violations": []} == {
        "run": planted.run.id,
        "holds": False,
        "events": len(planted.run.events),
        "rules": ("lost", "twice"),
        "not_checked": {"totals": "the run's command was killed before it wrote a document"},
        "violations": [],
    }
    held = check(Planting("allreduce", document=True).done())
    assert held.as_document()["holds"] is True
    assert held.rules == RULES


def test_what_a_failed_run_lacks_is_no_violation_and_what_it_has_too_often_is() -> None:
    planting = Planting("allreduce")
    planting.drop(planting.find("object.put", "/gradients/e1/s2/1"))
    planting.drop(planting.find("object.get", "/gradients/e1/s2/1"))
    planting.drop(planting.find("object.delete", "/gradients/e1/s2/1"))
    again = planting.repeat(planting.find("object.get", "/gradients/e0/s1/1"))
    checked = check(planting.done().replace(complete=False))
    assert [(violation.rule, violation.event) for violation in checked.violations] == [("twice", again["event"])]
    left_out = "lost", "counts", "objects", "queues", "environments", "metered"
    reason = "the run didn't finish, so messages, records and removals may be missing"
    assert checked.not_checked.items() >= dict.fromkeys(left_out, reason).items()


@pytest.mark.parametrize(
    "without",
    [
        {"deaths": [{"worker": 1, "epoch": 3, "time": 0.0, "found_by": 0}]},
        {"late": [{"worker": 1, "epoch": 3, "left_out_by": 0}]},
    ],
)
def test_epochs_from_a_peers_failure_or_lateness_on_are_not_judged(without: dict[str, Any]) -> None:
    planting = Planting("spirt", document=True)
    document = planting.run.document
    assert document is not None
    planting.drop(planting.find("tensor.get", ":averaged_gradient_3", worker=1))
    rules = ("lost", "twice", "stray")
    assert {violation.epoch for violation in check(planting.done(), rules).violations} == {3}
    changed = cast(RunDocument, {**document, "details": {**document["details"], **without}})
    checked = check(planting.done(document=changed), rules)
    assert checked.violations == ()
    assert checked.not_checked == {"messages": "a peer or a message was lost or late in epoch 3: epochs from it on"}


def test_of_an_architecture_without_a_protocol_messages_are_not_checked() -> None:
    planting = Planting("scatterreduce")
    planting.find("compute", worker=1, epoch=0, step=2)["end_ns"] += 5_000_000_000
    run = planting.done(plan=replace(planting.run.plan, architecture="of-another-package"))
    checked = check(run)
    assert {violation.rule for violation in checked.violations} == {"overlap", "span"}
    without = {"lost", "twice", "stray", "altered", "early", "barrier", "objects"}
    assert {checked.not_checked[rule] for rule in without} == {"of-another-package is not installed"}
    assert checked.not_checked["counts"] == "of-another-package is not installed"


def test_records_of_earlier_versions_lack_fields() -> None:
    planting = Planting("spirt")
    for record in planting.records:
        for name in UNREAD & record.keys():
            del record[name]
    assert check(planting.done()).violations == ()


def test_a_model_that_another_worker_replaced_at_once_is_told_apart_by_its_etag() -> None:
    """The put before a get in program order is one of its causes, in addition to the put that it got."""
    planting = Planting("s-asp")
    got = planting.find("object.get", "/global", worker=1, epoch=1, step=1)
    puts = [event for event in planting.events if event["op"] == "object.put" and event["resource"] == got["resource"]]
    other = next(put for put in puts if put["etag"] != got["etag"])
    got["causes"] = sorted({*got["causes"], other["event"]})
    assert check(planting.done()).violations == ()
