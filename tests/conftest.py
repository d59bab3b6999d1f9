"""What all test modules share; the fixtures themselves are the pytest plugin's (`slslab.testing`)."""

from typing import Any

import pytest

from slslab.limits import lambda_limits


@pytest.fixture(scope="session")
def emulator_settings() -> dict[str, Any]:
    """Retries within moments instead of minutes."""
    return {"limits": lambda_limits().changed(event_retry_base_s=0.01, event_throttle_s=0.01)}
