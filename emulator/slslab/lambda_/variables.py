"""The environment variables that every function sees, whatever it runs in (configuration-envvars.html)."""

from slslab.aws.arns import REGION
from slslab.host.reaper import MARK
from slslab.lambda_.configuration import Function
from slslab.lambda_.hosts import Hosts

# documented: configuration-envvars.html; the addresses are measured. Nothing listens there: traces are not emulated.
XRAY = {
    "AWS_XRAY_CONTEXT_MISSING": "LOG_ERROR",
    "AWS_XRAY_DAEMON_ADDRESS": "169.254.79.129:2000",
    "_AWS_XRAY_DAEMON_ADDRESS": "169.254.79.129",
    "_AWS_XRAY_DAEMON_PORT": "2000",
}


def variables(function: Function, hosts: Hosts, log_stream: str, address: str) -> dict[str, str]:
    """Return a function's variables; its own replace shared ones. `address` is its Runtime API's."""
    return {
        "LANG": "en_US.UTF-8",
        "TZ": ":UTC",
        **XRAY,
        **hosts.variables,
        **function.variables,
        "_HANDLER": function.handler,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.runtime or 'Image'}",
        "AWS_LAMBDA_FUNCTION_NAME": function.name,
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
        "AWS_LAMBDA_FUNCTION_VERSION": function.version,
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        **_logging(function),
        "AWS_LAMBDA_LOG_STREAM_NAME": log_stream,
        "AWS_LAMBDA_RUNTIME_API": address,
        **hosts.credentials(function.name),
        MARK: hosts.emulator_id,
    }


def _logging(function: Function) -> dict[str, str]:
    """Return the variables for the runtime's logging (measured: the format is set once LoggingConfig was given)."""
    config = function.logging
    given = {"AWS_LAMBDA_LOG_FORMAT": config.get("LogFormat", "Text")} if config else {}
    level = {"AWS_LAMBDA_LOG_LEVEL": config["ApplicationLogLevel"]} if "ApplicationLogLevel" in config else {}
    return {"AWS_LAMBDA_LOG_GROUP_NAME": function.log_group, **given, **level}
