"""Check a function's configuration as AWS checks it, in requests that comply with the API's model (`aws.requests`).

Constraints follow the Lambda API reference, CreateFunction and UpdateFunctionConfiguration:
https://docs.aws.amazon.com/lambda/latest/api/API_CreateFunction.html

Some settings are checked, stored and returned as on AWS, but have no effect here. A function that has one says so once
in its log; `slslab limits` lists all.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slslab.aws.arns import REGION
from slslab.aws.errors import constraint, invalid
from slslab.aws.limits import WITHOUT_EFFECT, Limits, Range
from slslab.aws.requests import input_shape
from slslab.lambda_.layers import LayerVersion
from slslab.lambda_.packages import Code
from slslab.lambda_.references import LATEST, function_arn

RUNTIMES = tuple(f"python3.{minor}" for minor in range(8, 16))
# assumed: AWS rejects all of these as ended (recorded for eight, June 2024); its model still contains them.
ENDED = frozenset(
    """python2.7 python3.6 python3.7 nodejs nodejs4.3 nodejs4.3-edge nodejs6.10 nodejs8.10 nodejs10.x nodejs12.x
    nodejs14.x java8 go1.x provided ruby2.5 ruby2.7 dotnetcore1.0 dotnetcore2.0 dotnetcore2.1 dotnetcore3.1""".split()
)
# A function's state in answers (measured: recorded from AWS). Here nothing takes time, so the next answer already says
# ACTIVE; on AWS it does after some seconds.
ACTIVE = {"State": "Active", "LastUpdateStatus": "Successful"}
CREATING = {"State": "Pending", "StateReason": "The function is being created.", "StateReasonCode": "Creating"}
UPDATING = {
    "State": "Active",
    "LastUpdateStatus": "InProgress",
    "LastUpdateStatusReason": "The function is being created.",
    "LastUpdateStatusReasonCode": "Creating",
}
# documented: configuration-envvars.html, "Defined runtime environment variables", reserved ones.
RESERVED_VARIABLES = frozenset(
    """_HANDLER _X_AMZN_TRACE_ID AWS_DEFAULT_REGION AWS_REGION AWS_EXECUTION_ENV AWS_LAMBDA_FUNCTION_NAME
    AWS_LAMBDA_FUNCTION_MEMORY_SIZE AWS_LAMBDA_FUNCTION_VERSION AWS_LAMBDA_INITIALIZATION_TYPE
    AWS_LAMBDA_LOG_GROUP_NAME AWS_LAMBDA_LOG_STREAM_NAME AWS_ACCESS_KEY AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    AWS_SESSION_TOKEN AWS_LAMBDA_RUNTIME_API LAMBDA_TASK_ROOT LAMBDA_RUNTIME_DIR""".split()
)


@dataclass(frozen=True)
class Function:
    """One version of a function: its configuration and its code.

    `revision` changes with configuration and code; environments of an older revision are outdated. `revision_id` is the
    API's, which changes more often. Without an Environment in any request, `variables` stay None. `image_config` is the
    API's, without empty members. `stored` are settings without an effect that answers repeat.
    """

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
    variables: Mapping[str, str] | None = None
    image_config: Mapping[str, Any] = field(default_factory=dict)
    logging: Mapping[str, str] = field(default_factory=dict)
    stored: Mapping[str, Any] = field(default_factory=dict)
    last_modified: str = ""
    revision: str = ""
    revision_id: str = field(default="", compare=False)
    layers: tuple[LayerVersion, ...] = ()

    @property
    def layer_directories(self) -> tuple[Path, ...]:
        """The directories that are merged into the function's /opt; later ones replace files of earlier ones."""
        return tuple(layer.code.directory for layer in self.layers if layer.code.directory is not None)

    @property
    def log_group(self) -> str:
        """The log group of its environments' log streams."""
        return self.logging.get("LogGroup", f"/aws/lambda/{self.name}")

    @property
    def codes(self) -> list[Code]:
        """The packages that the function needs."""
        return [self.code, *(layer.code for layer in self.layers)]

    def document(self, qualifier: str | None = None, phase: Mapping[str, str] = ACTIVE) -> dict[str, Any]:
        """Return the API's FunctionConfiguration; its ARN has the qualifier of the request."""
        document = {**self.listed(qualifier), **phase}
        if self.code.image is None:
            # AWS hashes the runtime's image; we hash its name.
            digest = hashlib.sha256(self.runtime.encode()).hexdigest()
            document["RuntimeVersionConfig"] = {"RuntimeVersionArn": f"arn:aws:lambda:{REGION}::runtime:{digest}"}
        return document

    def listed(self, qualifier: str | None = None) -> dict[str, Any]:
        """Return the API's FunctionConfiguration as in lists of functions: without state and runtime version."""
        snap_start = (self.stored.get("SnapStart") or {}).get("ApplyOn", "None")
        optimised = snap_start != "None" and self.version != LATEST
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
            "RevisionId": self.revision_id,
            "PackageType": "Zip" if self.code.image is None else "Image",
            "Architectures": [self.architecture],
            "EphemeralStorage": {"Size": self.ephemeral_mb},
            "LoggingConfig": {"LogFormat": "Text", **self.logging, "LogGroup": self.log_group},
            **self.stored,
            "SnapStart": {"ApplyOn": snap_start, "OptimizationStatus": "On" if optimised else "Off"},
        }
        if self.code.image is None:
            document |= {"Runtime": self.runtime, "Handler": self.handler}
        elif self.image_config:
            document["ImageConfigResponse"] = {"ImageConfig": dict(self.image_config)}
        if self.layers:
            document["Layers"] = [{"Arn": layer.arn, "CodeSize": layer.code.size} for layer in self.layers]
        if self.variables is not None:
            document["Environment"] = {"Variables": dict(self.variables)}
        return document


