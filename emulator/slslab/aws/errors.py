"""Build errors of AWS's APIs: status, type and message as AWS sends them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

# The most characters of a wrong value that a message repeats.
SHOWN = 1000


class ServiceError(Exception):
    """An error of an AWS API; `fields` are further fields of its body, and `headers` further headers.

    With `typed` the body has `Type` (User or Service).
    """

    def __init__(
        self,
        status: int,
        error_type: str,
        message: str,
        fields: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        typed: bool = True,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error_type = error_type
        self.message = message
        self.fields = dict(fields or {})
        self.headers = dict(headers or {})
        self.typed = typed


def invalid(message: str, *, typed: bool = True) -> ServiceError:
    """Return an InvalidParameterValueException, status 400; some of AWS's have no Type in the body (recorded)."""
    return ServiceError(400, "InvalidParameterValueException", message, typed=typed)


def constraint(value: object, name: str, rule: str) -> ServiceError:
    """Return a ValidationException, status 400, for a value that violates a rule of the API's model."""
    return violated([violation(value, name, rule)])


def violation(value: object, name: str, rule: str) -> str:
    """Return the part of a ValidationException about one member, with the beginning of a long value."""
    at = f"'{as_java(value)[:SHOWN]}' at '{name}'" if value is not None else f"null at '{name}'"
    return f"Value {at} failed to satisfy constraint: {rule}"


def as_java(value: object) -> str:
    """Return a value as AWS's messages show it, in Java's notation: `[a, b]`, `{key=0.5}` (recorded)."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}={as_java(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_java, value))}]"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def violated(violations: Sequence[str]) -> ServiceError:
    """Return a ValidationException, status 400, for these violations."""
    errors = "1 validation error" if len(violations) == 1 else f"{len(violations)} validation errors"
    return ServiceError(400, "ValidationException", f"{errors} detected: {'; '.join(violations)}")


def missing(message: str) -> ServiceError:
    """Return a ResourceNotFoundException, status 404."""
    return ServiceError(404, "ResourceNotFoundException", message)


def conflict(message: str) -> ServiceError:
    """Return a ResourceConflictException, status 409."""
    return ServiceError(409, "ResourceConflictException", message)


def throttled(reason: str, retry_after_s: int) -> ServiceError:
    """Return a TooManyRequestsException, status 429, with its reason and the header Retry-After.

    The body also says when to try again, unless a reserved concurrency is used up (recorded).
    """
    seconds = str(retry_after_s)
    again = {} if reason.startswith("Reserved") else {"retryAfterSeconds": seconds}
    return ServiceError(
        429, "TooManyRequestsException", "Rate Exceeded.", {"Reason": reason, **again}, {"Retry-After": seconds}
    )
