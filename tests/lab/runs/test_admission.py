"""Whether a plan's environments fit into the memory of one host, or of several."""

from dataclasses import dataclass
from typing import Any, cast

import pytest

from slslab.errors import HostError
from slslab_lab.runs.admission import admit
from slslab_workers.architecture import Architecture, ResidentPhase
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
