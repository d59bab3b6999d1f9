"""The throughput policy of KubeML's scheduler."""

from typing import Any

from slslab_workers.architecture import architectures
from slslab_workers.kubeml.driver import Scheduler
from slslab_workers.plan import Plan


def make_plan(parallelism: str, **changes: Any) -> Plan:
    values: dict[str, Any] = {"workers": 2, "batches": 4, "epochs": 8, **changes}
    options = architectures()["kubeml"].complete({"parallelism": parallelism})
    return Plan("run", "kubeml", "lenet", "digits", 64, memory_mb=1024, options=options, **values)


def decisions(plan: Plan, *elapsed_s: float) -> list[int]:
    scheduler, found = Scheduler(plan), []
    for seconds in elapsed_s:
        scheduler.record(seconds)
        found.append(scheduler.functions)
    return found


def test_one_more_up_to_five_percent_and_one_fewer_from_twenty() -> None:
    plan = make_plan("throughput")
    assert decisions(plan, 10.0, 10.5, 11.0, 12.0, 13.3, 13.4) == [3, 4, 5, 5, 4, 5]


def test_between_the_two_the_reference_stays() -> None:
    assert decisions(make_plan("throughput"), 10.0, 11.0, 11.9, 12.0) == [3, 3, 3, 2]


def test_there_is_always_one_and_never_more_than_documents() -> None:
    assert decisions(make_plan("throughput"), 1, 2, 4, 8, 16) == [3, 2, 1, 1, 1]
    assert decisions(make_plan("throughput", batches=1), 1, 1, 1) == [2, 2, 2], "there are two documents"


def test_static_parallelism_stays() -> None:
    assert decisions(make_plan("static"), 10, 1, 100) == [2, 2, 2]
