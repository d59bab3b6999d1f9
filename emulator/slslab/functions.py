"""Functions: their configuration and code, validated as AWS validates them.

Error types, status codes and constraints follow the Lambda API reference, CreateFunction and
UpdateFunctionConfiguration: https://docs.aws.amazon.com/lambda/latest/api/API_CreateFunction.html
"""

import base64
import hashlib
import io
import re
import shutil
import uuid
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ACCOUNT = "000000000000"
REGION = "us-east-1"
HOT_RELOAD_BUCKET = "hot-reload"
UNZIPPED_LIMIT_BYTES = 262_144_000
ENVIRONMENT_LIMIT_BYTES = 4096
RUNTIMES = tuple(f"python3.{minor}" for minor in range(8, 15))
MEMORY_MB = (128, 10_240)
TIMEOUT_S = (1, 900)
EPHEMERAL_MB = (512, 10_240)
EVENT_RETRIES = (0, 2)
EVENT_AGE_S = (60, 21_600)
NAME = re.compile(r"[a-zA-Z0-9-_]{1,64}")
ARN = re.compile(
    r"(arn:aws:lambda:[a-z0-9-]+:(?P<account>\d{12}):)?(\d{12}:)?(function:)?(?P<name>[^:]+)(:(?P<qualifier>[^:]+))?"
)


class ServiceError(Exception):
    """An error of the Lambda API: HTTP status, error type and message as AWS sends them."""

    def __init__(self, status: int, error_type: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.error_type = error_type
        self.message = message


def invalid(message: str) -> ServiceError:
    """InvalidParameterValueException, status 400."""
    return ServiceError(400, "InvalidParameterValueException", message)


def function_arn(name: str) -> str:
    """The ARN of the unqualified function."""
    return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}"


def not_found(name: str) -> ServiceError:
    """ResourceNotFoundException, status 404."""
    return ServiceError(404, "ResourceNotFoundException", f"Function not found: {function_arn(name)}")


@dataclass(frozen=True)
class EventInvokeConfig:
    """What becomes of an asynchronous invocation that fails (PutFunctionEventInvokeConfig)."""

    maximum_retry_attempts: int = 2
    maximum_event_age_s: int = 21_600
    on_failure: str | None = None
    last_modified: float = 0.0

    def as_document(self, name: str) -> dict[str, Any]:
        """The API's shape."""
        destination = {"Destination": self.on_failure} if self.on_failure else {}
        return {
            "LastModified": self.last_modified,
            "FunctionArn": f"{function_arn(name)}:$LATEST",
            "MaximumRetryAttempts": self.maximum_retry_attempts,
            "MaximumEventAgeInSeconds": self.maximum_event_age_s,
            "DestinationConfig": {"OnSuccess": {}, "OnFailure": destination},
        }


@dataclass(frozen=True)
class Function:
    """A function's configuration and where its code lies."""

    name: str
    handler: str
    runtime: str
    role: str
    code_directory: Path
    code_size: int
    code_sha256: str
    memory_mb: int = 128
    timeout_s: int = 3
    ephemeral_mb: int = 512
    description: str = ""
    architecture: str = "x86_64"
    variables: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    last_modified: str = ""
    revision: str = ""
    event_invoke: EventInvokeConfig | None = None

    @property
    def arn(self) -> str:
        return function_arn(self.name)

    def configuration(self) -> dict[str, Any]:
        """FunctionConfiguration of the API."""
        document: dict[str, Any] = {
            "FunctionName": self.name,
            "FunctionArn": self.arn,
            "Runtime": self.runtime,
            "Role": self.role,
            "Handler": self.handler,
            "CodeSize": self.code_size,
            "Description": self.description,
            "Timeout": self.timeout_s,
            "MemorySize": self.memory_mb,
            "LastModified": self.last_modified,
            "CodeSha256": self.code_sha256,
            "Version": "$LATEST",
            "TracingConfig": {"Mode": "PassThrough"},
            "RevisionId": self.revision,
            "State": "Active",
            "LastUpdateStatus": "Successful",
            "PackageType": "Zip",
            "Architectures": [self.architecture],
            "EphemeralStorage": {"Size": self.ephemeral_mb},
            "SnapStart": {"ApplyOn": "None", "OptimizationStatus": "Off"},
            "LoggingConfig": {"LogFormat": "Text", "LogGroup": f"/aws/lambda/{self.name}"},
        }
        if self.variables:
            document["Environment"] = {"Variables": dict(self.variables)}
        return document


