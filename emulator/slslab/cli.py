"""The command line: `slslab run | runs | show | compare | bill | replay | ask | calibrate | up | down | status |
limits | doctor`.

Exit codes: 0 done, 1 the run failed, 2 the request was wrong, 3 the host cannot do it, 130 interrupted.
"""

import json
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from slslab import __version__
from slslab.asking import ask
from slslab.errors import RequestError, SlslabError
from slslab.replaying import replay
from slslab.reproducing import reproduce
from slslab.terminal import Bar, json_option, print_document, run_argument
from slslab_workers.architecture import Option

INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="slslab")
def root() -> None:
    """Serverless training on your own machine, under AWS Lambda's real limits and with its real bill.

    \b
    slslab run scatterreduce --epochs 5      train, and see what it did and what it cost
    slslab show                              the last run again
    slslab compare last~1 last               two runs side by side
    slslab replay last --memory 1024,3008    what it would have been on Lambda, and with other memory
    slslab ask --help                        questions about a run: cheapest memory, waiting, crossings
    slslab reproduce --help                  published tables beside the model
    slslab up                                Lambda and S3 as endpoints for your own functions

    A RUN is an id, its unambiguous beginning, a path, `last` or `last~N`.
    """


@root.command()
@json_option
def runs(json_: bool) -> None:
    """List the runs in $SLSLAB_RUNS or ./runs, newest first."""
    from slslab.reports import tables
    from slslab.runs import list_runs

    found = [run.summary() for run in list_runs()]
    print_document(found, lambda: tables.runs(found), json_)


@root.command()
@run_argument
@json_option
def show(run: str, json_: bool) -> None:
    """Show a run: phases per worker, bytes and messages, bill, loss and accuracy, host delay.

    A run whose command was killed keeps its trace; showing it compacts the trace and says what is missing.
    """
    from slslab.execution import read_document
    from slslab.reports import tables

    document = read_document(run)
    print_document(document, lambda: tables.summary(document), json_)


@root.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...")
@json_option
def compare(runs: tuple[str, ...], json_: bool) -> None:
    """Set runs side by side: time, memory, cost by line, bytes, accuracy."""
    from slslab.execution import read_document
    from slslab.reports import tables

    if len(runs) < 2:
        raise RequestError("compare needs two runs.", "slslab compare last~1 last")
    documents = [read_document(run) for run in runs]
    print_document(documents, lambda: tables.comparison(documents), json_)


@root.command()
@run_argument
@click.option(
    "--prices", default="aws-us-east-1", show_default=True, metavar="BOOK", help="A price book by name, or a TOML file."
)
@json_option
def bill(run: str, prices: str, json_: bool) -> None:
    """The bill of a run, from its trace, by the prices of a book (aws-us-east-1, paper-2025, or a TOML file)."""
    from slslab.execution import bill_of
    from slslab.reports import tables

    document = bill_of(run, prices)
    print_document(document, lambda: tables.bill(document), json_)


