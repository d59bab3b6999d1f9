"""`slslab up | down | status | env`: a stack as endpoints for your own functions."""

import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

import click
from click.core import ParameterSource

from slslab.cli.terminal import json_option, print_document
from slslab.errors import RequestError
from slslab.installation import lacking
from slslab.report.page import WORDS, Table
from slslab.up.options import Options
from slslab_workers.channels.endpoints import QUEUE_URL, TENSOR_URLS

# Options that only one kind of stack has.
OF_EMBEDDED = {known.name for known in fields(Options)} - {"tensor_databases"}
OF_COMPOSE = {"offline"}
# Endpoints with other variables than AWS_ENDPOINT_URL_ and their name.
VARIABLES = {"aws": "AWS_ENDPOINT_URL", "states": "AWS_ENDPOINT_URL_SFN", "tensors": TENSOR_URLS, "queue": QUEUE_URL}


def _stack_option(default: str | None, text: str) -> Callable[[Any], Any]:
    return click.option(
        "--stack",
        type=click.Choice(["embedded", "compose"]),
        default=default,
        show_default=default is not None,
        help=text,
    )


@click.command()
@_stack_option("embedded", "Processes on this host, or the services of docker-compose.yml in containers.")
@click.option("--offline", is_flag=True, help="Compose: use locally built images (`make images`), without a registry.")
@click.option("--detach", "-d", is_flag=True, help="Return when everything answers; `slslab down` stops it.")
@Options.decorate
@json_option
@click.pass_context
def up(
    context: click.Context,
    /,
    stack: str,
    offline: bool,
    detach: bool,
    json_: bool,
    **values: Any,
) -> None:
    """Start Lambda, S3, Step Functions, tensor databases and a queue for your own functions, until Ctrl-C.

    \b
    slslab up --detach
    eval "$(slslab env)"                     endpoints and keys, for this shell
    aws lambda list-functions
    slslab show up                           what your functions have done: invocations, requests, bill
    slslab down

    \b
    slslab up --stack compose --workers 4 --detach
    slslab run spirt --stack compose --workers 4
    slslab status
    slslab down

    With --stack compose, `docker compose` starts the services, and the command waits until all are healthy. Type it
    again with another --workers to change the number of databases.

    What your functions do is recorded in $SLSLAB_RUNS/up or ./runs/up until the next `slslab up`; show, bill and report
    read it by the name `up`. A stack in containers records only runs.
    """
    from slslab.up import embedded

    explicit = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    for option in context.command.params:
        if option.name in explicit & (OF_EMBEDDED if stack == "compose" else OF_COMPOSE):
            raise RequestError(f"{option.opts[0]} does not apply to --stack {stack}.", "see `slslab up --help`.")
    options = Options(**values)
    if stack == "compose":
        _up_compose(offline, options.tensor_databases if "tensor_databases" in explicit else None, detach, json_)
    elif detach:
        _print(embedded.start(options), json_)
    else:
        embedded.serve(options, lambda described: _print(described, json_), lambda line: click.echo(line, err=True))


def _print(described: Mapping[str, Any], json_: bool) -> None:
    print_document(described, lambda: service_tables(described), json_)


def service_tables(described: Mapping[str, Any]) -> Iterator[Table]:
    """Yield tables of a running stack's endpoints, and of its services if they were examined."""
    yield _endpoints(described)
    if "services" in described:
        rows = [
            (
                each["part"],
                each["name"],
                "healthy" if each["healthy"] else each["trouble"],
                "\n".join(each["host"].split()),
            )
            for each in described["services"]
        ]
        yield Table(("service", "version", "health", "address"), rows, words=WORDS)


def _endpoints(described: Mapping[str, Any]) -> Table:
    endpoints = {
        VARIABLES.get(name, f"AWS_ENDPOINT_URL_{name.upper()}"): " ".join(url) if name == "tensors" else url
        for name, url in described["endpoints"].items()
    }
    names = ("confinement", "isolation", "logs", "record", "pid", "environment")
    facts = {name: str(described[name]) for name in names if name in described}
    if "states" not in described["endpoints"] and described.get("kind") == "embedded":
        facts["Step Functions"] = f"{lacking('moto').hint} adds it"
    if "aws" not in described["endpoints"] and described.get("kind") == "embedded":
        facts["one endpoint"] = f"{lacking('aiohttp').hint} adds it"
    facts["keys"] = 'eval "$(slslab env)"'
    return Table(("slslab is up", ""), list((endpoints | facts).items()), words=WORDS)


def _up_compose(offline: bool, tensor_databases: int | None, detach: bool, json_: bool) -> None:
    from slslab.up import compose

    composed = compose.compose_files(offline=offline)
    try:
        _print(compose.start(composed, tensor_databases, lambda line: click.echo(line, err=True)), json_)
        if not detach:
            threading.Event().wait()
    except KeyboardInterrupt:
        compose.stop()
        if detach:
            raise


@click.command()
@_stack_option(None, "Stop only this stack (by default everything that `slslab up` started).")
def down(stack: str | None) -> None:
    """Stop what `slslab up` started, and remove its functions, objects and logs."""
    from slslab.up import compose, embedded

    stops = {"embedded": lambda: embedded.stop(lambda line: click.echo(line, err=True)), "compose": compose.stop}
    ended = {kind: stop() for kind, stop in stops.items() if stack in (None, kind)}
    if ended.get("embedded"):
        click.echo("Functions, objects and logs are removed. The record stays until the next `slslab up`.", err=True)
    click.echo("slslab is down." if any(ended.values()) else "slslab wasn't up.", err=True)


@click.command()
@_stack_option(None, "Show this stack (by default the embedded one if it runs, else the other).")
@json_option
def status(stack: str | None, json_: bool) -> None:
    """Show a running stack: its endpoints, and each service with its version, health and address.

    Exit code 1 if none runs. A compose stack is found by its emulator at $SLSLAB_EMULATOR_URL or
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
            click.echo(f"The last one ended without `slslab down`. Its output is in {log}.", err=True)
    raise click.exceptions.Exit(1)


@click.command()
@_stack_option(None, "Print this stack's (by default the embedded one's if it runs, else the other's).")
@json_option
def env(stack: str | None, json_: bool) -> None:
    """Print the endpoints and keys of a running stack as shell commands. Exit code 1 if none runs.

    \b
    eval "$(slslab env)"
    aws lambda list-functions

    Only the user who started it can read the keys. The commands unset the shell's profile and session token, which the
    aws CLI and boto3 would otherwise use.
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