def settings(request: Mapping[str, Any], limits: Limits, before: Function | None = None) -> dict[str, Any]:
    """Check the configuration in a request and return it under the names of `Function`'s fields.

    Without a function `before` (CreateFunction), a missing member gets its default; a member without a default is
    required.
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
        "ImageConfig": (
            "image_config",
            lambda value: {name: chosen for name, chosen in (value or {}).items() if chosen},
        ),
        "LoggingConfig": ("logging", _logging),
    }
    with_default = () if before else ("MemorySize", "Timeout", "EphemeralStorage")
    checked = {} if before else _packaging(request)
    for member, (name, check) in checks.items():
        if member in request or member in with_default:
            checked[name] = check(request.get(member))
    checked["stored"] = stored(request, before.stored if before else {})
    if refused := [name for name in REFUSED if request.get(name)]:
        raise invalid(f"slslab does not emulate {refused[0]}; leave it out.")
    return checked


def _packaging(request: Mapping[str, Any]) -> dict[str, Any]:
    """Check members that only one kind of package may or must have, with AWS's messages; return images' defaults."""
    kind, of_image = request.get("PackageType", "Zip"), bool((request.get("Code") or {}).get("ImageUri"))
    if of_image != (kind == "Image"):
        ask = "do not provide" if of_image else "provide"
        raise invalid(f"Please {ask} ImageUri when creating a function with packageType {kind}.")
    missing = [name for name in ("Handler", "Runtime") if not of_image and not request.get(name)]
    if missing:
        raise constraint(None, _camel(missing[0]), "Member must not be null")
    check_kind(request, of_image=of_image)
    return {"handler": "", "runtime": ""} if of_image else {}


def check_kind(request: Mapping[str, Any], *, of_image: bool) -> None:
    """Raise InvalidParameterValueException for a setting that only functions of the other kind of package have."""
    if of_image and any(request.get(name) for name in ("Handler", "Runtime", "Layers")):
        raise invalid(
            "Please don't provide Handler or Runtime or Layer when the intended function PackageType is Image."
        )
    if not of_image and request.get("ImageConfig"):
        # assumed: this follows AWS's message for the reverse case.
        raise invalid("Please don't provide ImageConfig when the intended function PackageType is Zip.")


def bounded(request: Mapping[str, Any], key: str, allowed: Range) -> int:
    """Return an integer member up to its maximum, or its default; AWS's model has checked its minimum."""
    value: int = request.get(key, allowed.default)
    if value > allowed.maximum:
        raise constraint(value, _camel(key), f"Member must have value less than or equal to {allowed.maximum}")
    return value