@root.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--epochs", type=click.IntRange(1), help="Fit to so many first epochs of the runs (by default half).")
@click.option(
    "--cloudwatch",
    "reports",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Fit Lambda's processors and init to the REPORT lines of this log (text, JSON, or JSON lines).",
)
@click.option("--run", metavar="RUN", help="The recorded run that the REPORT lines are compared with.")
@click.option("--function", metavar="NAME", help="The function of the run whose log it is, if it has several.")
@click.option(
    "--profile",
    default="aws-us-east-1",
    show_default=True,
    help="The profile that the REPORT lines change, by name, or a TOML file.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The profile's file (by default ./this-host.toml, with --cloudwatch ./aws-calibrated.toml).",
)
@json_option
def calibrate(
    runs: tuple[str, ...],
    epochs: int | None,
    reports: Path | None,
    run: str | None,
    function: str | None,
    profile: str,
    out: Path | None,
    json_: bool,
) -> None:
    """Measure this host for replay: its processors, and the embedded S3, tensor database and queue.

    With RUNs, the profile of the host is fitted to what they recorded in their first epochs. With --cloudwatch,
    Lambda's processors are fitted to REPORT lines of a real function and the same plan's recorded run.

    \b
    slslab calibrate
    slslab calibrate last --epochs 2 --out laptop.toml
    slslab calibrate --cloudwatch reports.json --run last --function worker
    """
    from slslab import calibrating
    from slslab.reports import calibrations

    if reports is not None:
        if runs or run is None:
            raise RequestError("--cloudwatch needs one recorded run.", "slslab calibrate --cloudwatch FILE --run RUN")
        document = calibrating.calibrate_cloudwatch(reports, run, function, profile, out)
    elif run is not None or function is not None:
        raise RequestError("--run and --function belong to --cloudwatch.", "slslab calibrate RUN fits this host.")
    else:
        with Bar() as bar:
            document = (
                calibrating.calibrate_runs(runs, epochs, out, bar.report)
                if runs
                else calibrating.calibrate_host(out, bar.report)
            )
    print_document(document, lambda: calibrations.calibration(document), json_)


@root.command()
@json_option
def doctor(json_: bool) -> None:
    """Tell what this host can enforce and measure; exit code 3 if something that a run needs is missing."""
    from slslab.doctor import MISSING, examine
    from slslab.reports import tables

    findings = examine()
    print_document([asdict(finding) for finding in findings], lambda: tables.findings(findings), json_)
    if any(finding.needed and finding.state == MISSING for finding in findings):
        raise click.exceptions.Exit(3)


@root.command()
@json_option
def limits(json_: bool) -> None:
    """Lambda's limits as they are enforced here, each with its source, and whether AWS documents it."""
    from dataclasses import asdict

    from slslab.limits import bases, lambda_limits
    from slslab.reports import tables

    values, sources = asdict(lambda_limits()), bases()
    rows = {name: {"value": values[name], **asdict(sources[name])} for name in sources}
    print_document(
        {"version": values["version"], "limits": rows}, lambda: tables.limits(values["version"], rows), json_
    )


def _stack_option(default: str | None, text: str) -> Callable[[Any], Any]:
    return click.option(
        "--stack",
        type=click.Choice(["embedded", "compose"]),
        default=default,
        show_default=default is not None,
        help=text,
    )


@root.command()
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


@root.command()
@_stack_option(None, "End this one alone (by default whatever `slslab up` started).")
def down(stack: str | None) -> None:
    """End what `slslab up` started; its functions and objects are gone with it."""
    from slslab import composing, service

    ended = [
        stop() for kind, stop in (("embedded", service.stop), ("compose", composing.stop)) if stack in (None, kind)
    ]
    click.echo("slslab is down." if any(ended) else "slslab was not up.", err=True)


@root.command()
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


