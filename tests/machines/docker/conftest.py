"""The fixtures of the suite with containers in place of processes; without an engine or an image they skip."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.containers import need_containers

from slslab.aws.limits import lambda_limits
from slslab.lambda_.emulator import Emulator


@pytest.fixture(scope="session")
def emulator_settings() -> dict[str, Any]:
    """Containers; retries within moments instead of minutes."""
    need_containers()
    return {
        "environment": "docker",
        "limits": lambda_limits().changed(event_retry_base_s=0.01, event_throttle_s=0.01),
    }


@pytest.fixture(scope="session")
def emulator(emulator_settings: dict[str, Any]) -> Iterator[Emulator]:
    """One emulator for all tests of containers: the plugin's, if another test has it already, has processes."""
    with Emulator(**emulator_settings) as running:
        yield running
