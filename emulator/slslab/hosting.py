"""`slslab up | down | status`: a stack as endpoints for functions of one's own."""

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from slslab.errors import RequestError
from slslab.terminal import json_option, print_document


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
@click.option("--detach", "-d", is_flag=True, help="Return when everything answers; `slslab down` ends it.")
@click.option("--port", default=4600, show_default=True, help="Port of the Lambda endpoint; 0 for any free one.")
@click.option("--s3-port", default=4601, show_default=True, help="Port of the S3 endpoint; 0 for any free one.")
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another limit than Lambda's, for instance account_concurrency=10 or idle_s=60 (see `slslab limits`).",
)
@click.option(
    "--template",
    default="",
    metavar="MODULES",
    help="Import these once (for instance torch) and fork environments from it: faster cold starts, "
    "whose memory is not Lambda's; records say so.",
)
@click.option(
    "--memory-budget",
    "budget_mb",
    type=int,
    metavar="MB",
    help="Memory for all environments (by default 0.9 of what is available).",
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
    limits: tuple[str, ...],
    template: str,
    budget_mb: int | None,
    tensor_databases: int,
    queue: str,
    json_: bool,
) -> None:
    """Lambda, S3, Step Functions, tensor databases and a queue as endpoints for your own functions, until Ctrl-C.

    \b
    slslab up --detach
    export AWS_ENDPOINT_URL_LAMBDA=http://127.0.0.1:4600 AWS_ENDPOINT_URL_S3=http://127.0.0.1:4601
    export AWS_ACCESS_KEY_ID=slslab AWS_SECRET_ACCESS_KEY=slslab-loopback-only AWS_DEFAULT_REGION=us-east-1
    aws lambda list-functions
    slslab down

    \b
    slslab up --stack compose --workers 4 --detach
    slslab run spirt --stack compose --workers 4
    slslab status
    slslab down

    With --stack compose, `docker compose` starts the services, and the command waits until all are healthy; --workers
    again changes the number of databases of a running stack.
    """
    from slslab import service
    from slslab.reports import tables

    given = [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    _refuse_options(stack, given)
    if stack == "compose":
        _up_compose(files, offline, tensor_databases if "tensor_databases" in given else None, detach, json_)
        return
    modules = [module for module in template.split(",") if module]
    settings = service.Settings(port, s3_port, _limits(limits), modules, budget_mb, tensor_databases, queue)
    if detach:
        options = [f"--port={port}", f"--s3-port={s3_port}", *(f"--limit={limit}" for limit in limits)]
        options += [f"--template={template}"] * bool(template)
        options += [f"--memory-budget={budget_mb}"] * (budget_mb is not None)
        options += [f"--tensor-databases={tensor_databases}", f"--queue={queue}"]
        found = service.start(options)
        print_document(found, lambda: tables.service(found), json_)
        return
    service.serve(
        settings,
        ready=lambda found: print_document(found, lambda: tables.service(found), json_),
        log=lambda line: click.echo(line, err=True),
    )


# Options of `up` that one kind of stack alone has.
OF_EMBEDDED = ("port", "s3_port", "limits", "template", "budget_mb", "queue")
OF_COMPOSE = ("offline", "files")


def _refuse_options(stack: str, given: Sequence[str]) -> None:
    for name in OF_EMBEDDED if stack == "compose" else OF_COMPOSE:
        if name in given:
            option = {"limits": "limit", "budget_mb": "memory-budget", "files": "file"}.get(
                name, name.replace("_", "-")
            )
            raise RequestError(f"--{option} is no option of --stack {stack}.", "`slslab up --help` tells whose it is.")


def _up_compose(files: Sequence[Path], offline: bool, tensor_databases: int | None, detach: bool, json_: bool) -> None:
    from slslab import composing
    from slslab.reports import tables

    found = composing.compose_files(files, offline=offline)
    try:
        described = composing.start(found, tensor_databases, lambda line: click.echo(line, err=True))
        print_document(described, lambda: tables.service(described), json_)
        if not detach:
            threading.Event().wait()
    except KeyboardInterrupt:
        composing.stop()
        if detach:
            raise


@click.command()
@_stack_option(None, "End this one alone (by default whatever `slslab up` started).")
def down(stack: str | None) -> None:
    """End what `slslab up` started; its functions and objects are gone with it."""
    from slslab import composing, service

    ended = [
        stop() for kind, stop in (("embedded", service.stop), ("compose", composing.stop)) if stack in (None, kind)
    ]
    click.echo("slslab is down." if any(ended) else "slslab was not up.", err=True)


@click.command()
@_stack_option(None, "Tell of this one (by default of the embedded one, if it runs, else of the other).")
@json_option
def status(stack: str | None, json_: bool) -> None:
    """Tell whether a stack runs: its endpoints, and each service with its version, health and address.

    Exit code 1 if none runs. A compose stack is found by its emulator, at $SLSLAB_EMULATOR_URL or http://127.0.0.1:9001,
    whoever started it.
    """
    from slslab import composing, service
    from slslab.reports import tables

    found = service.status() if stack != "compose" else None
    if found is not None:
        found = {**found, "services": service.examine_services(found)}
    elif stack != "embedded":
        found = composing.status()
    if found is None:
        if json_:
            print(json.dumps({"up": False, "endpoints": {}}))
        else:
            click.echo("slslab is not up. Start it with `slslab up --detach`.", err=True)
        raise click.exceptions.Exit(1)
    print_document({"up": True, **found}, lambda: tables.service(found), json_)


def _limits(chosen: Sequence[str]) -> dict[str, int | float]:
    """`NAME=VALUE` options as limits; RequestError for one that there is not, or that is no single number."""
    from slslab.limits import lambda_limits

    known = lambda_limits()
    found: dict[str, int | float] = {}
    for entry in chosen:
        name, _, text = entry.partition("=")
        if not isinstance(getattr(known, name, None), int | float):
            raise RequestError(f"There is no limit {name!r} that could be changed.", "`slslab limits` lists them.")
        try:
            found[name] = float(text) if name.endswith("_s") else int(text)
        except ValueError:
            raise RequestError(f"The limit {name} needs a number, not {text!r}.", f"--limit {name}=10") from None
    return found
