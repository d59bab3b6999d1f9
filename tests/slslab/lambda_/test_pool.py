"""The lease of an environment, as far as it is not seen from outside."""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slslab.aws.errors import ServiceError
from slslab.lambda_.pool import Pool


def test_a_fault_at_the_lease_fails_the_invocation_and_nothing_after_it(
    deploy: Callable[..., str], invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    leases: list[tuple[str, str]] = []

    async def fail(function: str, request_id: str) -> None:
        leases.append((function, request_id))
        if len(leases) == 1:
            raise ServiceError(500, "ServiceException", "as injected")

    name = deploy("def handler(event, context):\n    return context.aws_request_id\n")
    monkeypatch.setattr(Pool, "fault", fail)
    with pytest.raises(ClientError, match="as injected"):
        invoke(name)
    assert invoke(name).payload == leases[1][1]
    assert [function for function, _ in leases] == [name, name]
