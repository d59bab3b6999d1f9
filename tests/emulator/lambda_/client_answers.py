"""Whole answers of the Lambda API as a client has them, errors too."""

from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError


def answer(call: Callable[..., Any], **members: Any) -> tuple[int, Any]:
    """Status and members of an answer, or code and message of its error."""
    try:
        found = call(**members)
    except ClientError as error:
        response = error.response
        return response["ResponseMetadata"]["HTTPStatusCode"], (
            response["Error"]["Code"],
            response["Error"]["Message"],
        )
    return found.pop("ResponseMetadata")["HTTPStatusCode"], found


def invalid(message: str) -> tuple[int, tuple[str, str]]:
    """An InvalidParameterValueException."""
    return 400, ("InvalidParameterValueException", message)


def missing(message: str) -> tuple[int, tuple[str, str]]:
    """A ResourceNotFoundException."""
    return 404, ("ResourceNotFoundException", message)
