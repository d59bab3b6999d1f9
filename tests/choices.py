"""Cases of a test of which some are always run, and the others with `--exhaustive`."""

from collections.abc import Iterable
from typing import Any

import pytest


def chosen(cases: Iterable[Any], *always: object) -> list[Any]:
    """Return cases as a test's parameters; those that are not among the last arguments are marked exhaustive."""
    return [pytest.param(case, marks=() if case in always else pytest.mark.exhaustive) for case in cases]
