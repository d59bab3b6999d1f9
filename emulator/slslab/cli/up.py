"""`slslab up | down | status`: a stack as endpoints for your own functions."""

import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from slslab.cli.terminal import json_option, print_document
from slslab.errors import RequestError
from slslab.installation import ENDPOINTS, plugin
from slslab.report import doctor
from slslab.toml_files import read_toml

PORT = click.IntRange(0, 65535)
ACCOUNT_HELP = (
    "Whose limits: default (Lambda's), new (a new account's: concurrency 10, 3,008 MB), or a TOML file with names of "
    "limits and numbers (see `slslab limits`)."
)


def _stack_option(default: str | None, text: str) -> Callable[[Any], Any]:
    return click.option(
        "--stack",
        type=click.Choice(["embedded", "compose"]),
        default=default,
        show_default=default is not None,
        help=text,
    )


@click.command()
@_stack_option("embedded", "Processes of this host, or the services of docker-compose.yml in containers.")
@click.option("--offline", is_flag=True, help="Compose: from images built here (`make images`), without a registry.")
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Compose: another file than this checkout's docker-compose.yml; several are merged.",
)
@click.option("--detach", "-d", is_flag=True, help="Return when everything answers; `slslab down` stops it.")
@click.option(
    "--port", type=PORT, default=4600, show_default=True, help="Port of the Lambda endpoint; 0: any free one."
)
@click.option("--s3-port", type=PORT, default=4601, show_default=True, help="Port of the S3 endpoint; 0: any free one.")
@click.option(
    "--edge-port",
    type=PORT,
    help="Port of the one endpoint of all services, with slslab[aws]; 0: any free one.  [default: 4566]",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another limit than Lambda's, for instance account_concurrency=10 or idle_s=60 (see `slslab limits`).",
)
@click.option("--account", default="default", show_default=True, metavar="ACCOUNT", help=ACCOUNT_HELP)
@click.option(
    "--template",
    default="",
    metavar="MODULES",
    help="Import these once (for instance torch) and fork environments from it: faster cold starts, "
    "whose memory is not Lambda's; records say so.",
)
@click.option(
    "--strict-packages",
    is_flag=True,
    help="Functions see no packages of this host: what a zip archive and its layers lack fails as on Lambda.",
)
@click.option(
    "--environment",
    type=click.Choice(["process", "ray"]),
    default="process",
    show_default=True,
    help="What functions run in: processes of this host, or of all nodes of the Ray cluster that it belongs to "
    "(docs/cluster.md).",
)
@click.option(
    "--memory-budget",
    "budget_mb",
    type=click.IntRange(128),
    metavar="MB",
    help="Memory for all environments (by default 0.9 of what is available).",
)
@click.option(
    "--code",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    default=["."],
    help="Hot reload may use directories below this one as functions' code (by default the working directory); "
    "repeat it for several.",
)
@click.option(
    "--tensor-databases",
    "--workers",
    "tensor_databases",
    type=click.IntRange(0, 1000),
    default=1,
    show_default=True,
    help="RedisAI-compatible databases, each with a port of its own: one per peer of SPIRT.",
)
@click.option(
    "--queue",
    type=click.Choice(["embedded", "rabbitmq", "auto"]),
    default="embedded",
    show_default=True,
    help="Lists of a tensor database, or RabbitMQ where its server is installed.",
)
@click.option(
    "--credentials",
    multiple=True,
    metavar="KEY:SECRET",
    envvar="SLSLAB_CREDENTIALS",
    help="Accept this pair of keys, too, for instance test:test, or the one that your code brings. Repeatable.",
)
@click.option(
    "--function-policy",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Policy document of IAM, in JSON, that grants functions more than their keys do, or denies them something; "
    "docs/threat-model.md has what they may do.",
)
@click.option(
    "--faults",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Fault plan, a TOML file: functions are throttled, killed or hang. One of its tables [[fault]] has "
    'kind = "throttle", function = "NAME", invocation = 0; docs/reliability.md has all kinds.',
)
@json_option
@click.pass_context
def up(
    context: click.Context,
    stack: str,
    offline: bool,
    files: tuple[Path, ...],
    detach: bool,
    port: int,
    s3_port: int,
    edge_port: int | None,
    limits: tuple[str, ...],
    account: str,
    template: str,
    strict_packages: bool,
    environment: str,
    budget_mb: int | None,
    code: tuple[Path, ...],
    tensor_databases: int,
    queue: str,
    credentials: tuple[str, ...],
    function_policy: Path | None,
    faults: Path | None,
    json_: bool,
) -> None:
    """Lambda, S3, Step Functions, tensor databases and a queue as endpoints for your own functions, until Ctrl-C.

    \b
    slslab up --detach
    eval "$(slslab env)"                     endpoints and keys, for this shell
    aws lambda list-functions
    slslab show up                           what your functions have done since: invocations, requests, bill
    slslab down

    \b
    slslab up --stack compose --workers 4 --detach
    slslab run spirt --stack compose --workers 4
    slslab status
    slslab down

    With --stack compose, `docker compose` starts the services, and the command waits until all are healthy; --workers
    again changes the number of databases of a running stack.

    What your functions do is recorded in $SLSLAB_RUNS/up or ./runs/up, and remains there until the next `slslab up`;
    show, bill and report read it by the name `up`. A stack in containers records runs only.
    """
    from slslab.aws.accounts import DEFAULT, NEW, account_limits
    from slslab.lambda_.faults import read_function_plan
    from slslab.up import embedded

    explicit = [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    _refuse_options(stack, explicit)
    if stack == "compose":
        _up_compose(files, offline, tensor_databases if "tensor_databases" in explicit else None, detach, json_)
        return
    edge = plugin(ENDPOINTS, "aws")
    if edge_port is None and edge.installed():
        edge_port = edge.PORT
    modules = [module for module in template.split(",") if module]
    chosen = account_limits(account, dict(_pair(limit) for limit in limits))
    roots = _resolved(code)
    injected = None if faults is None else read_toml(faults, "fault plan", (), RequestError)
    if injected is not None:
        read_function_plan(injected)
    if detach:
        options = [f"--port={port}", f"--s3-port={s3_port}"]
        options += [f"--edge-port={edge_port}"] * (edge_port is not None)
        options += [*(f"--limit={limit}" for limit in limits)]
        options += [
            f"--account={account if account in (DEFAULT, NEW) else _resolved([Path(account)])[0]}",
            *[f"--template={template}"] * bool(template),
            *["--strict-packages"] * strict_packages,
            f"--environment={environment}",
        ]
        options += [f"--memory-budget={budget_mb}"] * (budget_mb is not None)
        options += [f"--code={root}" for root in roots]
        options += [f"--function-policy={path}" for path in _resolved([function_policy] if function_policy else [])]
        options += [f"--faults={path}" for path in _resolved([faults] if faults is not None else [])]
        options += [f"--tensor-databases={tensor_databases}", f"--queue={queue}"]
        _print(embedded.start(options, credentials), json_)
    else:
        embedded.serve(
            port=port,
            s3_port=s3_port,
            edge_port=edge_port,
            limits=chosen,
            template=modules,
            strict_packages=strict_packages,
            budget_mb=budget_mb,
            code_roots=roots,
            tensor_databases=tensor_databases,
            queue=queue,
            credentials=credentials,
            function_policy="" if function_policy is None else function_policy.read_text(),
            faults=injected,
            environment=environment,
            ready=lambda described: _print(described, json_),
            log=lambda line: click.echo(line, err=True),
        )


def _print(described: Mapping[str, Any], json_: bool) -> None:
    print_document(described, lambda: doctor.service(described), json_)


# Options of `up` that only one kind of stack has.
OF_EMBEDDED = (
    *("port", "s3_port", "edge_port", "limits", "account", "template", "strict_packages", "budget_mb", "code", "queue"),
    *("credentials", "function_policy", "environment", "faults"),
)
OF_COMPOSE = ("offline", "files")


def _refuse_options(stack: str, explicit: Sequence[str]) -> None:
    names = {"limits": "limit", "budget_mb": "memory-budget", "files": "file"}
    for name in OF_EMBEDDED if stack == "compose" else OF_COMPOSE:
        if name in explicit:
            option = names.get(name, name).replace("_", "-")
            raise RequestError(f"--{option} does not apply to --stack {stack}.", "see `slslab up --help`.")


def _up_compose(files: Sequence[Path], offline: bool, tensor_databases: int | None, detach: bool, json_: bool) -> None:
    from slslab.up import compose

    composed = compose.compose_files(files, offline=offline)
    try:
        _print(compose.start(composed, tensor_databases, lambda line: click.echo(line, err=True)), json_)
        if not detach:
            threading.Event().wait()
    except KeyboardInterrupt:
        compose.stop()
        if detach:
            raise


@click.command()
@_stack_option(None, "Stop only this stack (by default whatever `slslab up` started).")
def down(stack: str | None) -> None:
    """Stop what `slslab up` started, and remove its functions, objects and logs."""
    from slslab.up import compose, embedded

    stops = {"embedded": lambda: embedded.stop(lambda line: click.echo(line, err=True)), "compose": compose.stop}
    ended = {kind: stop() for kind, stop in stops.items() if stack in (None, kind)}
    if ended.get("embedded"):
        click.echo(
            "Its functions, objects and logs are removed; its record stays until the next `slslab up`.", err=True
        )
    click.echo("slslab is down." if any(ended.values()) else "slslab was not up.", err=True)


@click.command()
@_stack_option(None, "Show this stack (by default the embedded one if it runs, else the other).")
@json_option
def status(stack: str | None, json_: bool) -> None:
    """Show whether a stack runs: its endpoints, and each service with its version, health and address.

    Exit code 1 if none runs. A compose stack, whoever started it, is found by its emulator at $SLSLAB_EMULATOR_URL or
    http://127.0.0.1:9001.
    """
    from slslab.up import compose, embedded

    described = embedded.status() if stack != "compose" else None
    if described is not None:
        described = {**described, "services": embedded.examine_services(described)}
    elif stack != "embedded":
        described = compose.status()
    if described is not None:
        _print({"up": True, **described}, json_)
        return
    if json_:
        _print({"up": False, "endpoints": {}}, json_)
    else:
        click.echo("slslab is not up. Start it with `slslab up --detach`.", err=True)
        if (log := embedded.last_log()) is not None:
            click.echo(f"The last one was not ended by `slslab down`: {log} has its output.", err=True)
    raise click.exceptions.Exit(1)


@click.command()
@_stack_option(None, "This stack's (by default the embedded one's if it runs, else the other's).")
@json_option
def env(stack: str | None, json_: bool) -> None:
    """Print the endpoints and keys of what `slslab up` started, as commands for a shell. Exit code 1 if none runs.

    \b
    eval "$(slslab env)"
    aws lambda list-functions

    Only the user who started it can read the keys. A profile and a session token of the shell's are unset, as the aws
    CLI and boto3 would take them.
    """
    from slslab.up import compose, embedded

    variables = embedded.environment() if stack != "compose" else None
    if variables is None and stack != "embedded":
        variables = compose.environment()
    if variables is None:
        click.echo("slslab is not up. Start it with `slslab up --detach`.", err=True)
        raise click.exceptions.Exit(1)
    if json_:
        print_document({"variables": variables}, str, as_json=True)
    else:
        print("unset AWS_PROFILE AWS_SESSION_TOKEN")
        for name, value in variables.items():
            print(f"export {name}={shlex.quote(value)}")


def _resolved(directories: Sequence[Path]) -> list[Path]:
    """Return the directories as absolute paths: a service in the background may run elsewhere."""
    try:
        return [directory.resolve() for directory in directories]
    except FileNotFoundError:
        raise RequestError("The working directory does not exist any more.", "change to another one.") from None


def _pair(option: str) -> tuple[str, str]:
    """Return name and value of `NAME=VALUE`."""
    name, _, value = option.partition("=")
    return name, value