class Functions:
    """The functions of one emulator: create, get, list, update, delete."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._functions: dict[str, Function] = {}

    def get(self, name_or_arn: str) -> Function:
        """The function by name, partial ARN or ARN; ResourceNotFoundException when there is none."""
        name = parse_name(name_or_arn)
        if name not in self._functions:
            raise not_found(name)
        return self._functions[name]

    def list(self) -> list[Function]:
        """All functions, by name."""
        return [self._functions[name] for name in sorted(self._functions)]

    def create(self, request: Mapping[str, Any]) -> Function:
        """CreateFunction: validates, unpacks the code, and registers the function as active."""
        name = parse_name(_required(request, "FunctionName"))
        if not NAME.fullmatch(name):
            raise _constraint(name, "functionName", "Member must satisfy regular expression pattern: [a-zA-Z0-9-_]+")
        if name in self._functions:
            raise ServiceError(409, "ResourceConflictException", f"Function already exist: {name}")
        if request.get("PackageType", "Zip") != "Zip":
            raise invalid("Container images need the Docker environment; package the function as a zip archive.")
        settings = _settings(request)
        for required, key in (("Handler", "handler"), ("Runtime", "runtime"), ("Role", "role")):
            settings.setdefault(key, _required(request, required))
        directory, size, digest = self._store_code(name, request.get("Code") or {})
        function = Function(
            name=name,
            code_directory=directory,
            code_size=size,
            code_sha256=digest,
            tags=dict(request.get("Tags") or {}),
            architecture=_architecture(request),
            **settings,
        )
        return self._put(function)

    def update_configuration(self, name_or_arn: str, request: Mapping[str, Any]) -> Function:
        """UpdateFunctionConfiguration: environments started from now on have the new configuration."""
        function = self.get(name_or_arn)
        revision = request.get("RevisionId")
        if revision is not None and revision != function.revision:
            message = "The Revision Id provided does not match the latest Revision Id."
            raise ServiceError(412, "PreconditionFailedException", message)
        return self._put(replace(function, **_settings(request)))

    def put_event_invoke(self, name_or_arn: str, request: Mapping[str, Any], keep: bool) -> Function:
        """PutFunctionEventInvokeConfig, or UpdateFunctionEventInvokeConfig when `keep` retains what is not named."""
        function = self.get(name_or_arn)
        base = function.event_invoke if keep and function.event_invoke else EventInvokeConfig()
        destinations = request.get("DestinationConfig") or {}
        if (destinations.get("OnSuccess") or {}).get("Destination"):
            raise invalid("On-success destinations are not emulated; on-failure destinations may name an S3 bucket.")
        on_failure = (destinations.get("OnFailure") or {}).get("Destination", base.on_failure)
        if on_failure and not on_failure.startswith("arn:aws:s3:::"):
            raise invalid(f"The destination {on_failure} is not emulated; name an S3 bucket (arn:aws:s3:::BUCKET).")
        config = EventInvokeConfig(
            _bounded(request, "MaximumRetryAttempts", base.maximum_retry_attempts, EVENT_RETRIES),
            _bounded(request, "MaximumEventAgeInSeconds", base.maximum_event_age_s, EVENT_AGE_S),
            on_failure,
            datetime.now(UTC).timestamp(),
        )
        self._functions[function.name] = replace(function, event_invoke=config)
        return self._functions[function.name]

    def delete_event_invoke(self, name_or_arn: str) -> None:
        """DeleteFunctionEventInvokeConfig."""
        function = self.get(name_or_arn)
        self._functions[function.name] = replace(function, event_invoke=None)

    def delete(self, name_or_arn: str) -> Function:
        """DeleteFunction: the function and its unpacked code are gone."""
        function = self.get(name_or_arn)
        del self._functions[function.name]
        if function.code_directory.is_relative_to(self._home):
            shutil.rmtree(function.code_directory, ignore_errors=True)
        return function

    def _put(self, function: Function) -> Function:
        now = datetime.now(UTC)
        stamp = now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}+0000"
        stored = replace(function, last_modified=stamp, revision=str(uuid.uuid4()))
        self._functions[function.name] = stored
        return stored

    def _store_code(self, name: str, code: Mapping[str, Any]) -> tuple[Path, int, str]:
        if code.get("S3Bucket") == HOT_RELOAD_BUCKET:
            return _local_directory(code.get("S3Key", ""))
        if "ZipFile" not in code:
            raise invalid(
                "Code needs ZipFile, or S3Bucket 'hot-reload' with the absolute path of a local directory as S3Key."
            )
        try:
            archive = base64.b64decode(code["ZipFile"], validate=True)
            with zipfile.ZipFile(io.BytesIO(archive)) as package:
                unzipped = sum(entry.file_size for entry in package.infolist())
                if unzipped > UNZIPPED_LIMIT_BYTES:
                    raise invalid(f"Unzipped size must be smaller than {UNZIPPED_LIMIT_BYTES} bytes")
                directory = self._home / f"{name}-{uuid.uuid4().hex[:12]}"
                directory.mkdir(parents=True)
                package.extractall(directory)
        except (ValueError, zipfile.BadZipFile) as error:
            message = "Could not unzip uploaded file. Please check your file, then try to upload again."
            raise invalid(message) from error
        return directory, len(archive), base64.b64encode(hashlib.sha256(archive).digest()).decode()


def parse_name(name_or_arn: str) -> str:
    """The function's name out of a name, partial ARN or ARN; qualifiers other than $LATEST do not exist yet."""
    match = ARN.fullmatch(name_or_arn)
    if match is None:
        raise _constraint(name_or_arn, "functionName", "Member must satisfy the form of a function name or ARN")
    if match["qualifier"] not in (None, "$LATEST"):
        raise ServiceError(404, "ResourceNotFoundException", f"Function not found: {name_or_arn}")
    return match["name"]


