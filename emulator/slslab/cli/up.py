"""`slslab up | down | status`: a stack as endpoints for your own functions."""

import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from slslab.cli.terminal import json_option, print_document
from slslab.errors import RequestError
from slslab.report import doctor
from slslab.up.options import Options

# Options that only one kind of stack has.
OF_EMBEDDED = {known.name for known in fields(Options)} - {"tensor_databases"}
OF_COMPOSE = {"offline", "files"}


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
@Options.decorate
@json_option
@click.pass_context
def up(
    context: click.Context,
    /,
    stack: str,
    offline: bool,
    files: tuple[Path, ...],
    detach: bool,
    json_: bool,
    **values: Any,
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
    from slslab.up import embedded

    explicit = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    for option in context.command.params:
        if option.name in explicit & (OF_EMBEDDED if stack == "compose" else OF_COMPOSE):
            raise RequestError(f"{option.opts[0]} does not apply to --stack {stack}.", "see `slslab up --help`.")
    options = Options(**values)
    if stack == "compose":
        _up_compose(files, offline, options.tensor_databases if "tensor_databases" in explicit else None, detach, json_)
    elif detach:
        _print(embedded.start(options), json_)
    else:
        embedded.serve(options, lambda described: _print(described, json_), lambda line: click.echo(line, err=True))


def _print(described: Mapping[str, Any], json_: bool) -> None:
    print_document(described, lambda: doctor.service(described), json_)


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
