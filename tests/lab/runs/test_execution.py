"""What is refused before a run begins, and the hosts of databases and queues that are billed."""

from pathlib import Path
from typing import Any

import pytest

from slslab.cli.terminal import Bar
from slslab.errors import RequestError
from slslab.run.bill import load_book
from slslab_lab.runs import execution
from slslab_lab.runs.admission import admit_concurrency
from slslab_lab.runs.execution import check_hosts, run_plan
from slslab_lab.runs.planning import architectures, make_plan
from slslab_lab.runs.system import host_meter
from slslab_workers.architecture import Requirements
from slslab_workers.plan import PlanError


def requirements(name: str, **options: Any) -> Requirements:
    architecture = architectures()[name]
    plan = make_plan(architecture, {"dataset": "digits", "workers": 3}, options)
    return architecture.requirements(plan)


def test_databases_and_queues_are_billed_by_the_hosts_that_the_options_name() -> None:
    assert requirements("allreduce").hosts == ()
    assert requirements("mlless").hosts == ("m5.large", "mq.t3.micro")
    assert requirements("mlless", store="s3").hosts == ("mq.t3.micro",)
    assert requirements("spirt").hosts == ("m5.large", "m5.large", "m5.large", "mq.t3.micro")
    chosen = requirements("mlless", **{"tensor-host": "t4g.medium", "queue-host": "mq.m5.large"})
    assert chosen.hosts == ("t4g.medium", "mq.m5.large")
    records: list[dict[str, Any]] = []
    host_meter(chosen, records.append)()
    assert [one["type"] for one in records if one["record"] == "begin"] == ["t4g.medium", "mq.m5.large"]
    assert [one["resource"] for one in records if one.get("op") == "host.run"] == ["t4g.medium", "mq.m5.large"]


@pytest.mark.parametrize("option", ["tensor-host", "queue-host"])
def test_a_host_that_the_book_cannot_bill_is_refused_unless_it_is_the_default(option: str) -> None:
    aws, paper = load_book("aws-us-east-1"), load_book("paper-2025")
    for book in (aws, paper):
        check_hosts(requirements("spirt"), book)
        check_hosts(requirements("gpu"), book)
    check_hosts(requirements("spirt", **{option: "t4g.medium"}), aws)
    with pytest.raises(RequestError, match=r"The price book aws-us-east-1 has no instance type 'm5\.tiny'\."):
        check_hosts(requirements("spirt", **{option: "m5.tiny"}), aws)
    with pytest.raises(RequestError, match="has no instance type"):
        check_hosts(requirements("gpu", **{"instance-type": "g9.huge"}), aws)


@pytest.mark.parametrize(
    ("name", "values", "refused", "says"),
    [
        (
            "allreduce",
            {"account": "new", "workers": 12},
            RequestError,
            "needs 12 functions at once, but the account new allows only 10 concurrent functions.",
        ),
        (
            "spirt",
            {"account": "new", "batches": 6},
            RequestError,
            "spirt needs 12 functions at once, but the account new allows",
        ),
        (
            "mlless",
            {"account": "new", "workers": 10},
            RequestError,
            "mlless needs 11 functions at once, but the account new allows",
        ),
        (
            "kubeml",
            {"account": "new", "workers": 10},
            RequestError,
            "kubeml needs 11 functions at once, but the account new allows",
        ),
        (
            "allreduce",
            {"account": "new", "workers": 10, "dataset": "cifar10"},
            PlanError,
            "There is no CIFAR-10 archive in ",
        ),
        ("allreduce", {"dataset": "folder:/nowhere"}, PlanError, "/nowhere is not a directory."),
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(
    name: str,
    values: dict[str, Any],
    refused: type[Exception],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLSLAB_DATASETS", str(tmp_path))
    monkeypatch.setattr(execution, "find_system", lambda *_: pytest.fail("the system was looked for"))
    with pytest.raises(refused, match=says):
        run_plan(
            name,
            {"dataset": "digits", "workers": 2, **values},
            {},
            out=tmp_path / "run",
            book="aws-us-east-1",
            progress=Bar(),
        )
    assert not (tmp_path / "run").exists()


def test_instances_are_not_limited_by_the_concurrency_of_an_account() -> None:
    plan = make_plan(architectures()["gpu"], {"dataset": "digits", "workers": 12, "account": "new"}, {})
    admit_concurrency(plan, architectures()["gpu"])
