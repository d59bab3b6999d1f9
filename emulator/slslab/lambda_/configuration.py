"""Check a function's configuration as AWS checks it, in requests that comply with the API's model (`aws.requests`).

Constraints follow the Lambda API reference, CreateFunction and UpdateFunctionConfiguration:
https://docs.aws.amazon.com/lambda/latest/api/API_CreateFunction.html
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slslab.aws.arns import function_arn
from slslab.aws.errors import constraint, invalid
from slslab.aws.limits import Limits, Range
from slslab.lambda_.packages import Code

LATEST = "$LATEST"
RUNTIMES = tuple(f"python3.{minor}" for minor in range(8, 15))
NAME = re.compile(r"[a-zA-Z0-9-_]{1,64}")
ROLE = re.compile(r"arn:(aws[a-zA-Z-]*)?:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+")
# documented: configuration-envvars.html, "Defined runtime environment variables", reserved ones.
RESERVED_VARIABLES = frozenset(
    """_HANDLER _X_AMZN_TRACE_ID AWS_DEFAULT_REGION AWS_REGION AWS_EXECUTION_ENV AWS_LAMBDA_FUNCTION_NAME
    AWS_LAMBDA_FUNCTION_MEMORY_SIZE AWS_LAMBDA_FUNCTION_VERSION AWS_LAMBDA_INITIALIZATION_TYPE
    AWS_LAMBDA_LOG_GROUP_NAME AWS_LAMBDA_LOG_STREAM_NAME AWS_ACCESS_KEY AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    AWS_SESSION_TOKEN AWS_LAMBDA_RUNTIME_API LAMBDA_TASK_ROOT LAMBDA_RUNTIME_DIR""".split()
)


@dataclass(frozen=True)
class ImageConfig:
    """What a function starts instead of its image's own settings; an empty field keeps the image's."""

    entry_point: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    working_directory: str = ""

    def document(self) -> dict[str, Any]:
        """Return the API's ImageConfig."""
        values = {
            "EntryPoint": list(self.entry_point),
            "Command": list(self.command),
            "WorkingDirectory": self.working_directory,
        }
        return {name: value for name, value in values.items() if value}


@dataclass(frozen=True)
class Function:
    """One version of a function: its configuration and its code."""

    name: str
    handler: str
    runtime: str
    role: str
    code: Code
    memory_mb: int
    timeout_s: int
    ephemeral_mb: int
    version: str = LATEST
    description: str = ""
    architecture: str = "x86_64"
    variables: Mapping[str, str] = field(default_factory=dict)
    image_config: ImageConfig = field(default_factory=ImageConfig)
    layers: tuple[Path, ...] = ()
    last_modified: str = ""
    revision: str = ""

    def document(self, qualifier: str | None = None) -> dict[str, Any]:
        """Return the API's FunctionConfiguration; its ARN has the qualifier of the request."""
        document: dict[str, Any] = {
            "FunctionName": self.name,
            "FunctionArn": function_arn(self.name, qualifier),
            "Role": self.role,
            "CodeSize": self.code.size,
            "Description": self.description,
            "Timeout": self.timeout_s,
            "MemorySize": self.memory_mb,
            "LastModified": self.last_modified,
            "CodeSha256": self.code.sha256,
            "Version": self.version,
            "TracingConfig": {"Mode": "PassThrough"},
            "RevisionId": self.revision,
            "State": "Active",
            "LastUpdateStatus": "Successful",
            "PackageType": "Zip" if self.code.image is None else "Image",
            "Architectures": [self.architecture],
            "EphemeralStorage": {"Size": self.ephemeral_mb},
            "SnapStart": {"ApplyOn": "None", "OptimizationStatus": "Off"},
            "LoggingConfig": {"LogFormat": "Text", "LogGroup": f"/aws/lambda/{self.name}"},
        }
        if self.code.image is None:
            document |= {"Runtime": self.runtime, "Handler": self.handler}
        elif configured := self.image_config.document():
            document["ImageConfigResponse"] = {"ImageConfig": configured}
        if self.variables:
            document["Environment"] = {"Variables": dict(self.variables)}
        return document


