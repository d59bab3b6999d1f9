"""Test cases: some always run, others only with `--exhaustive`."""

from collections.abc import Iterable
from typing import Any

import pytest


def chosen(cases: Iterable[Any], *always: object) -> list[Any]:
    """Return cases as a test's parameters; all except the last arguments are marked exhaustive."""
    return [pytest.param(case, marks=() if case in always else pytest.mark.exhaustive) for case in cases]
