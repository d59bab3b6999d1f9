"""Whether a plan's environments fit into the memory of one host, or of several, and what it keeps into AWS's."""

from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from tests.lab.replay.recordings import make_plan

from slslab.errors import HostError, RequestError
from slslab_lab.runs.admission import admit, admit_hosts, print_warning
from slslab_workers.architecture import Architecture, ResidentPhase, architectures
from slslab_workers.plan import Plan


@dataclass(frozen=True)
class Sized:
    """A plan, as far as it matters here."""

    workers: int
    memory_mb: int = 1000


class Beside:
    """An architecture with all workers resident at once, in addition to 200 MB of other things."""

    def resident_set(self, plan: Any) -> list[ResidentPhase]:
        return [ResidentPhase("training", plan.workers, 200)]


def refusal(workers: int, *budgets_mb: int) -> str:
    """Return with which sentence and hint the plan is refused; empty if it is not."""
    try:
        admit(cast(Plan, Sized(workers)), cast(Architecture, Beside()), budgets_mb)
    except HostError as error:
        return f"{error.message} Hint: {error.hint}"
    return ""


@pytest.mark.parametrize(("workers", "budgets_mb"), [(2, [2200]), (3, [1300, 3000]), (4, [2200, 1000, 1000, 1000])])
def test_what_fits_is_admitted(workers: int, budgets_mb: list[int]) -> None:
    assert refusal(workers, *budgets_mb) == ""


@pytest.mark.parametrize(
    ("workers", "budgets_mb", "there", "hint"),
    [
        (2, [2199], "2,199 MB", "--workers 1 fits, or a smaller --memory."),
        (3, [1900, 2900], "1,900 + 2,900 MB", "--workers 2 fits, or a smaller --memory."),
        (4, [4999, 900, 900], "4,999 + 2 × 900 MB", "--workers 3 fits, or a smaller --memory."),
        (2, [1600, 1600], "2 × 1,600 MB", "--workers 1 fits, or a smaller --memory."),
        (2, [900, 900, 900], "3 × 900 MB", "choose a smaller --memory."),
    ],
)
def test_environments_that_no_host_has_room_for_are_refused(
    workers: int, budgets_mb: list[int], there: str, hint: str
) -> None:
    needed = f"{workers} × 1,000 MB + 200 MB of smaller functions and databases = {workers}"
    said = refusal(workers, *budgets_mb)
    assert said.startswith(f"training needs {workers} environments at once: {needed},200 MB, but there are {there} for")
    assert said.endswith(f"Hint: {hint}")


def test_a_cache_that_may_be_too_small_is_said_before_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    allreduce = architectures()["allreduce"]
    plan = replace(make_plan(), model="mobilenet", workers=512, options=allreduce.complete({"channel": "redis"}))
    said: list[str] = []
    admit_hosts(plan, allreduce, said.append)
    assert said == [
        "Warning: allreduce with 512 workers keeps up to 6.61 GB in one cache.t3.medium, which has 3.09 GiB. "
        "Hint: run it with --channel-host cache.m5.large, which has 6.38 GiB."
    ]
    admit_hosts(plan, allreduce, print_warning)
    assert capsys.readouterr() == ("", said[0] + "\n")
    admit_hosts(replace(plan, workers=2), allreduce, said.append)
    assert len(said) == 1


def test_a_database_that_is_too_small_is_refused() -> None:
    kubeml = architectures()["kubeml"]
    options = kubeml.complete({"tensor-host": "t3.medium"})
    plan = replace(make_plan(), architecture="kubeml", model="resnet18", workers=100, batches=24, options=options)
    with pytest.raises(RequestError, match=r"kubeml with 100 workers keeps .* GB in one t3.medium"):
        admit_hosts(plan, kubeml, print_warning)
