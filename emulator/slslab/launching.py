"""`slslab run ARCH`: a command for every registered architecture."""

from pathlib import Path
from typing import Any

import click

from slslab.errors import RequestError
from slslab.terminal import INTERRUPTED, Bar, print_document
from slslab_workers.architecture import Option
from slslab_workers.plan import MEMORY_FORMATS


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
                [f"--{option.name}/--no-{option.name}" if option.type is bool else f"--{option.name}"],
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
        option(
            "--memory-format",
            click.Choice(MEMORY_FORMATS),
            "default",
            help="How models and minibatches lie in memory: default is PyTorch's, as in the papers' code; "
            "channels-last has the channels of a pixel beside each other, which convolutions on CPUs are faster with "
            "(docs/architectures.md).",
        ),
        option(
            "--evaluation/--no-evaluation",
            default=True,
            help="Test accuracy after each epoch, by the driver, outside of time and bill.",
        ),
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
    if trouble := document["report"]["error"]:
        click.echo(f"The run's page could not be written. {trouble}\nHint: `slslab report` tries again.", err=True)
    if document["status"] != "done":
        raise click.exceptions.Exit(INTERRUPTED if document["error"]["type"] == "Interrupted" else 1)


run = RunGroup(
    "run",
    no_args_is_help=True,
    help="Run an architecture and print what it did and what it cost.\n\n"
    "slslab run scatterreduce --model lenet --dataset digits --epochs 5",
)