def _runtime(value: object) -> str:
    runtime = str(value)
    if runtime in RUNTIMES:
        return runtime
    if runtime in ENDED:
        raise invalid(
            f"The runtime parameter of {runtime} is no longer supported for creating or updating AWS Lambda functions. "
            "We recommend you use a supported runtime while creating or updating functions."
        )
    known = input_shape("lambda", "CreateFunction").members["Runtime"].metadata["enum"]
    if runtime in known:
        raise invalid(f"slslab runs Python functions; package one of {runtime} as a container image.")
    raise invalid(
        f"Value {runtime} at 'runtime' failed to satisfy constraint: Member must satisfy enum value set: "
        f"[{', '.join(name for name in known if name not in ENDED)}] or be a valid ARN"
    )


def _variables(variables: Mapping[str, str], limits: Limits) -> dict[str, str]:
    unable = "Lambda was unable to configure your environment variables because the environment variables you have "
    # measured: AWS's message shows the text that it measures.
    measured = json.dumps(dict(variables), separators=(",", ":"), ensure_ascii=False)
    if len(measured.encode()) > limits.environment_bytes:
        raise invalid(
            f"{unable}provided exceeded the {limits.environment_bytes // 1024}KB limit. String measured: {measured}"
        )
    reserved = sorted(RESERVED_VARIABLES.intersection(variables))
    if reserved:
        raise invalid(
            f"{unable}provided contains reserved keys that are currently not supported for modification. "
            f"Reserved keys used in this request: {', '.join(reserved)}"
        )
    return dict(variables)


def _logging(config: Mapping[str, str]) -> dict[str, str]:
    """Return a LoggingConfig as in AWS's answers; it replaces the earlier one. Only the JSON format has levels."""
    if config.get("LogFormat") == "JSON":
        return {"ApplicationLogLevel": "INFO", "SystemLogLevel": "INFO", **config}
    if config.keys() & {"ApplicationLogLevel", "SystemLogLevel"}:
        raise invalid(
            'LogLevel is not supported when LogFormat is set to "Text". Remove LogLevel from your request or change '
            'the LogFormat to "JSON" and try again.'
        )
    return dict(config)


def _camel(key: str) -> str:
    return key[0].lower() + key[1:]


# Settings of Lambda Managed Instances, code signing, durable functions and tenants: accepting them would be an empty
# promise.
REFUSED = (
    *("AcceleratorConfig", "CapacityProviderConfig", "CodeSigningConfigArn", "DurableConfig", "RuntimeConfig"),
    "TenancyConfig",
)
# A setting with this value has no effect on AWS either.
NEUTRAL: Mapping[str, Any] = {"TracingConfig": {"Mode": "PassThrough"}, "SnapStart": {"ApplyOn": "None"}}


def stored(request: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored settings after a request, as in AWS's answers; `before` are the earlier ones."""
    settings = {**before}
    for name in WITHOUT_EFFECT:
        if name in request:
            settings[name] = SHOWN[name](request[name])
    return {name: value for name, value in settings.items() if value not in (None, NEUTRAL.get(name))}


def without_effect(settings: Mapping[str, Any]) -> list[str]:
    """Return a line for each stored setting that would do something on AWS.

    A dead letter queue may exist; if it doesn't, the log says so when a letter is sent.
    """
    empty = {name for name in settings if name == "VpcConfig" and not settings[name]["SubnetIds"]}
    left = [name for name in settings if name not in {"DeadLetterConfig", *empty}]
    return [f"{name} is stored, and has no effect here: {WITHOUT_EFFECT[name]}." for name in left]


def _vpc(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the API's VpcConfigResponse. The subnets' VPC isn't known here, so its id is made from theirs."""
    subnets = list(config.get("SubnetIds") or ())
    return {
        "Ipv6AllowedForDualStack": bool(config.get("Ipv6AllowedForDualStack")),
        "SecurityGroupIds": list(config.get("SecurityGroupIds") or ()),
        "SubnetIds": subnets,
        "VpcId": f"vpc-{hashlib.sha256(','.join(subnets).encode()).hexdigest()[:17]}" if subnets else "",
    }


# As in AWS's answers (measured: recorded from AWS; assumed for a key and file systems). None removes a setting.
SHOWN: Mapping[str, Callable[[Any], Any]] = {
    "DeadLetterConfig": lambda config: {"TargetArn": config["TargetArn"]} if config.get("TargetArn") else None,
    "FileSystemConfigs": lambda configs: list(configs) or None,
    "KMSKeyArn": lambda arn: arn or None,
    "SnapStart": dict,
    "TracingConfig": dict,
    "VpcConfig": _vpc,
}
