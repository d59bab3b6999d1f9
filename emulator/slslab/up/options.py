"""The options of `slslab up` for the embedded stack, for the command and for the process that `--detach` starts."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slslab.errors import RequestError

if TYPE_CHECKING:
    from slslab.aws.limits import Limits

PORT = click.IntRange(0, 65535)
ACCOUNT_HELP = (
    "The account's limits: default (Lambda's), new (a new account's: concurrency 10, 3,008 MB), or a TOML file with "
    "names of limits and numbers (see `slslab limits`)."
)
STRICT_HELP = "Hide this host's packages from functions, so that imports missing from their packages fail as on Lambda."


def _option(*names: str, default: Any = None, **settings: Any) -> Any:
    return field(default=default, metadata={"names": names, "settings": settings})


@dataclass(frozen=True, kw_only=True)
class Options:
    """All options, in the order of `slslab up --help`."""

    port: int = _option(
        "--port", type=PORT, default=4600, show_default=True, help="Port of the Lambda endpoint; 0: any free one."
    )
    s3_port: int = _option(
        "--s3-port", type=PORT, default=4601, show_default=True, help="Port of the S3 endpoint; 0: any free one."
    )
    edge_port: int | None = _option(
        "--edge-port",
        type=PORT,
        help="Port of the endpoint for all services, with slslab[aws]; 0: any free one.  [default: 4566]",
    )
    limits: tuple[str, ...] = _option(
        "--limit",
        default=(),
        multiple=True,
        metavar="NAME=VALUE",
        help="Change one limit, for instance account_concurrency=10 or idle_s=60 (see `slslab limits`).",
    )
    account: str = _option("--account", default="default", show_default=True, metavar="ACCOUNT", help=ACCOUNT_HELP)
    template: str = _option(
        "--template",
        default="",
        metavar="MODULES",
        help="Import these modules once (for instance torch) and fork environments from there: cold starts are faster, "
        "but memory differs from Lambda's, and records say so.",
    )
    strict_packages: bool = _option(
        "--strict-packages",
        default=False,
        is_flag=True,
        help=STRICT_HELP,
    )
    environment: str = _option(
        "--environment",
        type=click.Choice(["process", "ray"]),
        default="process",
        show_default=True,
        help="Where functions run: in processes on this host, or on all nodes of its Ray cluster (docs/cloud.md).",
    )
    budget_mb: int | None = _option(
        "--memory-budget",
        type=click.IntRange(128),
        metavar="MB",
        help="Memory for all environments (by default 90 % of the available memory).",
    )
    code: tuple[Path, ...] = _option(
        "--code",
        multiple=True,
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        metavar="DIR",
        default=(Path("."),),
        help="Hot reload may use code in this directory and below (by default the working directory). Repeatable.",
    )
    tensor_databases: int = _option(
        "--tensor-databases",
        "--workers",
        type=click.IntRange(0, 1000),
        default=1,
        show_default=True,
        help="Number of RedisAI-compatible databases, each with its own port; some architectures need one per worker.",
    )
    queue: str = _option(
        "--queue",
        type=click.Choice(["embedded", "rabbitmq", "auto"]),
        default="embedded",
        show_default=True,
        help="Queues: lists in a tensor database, or RabbitMQ if its server is installed.",
    )
    credentials: tuple[str, ...] = _option(
        "--credentials",
        default=(),
        multiple=True,
        metavar="KEY:SECRET",
        envvar="SLSLAB_CREDENTIALS",
        help="Also accept this pair of keys, for instance test:test or the keys that your code uses. Repeatable.",
    )
    function_policy: Path | None = _option(  # noqa: RUF009 - it returns a field
        "--function-policy",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        metavar="FILE",
        help="IAM policy document, in JSON, that adds to or restricts what functions may do "
        "(defaults: docs/design.md).",
    )
    faults: Path | None = _option(  # noqa: RUF009 - it returns a field
        "--faults",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Fault plan, a TOML file that throttles, kills or hangs functions. Example of a table [[fault]]: "
        'kind = "throttle", function = "NAME", invocation = 0. docs/reliability.md lists all kinds.',
    )

    @classmethod
    def decorate(cls, command: Callable[..., None]) -> Callable[..., None]:
        """Add these options to a click command, which gets them under the fields' names."""
        for known in reversed(fields(cls)):
            settings = known.metadata["settings"] | {"default": known.default}
            command = click.option(*known.metadata["names"], known.name, **settings)(command)
        return command

    def arguments(self) -> list[str]:
        """Return them as words of a command line, except credentials: any user can read a process's arguments."""
        words = []
        for known in fields(self):
            value, name = getattr(self, known.name), known.metadata["names"][0]
            if known.name != "credentials" and value is not None and value is not False:
                several = value if isinstance(value, tuple) else (value,)
                words += [name if one is True else f"{name}={one}" for one in several]
        return words

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of the template."""
        return tuple(module for module in self.template.split(",") if module)

    def roots(self) -> tuple[Path, ...]:
        """Return the directories of `code` as absolute paths; RequestError if the working directory is gone."""
        try:
            return tuple(root.resolve() for root in self.code)
        except FileNotFoundError:
            raise RequestError("The working directory no longer exists.", "cd to another one.") from None

    def account_limits(self) -> "Limits":
        """Return the account's limits, with the changes from `--limit`."""
        from slslab.aws.accounts import account_limits

        pairs = (limit.partition("=") for limit in self.limits)
        return account_limits(self.account, {name: value for name, _, value in pairs})

    def fault_plan(self) -> dict[str, Any] | None:
        """Return the fault plan's document, checked to contain only faults of functions; None without one."""
        from slslab.lambda_.faults import read_function_plan
        from slslab.toml_files import read_toml

        if self.faults is None:
            return None
        document = read_toml(self.faults, "fault plan", ())
        read_function_plan(document)
        return document
