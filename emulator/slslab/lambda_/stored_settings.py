"""Function settings that are checked, stored and returned as on AWS, but have no effect here.

A function that has one says so once in its log; `slslab limits` lists all.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

# What each would do on AWS, for the log and for `slslab limits`.
WITHOUT_EFFECT: Mapping[str, str] = {
    "DeadLetterConfig": "failed events go to a queue only where AWS_ENDPOINT_URL_SQS names a service that has it",
    "FileSystemConfigs": "no file system is mounted",
    "KMSKeyArn": "nothing is encrypted",
    "SnapStart": "environments start from their beginning, and are billed so",
    "TracingConfig": "no traces go to X-Ray",
    "VpcConfig": "functions have this host's network",
}
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