def _settings(request: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration that the request names, checked, under the names of `Function`'s fields."""
    settings: dict[str, Any] = {}
    for key, field_name in (("Handler", "handler"), ("Role", "role"), ("Description", "description")):
        if key in request:
            settings[field_name] = str(request[key])
    if "Runtime" in request:
        if request["Runtime"] not in RUNTIMES:
            allowed = ", ".join(RUNTIMES)
            raise invalid(f"The runtime {request['Runtime']} is not emulated; choose one of {allowed}.")
        settings["runtime"] = request["Runtime"]
    if "MemorySize" in request:
        settings["memory_mb"] = _bounded(request, "MemorySize", 128, MEMORY_MB)
    if "Timeout" in request:
        settings["timeout_s"] = _bounded(request, "Timeout", 3, TIMEOUT_S)
    if "EphemeralStorage" in request:
        settings["ephemeral_mb"] = _bounded(request["EphemeralStorage"] or {}, "Size", 512, EPHEMERAL_MB)
    if "Environment" in request:
        variables = (request["Environment"] or {}).get("Variables") or {}
        size = sum(len(name.encode()) + len(value.encode()) for name, value in variables.items())
        if size > ENVIRONMENT_LIMIT_BYTES:
            raise invalid(
                "Lambda was unable to configure your environment variables because the environment variables you "
                "have provided exceeded the 4KB limit."
            )
        reserved = sorted(name for name in variables if name in RESERVED_VARIABLES)
        if reserved:
            raise invalid(
                "Lambda was unable to configure your environment variables because the environment variables you "
                f"have provided contains reserved keys that are currently not supported for modification. "
                f"Reserved keys used in this request: {', '.join(reserved)}"
            )
        settings["variables"] = dict(variables)
    return settings


# documented: configuration-envvars.html, "Defined runtime environment variables", reserved ones.
RESERVED_VARIABLES = frozenset(
    """_HANDLER _X_AMZN_TRACE_ID AWS_DEFAULT_REGION AWS_REGION AWS_EXECUTION_ENV AWS_LAMBDA_FUNCTION_NAME
    AWS_LAMBDA_FUNCTION_MEMORY_SIZE AWS_LAMBDA_FUNCTION_VERSION AWS_LAMBDA_INITIALIZATION_TYPE
    AWS_LAMBDA_LOG_GROUP_NAME AWS_LAMBDA_LOG_STREAM_NAME AWS_ACCESS_KEY AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    AWS_SESSION_TOKEN AWS_LAMBDA_RUNTIME_API LAMBDA_TASK_ROOT LAMBDA_RUNTIME_DIR""".split()
)


def _architecture(request: Mapping[str, Any]) -> str:
    architectures = request.get("Architectures") or ["x86_64"]
    if len(architectures) != 1 or architectures[0] not in ("x86_64", "arm64"):
        raise _constraint(architectures, "architectures", "Member must satisfy enum value set: [x86_64, arm64]")
    return str(architectures[0])


def _required(request: Mapping[str, Any], key: str) -> str:
    if not request.get(key):
        raise _constraint(None, key[0].lower() + key[1:], "Member must not be null")
    return str(request[key])


def _bounded(request: Mapping[str, Any], key: str, default: int, bounds: tuple[int, int]) -> int:
    value = request.get(key, default)
    name = key[0].lower() + key[1:]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ServiceError(400, "SerializationException", f"{key} must be an integer")
    if value < bounds[0]:
        raise _constraint(value, name, f"Member must have value greater than or equal to {bounds[0]}")
    if value > bounds[1]:
        raise _constraint(value, name, f"Member must have value less than or equal to {bounds[1]}")
    return value


def _constraint(value: object, name: str, rule: str) -> ServiceError:
    message = f"1 validation error detected: Value '{value}' at '{name}' failed to satisfy constraint: {rule}"
    return ServiceError(400, "ValidationException", message)


def _local_directory(path: str) -> tuple[Path, int, str]:
    directory = Path(path)
    if not directory.is_absolute() or not directory.is_dir():
        raise invalid(f"The code directory {path!r} is not an absolute path of an existing directory.")
    return directory, sum(f.stat().st_size for f in directory.rglob("*") if f.is_file()), "hot-reload"
