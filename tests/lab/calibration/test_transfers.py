"""CPU time of transfers through TLS: more than adding takes, without anybody else's work."""

import pytest

from slslab_lab.calibration.transfers import measure_transfers

pytestmark = pytest.mark.server


def test_transfers_are_measured_through_tls() -> None:
    seen: list[tuple[str, int, int]] = []
    found = measure_transfers(lambda *progress: seen.append(progress), elements=250_000, rounds=3)
    assert set(found["ms_per_mb"]) == {"get", "put"}
    assert min(found["ms_per_mb"].values()) > found["add_ms_per_mb"] > 0
    assert seen[-1] == ("measuring transfers through TLS", 4, 4)
