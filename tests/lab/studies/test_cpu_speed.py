"""One speed for all rows: half of them are modelled longer than published, half shorter."""

from collections.abc import Mapping

import pytest
from tests.lab.replay.platform import platform

from slslab_lab.studies.replayed_rows import calibrate


def computing(seconds: Mapping[str, float], requests: float = 0.0) -> object:
    return lambda speed: {name: value / speed + requests for name, value in seconds.items()}


def test_median_row() -> None:
    """Rows of 10 s on the host, published 20, 40 and 1000: the middle one decides, a quarter of the host's speed."""
    published = {"a": 20.0, "b": 40.0, "c": 1000.0}
    found = calibrate(published, computing(dict.fromkeys(published, 10.0)))  # type: ignore[arg-type]
    assert found.cpu_speed == pytest.approx(0.25, rel=1e-3)
    assert found.rows == ["a", "b", "c"]


def test_requests_do_not_grow() -> None:
    """Of 12 s published 2 are requests, so 5 CPU seconds may take 10."""
    found = calibrate({"a": 12.0}, computing({"a": 5.0}, requests=2.0))  # type: ignore[arg-type]
    assert found.cpu_speed == pytest.approx(0.5, rel=1e-3)


def test_platform_says_where_its_speed_is_from() -> None:
    found = calibrate({"a": 10.0}, computing({"a": 5.0}))  # type: ignore[arg-type]
    speed = found.apply(platform()).compute.speed
    assert speed.value == found.cpu_speed
    assert "published seconds of 1 rows" in speed.source
    assert speed.status == "assumed"
