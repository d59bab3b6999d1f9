"""Bodies of requests to AWS's APIs, checked by AWS's own models of the operations."""

import json
from functools import cache
from typing import Any

from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from slslab.aws.errors import ServiceError


def members(service: str, operation: str, body: bytes) -> tuple[dict[str, Any], list[str]]:
    """Return the members of a body, and how they violate the model of the operation, a line for each violation.

    Raises ServiceError (SerializationException) for a body that is not a JSON object.
    """
    try:
        document = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise ServiceError(400, "SerializationException", f"The request body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ServiceError(400, "SerializationException", "The request body must be a JSON object")
    given = {key: value for key, value in document.items() if value is not None}
    report = ParamValidator().validate(given, _input_shape(service, operation)).generate_report()
    return given, report.splitlines()


def own_models() -> Loader:
    """Return a loader of botocore's own models of services: the user's ~/.aws/models may have others of the same."""
    return Loader([Loader.BUILTIN_DATA_PATH], include_default_search_paths=False)


@cache
def _input_shape(service: str, operation: str) -> Any:
    """Return the input of an operation in botocore's model of a service."""
    return _service_model(service).operation_model(operation).input_shape


@cache
def _service_model(service: str) -> Any:
    return ServiceModel(own_models().load_service_model(service, "service-2"), service)
