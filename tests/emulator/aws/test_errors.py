"""Errors as AWS sends them."""

import pytest

from slslab.aws.errors import ServiceError, conflict, constraint, invalid, missing, throttled


@pytest.mark.parametrize(
    ("error", "status", "error_type"),
    [
        (invalid("why"), 400, "InvalidParameterValueException"),
        (missing("why"), 404, "ResourceNotFoundException"),
        (conflict("why"), 409, "ResourceConflictException"),
    ],
)
def test_status_type_and_message(error: ServiceError, status: int, error_type: str) -> None:
    assert (error.status, error.error_type, error.message, str(error)) == (status, error_type, "why", "why")
    assert (error.fields, error.headers) == ({}, {})


def test_a_violated_rule_names_value_and_member() -> None:
    error = constraint(0, "memorySize", "Member must have value greater than or equal to 128")
    assert (error.status, error.error_type) == (400, "ValidationException")
    assert error.message == (
        "1 validation error detected: Value '0' at 'memorySize' failed to satisfy constraint: "
        "Member must have value greater than or equal to 128"
    )


def test_a_long_value_is_shown_by_its_beginning() -> None:
    assert constraint("x" * 5000, "f", "rule").message.count("x") == 1000
    assert "Value null at 'f'" in constraint(None, "f", "rule").message


def test_a_throttle_says_why_and_when_to_try_again() -> None:
    error = throttled("ConcurrentInvocationLimitExceeded", 2)
    assert (error.status, error.headers) == (429, {"Retry-After": "2"})
    assert error.fields == {"Reason": "ConcurrentInvocationLimitExceeded", "retryAfterSeconds": "2"}
