"""Errors of AWS's APIs: status, type and message as AWS sends them."""

from collections.abc import Mapping, Sequence
from typing import Any


class ServiceError(Exception):
    """An error of an AWS API; `fields` stand beside its message in the body, `headers` beside its type."""

    def __init__(
        self,
        status: int,
        error_type: str,
        message: str,
        fields: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error_type = error_type
        self.message = message
        self.fields = dict(fields or {})
        self.headers = dict(headers or {})


def invalid(message: str) -> ServiceError:
    """Return an InvalidParameterValueException, status 400."""
    return ServiceError(400, "InvalidParameterValueException", message)


def constraint(value: object, name: str, rule: str) -> ServiceError:
    """Return a ValidationException, status 400: a value violates a rule of the API's model."""
    return ServiceError(
        400,
        "ValidationException",
        f"1 validation error detected: Value '{value}' at '{name}' failed to satisfy constraint: {rule}",
    )


def one_of(value: object, name: str, allowed: Sequence[str]) -> None:
    """Raise the ValidationException of a value that is not one of an enumeration's."""
    if value not in allowed:
        raise constraint(value, name, f"Member must satisfy enum value set: [{', '.join(allowed)}]")


def missing(message: str) -> ServiceError:
    """Return a ResourceNotFoundException, status 404."""
    return ServiceError(404, "ResourceNotFoundException", message)


def conflict(message: str) -> ServiceError:
    """Return a ResourceConflictException, status 409."""
    return ServiceError(409, "ResourceConflictException", message)


def throttled(reason: str, retry_after_s: int) -> ServiceError:
    """Return a TooManyRequestsException, status 429, with its reason and the header Retry-After."""
    return ServiceError(
        429,
        "TooManyRequestsException",
        "Rate Exceeded.",
        {"Reason": reason, "retryAfterSeconds": str(retry_after_s)},
        {"Retry-After": str(retry_after_s)},
    )