class RunGroup(click.Group):
    """`slslab run ARCH`: a command for every registered architecture, with its own options beside the common ones."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        from slslab.execution import architectures

        return list(architectures())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        from slslab.execution import architectures

        found = architectures()
        if cmd_name not in found:
            raise RequestError(f"There is no architecture {cmd_name!r}.", f"choose one of {', '.join(found)}.")
        architecture = found[cmd_name]
        own = [
            click.Option(
                [f"--{option.name}"],
                type=click.Choice(option.choices) if option.choices else option.type,
                default=None,
                is_flag=option.type is bool,
                help=_option_help(option),
            )
            for option in architecture.options
        ]

        def run(**values: Any) -> None:
            options = {option.name: values.pop(option.name.replace("-", "_")) for option in architecture.options}
            _run(cmd_name, values, {name: value for name, value in options.items() if value is not None})

        return click.Command(
            cmd_name, callback=run, params=[*_common_options(), *own], help=architecture.summary, no_args_is_help=False
        )


def _option_help(option: Option) -> str:
    released = "" if option.released is None else f"; with --as-released {option.released}"
    return f"{option.help} (by default {option.default}{released})"


def _common_options() -> list[click.Parameter]:
    def option(name: str, kind: Any = None, default: Any = None, *, help: str, **more: Any) -> click.Option:
        return click.Option([name], type=kind, default=default, help=help, show_default=default is not None, **more)

    return [
        option(
            "--model",
            help="lenet, mobilenet, resnet18, resnet50 or torchvision:NAME (by default lenet on digits, "
            "else mobilenet).",
        ),
        option("--dataset", default="digits", help="digits, cifar10, synthetic, or folder:PATH of class folders."),
        option("--workers", int, 4, help="Workers, n."),
        option("--batch-size", int, help="Images per minibatch and worker (by default 512, digits 64)."),
        option("--batches", int, help="Minibatches per worker and epoch (by default 24, digits 5)."),
        option("--epochs", int, 1, help="Epochs."),
        option("--seed", int, 0, help="Seed of the model, the partition and the augmentation."),
        option("--lr", float, 0.01, help="Learning rate of SGD."),
        option("--momentum", float, 0.9, help="Momentum of SGD."),
        option("--weight-decay", float, 5e-4, help="Weight decay of SGD."),
        option("--until-accuracy", float, help="Stop after the epoch whose test accuracy reaches this, 0..1."),
        option(
            "--early-stopping",
            is_flag=True,
            default=False,
            help="Stop when the validation loss has not improved "
            "for 10 epochs (a tenth of the training images is held out).",
        ),
        option("--memory", help="Memory size in MB (by default enough for the model); `paper` takes the paper's."),
        option("--timeout", int, 900, help="Time-out of a function, s."),
        option(
            "--mode",
            click.Choice(["long-running", "per-batch"]),
            "long-running",
            help="One invocation per worker that re-invokes itself before its time-out, or one per minibatch.",
        ),
        option(
            "--stack",
            click.Choice(["embedded", "compose"]),
            "embedded",
            help="embedded starts what the plan needs and ends it; compose runs on the stack that `slslab up --stack "
            "compose` or `docker compose up` started (its emulator is $SLSLAB_EMULATOR_URL, by default "
            "http://127.0.0.1:9001).",
        ),
        option(
            "--environment",
            click.Choice(["process", "docker"]),
            help="What functions run in: processes of this host, or containers (by default process with the embedded "
            "stack, docker with compose).",
        ),
        option("--invoke", click.Choice(["sync", "event"]), "sync", help="How the driver invokes the workers."),
        option(
            "--as-released",
            is_flag=True,
            default=False,
            help="What the authors' released code does, instead of the recommended defaults; see the room's options.",
        ),
        option(
            "--out",
            click.Path(path_type=Path),
            help="The run's directory itself (by default below $SLSLAB_RUNS or ./runs).",
        ),
        option("--prices", default="aws-us-east-1", metavar="BOOK", help="Price book of the bill."),
        click.Option(["--json", "json_"], is_flag=True, help="Print one JSON document on stdout and nothing else."),
    ]


def _run(name: str, values: dict[str, Any], options: dict[str, Any]) -> None:
    from slslab.execution import run_plan
    from slslab.reports import tables

    json_, out, prices = values.pop("json_"), values.pop("out"), values.pop("prices")
    with Bar() as bar:
        document = run_plan(name, values, options, out=out, book=prices, progress=bar)
    print_document(document, lambda: tables.summary(document), json_)
    if document["status"] != "done":
        raise click.exceptions.Exit(INTERRUPTED if document["error"]["type"] == "Interrupted" else 1)


root.add_command(replay)
root.add_command(ask)
root.add_command(reproduce)
root.add_command(
    RunGroup(
        "run",
        no_args_is_help=True,
        help="Run an architecture and print what it did and what it cost.\n\n"
        "slslab run scatterreduce --model lenet --dataset digits --epochs 5",
    )
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command `slslab`."""
    # A terminated command cleans up as an interrupted one does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = root.main(args=list(arguments) if arguments is not None else None, standalone_mode=False)
    except SlslabError as error:
        click.echo(f"Error: {error.message}\nHint: {error.hint}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = 2
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)