def settings(request: Mapping[str, Any], limits: Limits, *, defaults: bool = False) -> dict[str, Any]:
    """Check the configuration in a request and return it under the names of `Function`'s fields.

    With `defaults` (CreateFunction) a member that is missing gets its default; one without a default is required.
    """
    checks: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "Handler": ("handler", str),
        "Role": ("role", str),
        "Description": ("description", str),
        "Runtime": ("runtime", _runtime),
        "MemorySize": ("memory_mb", lambda _value: bounded(request, "MemorySize", limits.memory_mb)),
        "Timeout": ("timeout_s", lambda _value: bounded(request, "Timeout", limits.timeout_s)),
        "EphemeralStorage": ("ephemeral_mb", lambda value: bounded(value or {}, "Size", limits.ephemeral_mb)),
        "Environment": ("variables", lambda value: _variables((value or {}).get("Variables") or {}, limits)),
        "Architectures": ("architecture", lambda value: str(value[0])),
        "ImageConfig": ("image_config", lambda value: _image_config(value or {})),
    }
    with_default = ("MemorySize", "Timeout", "EphemeralStorage") if defaults else ()
    checked = _packaging(request) if defaults else {}
    for member, (name, check) in checks.items():
        if member in request or member in with_default:
            checked[name] = check(request.get(member))
    if request.get("Layers"):
        raise invalid("Layers are not emulated: the host's packages take their place (see `slslab doctor`).")
    return checked


def _packaging(request: Mapping[str, Any]) -> dict[str, Any]:
    """Check what only one kind of package has or must have, with AWS's messages; return the defaults of images."""
    kind, of_image = request.get("PackageType", "Zip"), bool((request.get("Code") or {}).get("ImageUri"))
    required(request, "Role")
    if kind == "Zip":
        if of_image:
            raise invalid("Please do not provide ImageUri when creating a function with packageType Zip.")
        for name in ("Handler", "Runtime"):
            required(request, name)
        check_kind(request, of_image=False)
        return {}
    if not of_image:
        raise invalid("Please provide ImageUri when creating a function with packageType Image.")
    check_kind(request, of_image=True)
    return {"handler": "", "runtime": ""}


def check_kind(request: Mapping[str, Any], *, of_image: bool) -> None:
    """Raise InvalidParameterValueException for a setting that only functions of the other kind of package have."""
    if of_image and any(request.get(name) for name in ("Handler", "Runtime", "Layers")):
        raise invalid(
            "Please don't provide Handler or Runtime or Layer when the intended function PackageType is Image."
        )
    if not of_image and request.get("ImageConfig"):
        # assumed: the sentence follows AWS's other one.
        raise invalid("Please don't provide ImageConfig when the intended function PackageType is Zip.")


def _image_config(document: Mapping[str, Any]) -> ImageConfig:
    return ImageConfig(
        tuple(document.get("EntryPoint") or ()),
        tuple(document.get("Command") or ()),
        str(document.get("WorkingDirectory") or ""),
    )


def required(request: Mapping[str, Any], key: str) -> str:
    """Return a member that the request must have."""
    if not request.get(key):
        raise constraint(None, _camel(key), "Member must not be null")
    return str(request[key])


def bounded(request: Mapping[str, Any], key: str, allowed: Range) -> int:
    """Return an integer member within its range, or its default."""
    value: int = request.get(key, allowed.default)
    if value < allowed.minimum:
        raise constraint(value, _camel(key), f"Member must have value greater than or equal to {allowed.minimum}")
    if value > allowed.maximum:
        raise constraint(value, _camel(key), f"Member must have value less than or equal to {allowed.maximum}")
    return value


def _runtime(value: object) -> str:
    if value not in RUNTIMES:
        raise invalid(
            f"Value {value} at 'runtime' failed to satisfy constraint: Member must satisfy enum value set: "
            f"[{', '.join(RUNTIMES)}] or be a valid ARN (slslab emulates Python functions; others need the Docker "
            "environment)"
        )
    return str(value)


def _variables(variables: Mapping[str, str], limits: Limits) -> dict[str, str]:
    unable = "Lambda was unable to configure your environment variables because the environment variables you have "
    size = sum(len(name.encode()) + len(value.encode()) for name, value in variables.items())
    if size > limits.environment_bytes:
        raise invalid(
            f"{unable}provided exceeded the {limits.environment_bytes // 1024}KB limit. String measured: "
            f"{dict(variables)}"[:1000]
        )
    reserved = sorted(RESERVED_VARIABLES.intersection(variables))
    if reserved:
        raise invalid(
            f"{unable}provided contains reserved keys that are currently not supported for modification. "
            f"Reserved keys used in this request: {', '.join(reserved)}"
        )
    return dict(variables)


def _camel(key: str) -> str:
    return key[0].lower() + key[1:]
