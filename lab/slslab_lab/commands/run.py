"""`slslab run ARCH | PLAN.toml`: a command for every registered architecture, and one for plans of earlier runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slslab.cli.terminal import Bar, print_document
from slslab.errors import RequestError
from slslab.installation import require
from slslab.up.options import ACCOUNT_HELP, STRICT_HELP
from slslab_workers.architecture import architectures, unusable
from slslab_workers.models import registered
from slslab_workers.option import Option
from slslab_workers.plan import CHOICES, Plan

if TYPE_CHECKING:
    from slslab.run.document import RunDocument

# A plan field's default is the option's default.
DEFAULTS = {field.name: None if field.default is MISSING else field.default for field in fields(Plan)}


class _GroupedCommand(click.Command):
    """A command with its options under headings; the last heading also has --help."""

    def __init__(self, name: str, groups: Mapping[str, Sequence[click.Parameter]], **settings: Any) -> None:
        super().__init__(name, params=[option for options in groups.values() for option in options], **settings)
        self._groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        *_, last = self._groups
        for title, options in self._groups.items():
            shown = [*options, *filter(None, [self.get_help_option(ctx) if title == last else None])]
            if records := [record for option in shown if (record := option.get_help_record(ctx))]:
                with formatter.section(title):
                    formatter.write_dl(records)


class RunGroup(click.Group):
    """`slslab run ARCH`: a command for every registered architecture, with its own and the common options."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        require("torch")
        return list(architectures())

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List, below the architectures, registered ones that can't be imported."""
        super().format_epilog(ctx, formatter)
        for name, why in unusable().items():
            formatter.write_paragraph()
            formatter.write_text(f"{name} is registered, too, but can't be run: {why}")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:  # noqa: ARG002
        require("torch")
        known = architectures()
        if why := unusable().get(cmd_name):
            raise RequestError(f"The architecture {cmd_name!r} cannot be run: {why}", "fix its package, or remove it.")
        if cmd_name not in known:
            raise RequestError(f"There is no architecture {cmd_name!r}.", f"choose one of {', '.join(known)}.")
        architecture = known[cmd_name]
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
        names = [option.name for option in architecture.options]

        def run(**values: Any) -> None:
            from slslab_lab.runs.execution import run_plan

            options = {name: values.pop(name.replace("-", "_")) for name in names}
            chosen = {name: value for name, value in options.items() if value is not None}
            out, book, json_ = values.pop("out"), values.pop("prices"), values.pop("json_")
            strict = values.pop("strict_packages")
            reuse = values["record"] is None
            if reuse:
                # A cluster's nodes and compose's containers aren't this host's processes; faults keep replay away.
                own = values["environment"] != "ray" and values["stack"] == "embedded" and not values["faults"]
                values["record"] = "alone" if own else "together"
            given: Any = {"out": out, "book": book, "reuse": reuse, "strict": strict}
            _run(lambda bar: run_plan(cmd_name, values, chosen, progress=bar, say=bar.say, **given), json_)

        groups: Mapping[str, Sequence[click.Parameter]] = {
            "Training": _plan_options(architecture.workers_also),
            f"Options of {architecture.title or cmd_name}": own,
            "Functions and services": _host_options(),
            "Output": _output_options(f"by default {Plan.prices}; with --platform the platform's"),
        }
        return _GroupedCommand(cmd_name, groups, callback=run, help=architecture.summary, no_args_is_help=False)


class RunOrPlanGroup(RunGroup):
    """`slslab run ARCH | PLAN.toml`: a name with a / or ending in .toml is a plan, any other an architecture."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        if not (cmd_name.endswith(".toml") or "/" in cmd_name):
            return super().get_command(ctx, cmd_name)

        def run(
            others: tuple[str, ...], out: Path | None, prices: str | None, json_: bool, strict_packages: bool
        ) -> None:
            from slslab_lab.runs import execution
            from slslab_lab.runs.planning import load_plan

            if others:
                raise RequestError(
                    f"{others[0]} doesn't apply to a plan, which contains every option of its run.",
                    "change the plan's file, or leave that out: only --out, --prices, --json and "
                    "--strict-packages can be given.",
                )
            plan = load_plan(Path(cmd_name), prices)
            given: Any = {"out": out, "strict": strict_packages}
            _run(lambda bar: execution.run(plan, progress=bar, say=bar.say, **given), json_)

        return click.Command(
            cmd_name,
            callback=run,
            params=[
                _strict_option(),
                *_output_options("by default the plan's"),
                click.Argument(["others"], nargs=-1, type=click.UNPROCESSED, metavar=""),
            ],
            context_settings={"ignore_unknown_options": True},
            help="Run this plan again, as a new run.",
        )


def _option_help(option: Option) -> str:
    released = "" if option.released is None else f"; with --as-released {option.released}"
    return f"{option.help} (by default {option.default}{released})"


def _option(
    name: str, kind: Any = None, default: Any = None, *, help: str, also: tuple[str, ...] = (), **more: Any
) -> click.Option:
    default = DEFAULTS.get(name.partition("/")[0].removeprefix("--").replace("-", "_")) if default is None else default
    return click.Option([name, *also], type=kind, default=default, help=help, show_default=default is not None, **more)


def _plan_options(workers_also: tuple[str, ...]) -> list[click.Parameter]:
    """Return the training options of every architecture (`slslab_lab.runs.planning.make_plan`)."""
    own = registered()
    return [
        _option(
            "--model",
            help="lenet, mobilenet, resnet18, resnet34 or resnet50 for images, lr or svm for rows; "
            "or your own: module:function, or its registered name (docs/own.md). By default lenet on grey images, "
            "mobilenet on colour images, lr on rows." + (f" Registered: {', '.join(own)}." if own else ""),
        ),
        _option(
            "--dataset",
            default="digits",
            help="digits, mnist5k, cifar10, synthetic, or folder:PATH of class folders; "
            "rows of features: breast-cancer, higgs-shaped, rcv1-shaped, or libsvm:FILE; "
            "your own: FILE.csv[:LABEL[:regression]], FILE.npz, module:function, or a registered name (docs/own.md).",
        ),
        _option("--workers", int, help="Workers, n.", also=workers_also),
        _option(
            "--batch-size", int, help="Samples per minibatch and worker (by default 512, of small data sets fewer)."
        ),
        _option(
            "--batches",
            int,
            help="Minibatches per worker and epoch (by default 24, digits 5, mnist5k 15, all of a file).",
        ),
        _option("--epochs", int, help="Epochs."),
        _option("--seed", int, help="Seed of the model, the partition and the augmentation."),
        _option("--lr", float, help="Learning rate of SGD."),
        _option("--momentum", float, help="Momentum of SGD."),
        _option("--weight-decay", float, help="Weight decay of SGD."),
        _option(
            "--memory-format",
            click.Choice(CHOICES["memory_format"]),
            help="How models and minibatches lie in memory: default is PyTorch's, as in the papers' code; "
            "channels-last stores the channels of a pixel next to each other, which speeds up convolutions on CPUs "
            "(docs/architectures.md).",
        ),
        _option(
            "--evaluation/--no-evaluation",
            help="Let the driver measure the test accuracy after each epoch; this is in neither time nor bill.",
        ),
        click.Option(
            ["--record"],
            type=click.Choice(CHOICES["record"]),
            help="CPU seconds for replay: from a solo profile (alone), where one worker does a few "
            "steps before the run, or from the run (together), in which workers slow each other down (docs/replay.md). "
            "By default a solo profile that is kept for the next run of the same work; `--record alone` measures anew.",
        ),
        _option("--until-accuracy", float, help="Stop after the first epoch with this test accuracy, 0..1."),
        _option(
            "--early-stopping",
            is_flag=True,
            help="Stop when the validation loss has not improved "
            "for 10 epochs (a tenth of the training images is held out).",
        ),
    ]


def _host_options() -> list[click.Parameter]:
    return [
        _option(
            "--memory",
            int,
            also=("memory_mb",),
            help="Memory size in MB (by default enough for the model, or the platform's).",
        ),
        click.Option(
            ["--timeout"],
            type=int,
            help=f"Time-out of a function, s (by default {Plan.timeout}; with --platform the platform's).",
        ),
        click.Option(
            ["--platform"],
            metavar="NAME",
            help="A platform of functions with GPUs, such as modal-t4, with its limits and prices "
            "(docs/serverless-gpus.md). Here functions compute on a GPU if torch sees one, else on the CPU.",
        ),
        _option(
            "--mode",
            click.Choice(CHOICES["mode"]),
            help="One invocation per worker that re-invokes itself before its time-out, or one per minibatch.",
        ),
        _option(
            "--stack",
            click.Choice(CHOICES["stack"]),
            help="embedded starts what the plan needs and stops it; compose runs on the stack that `slslab up --stack "
            "compose` or `docker compose up` started (its emulator is $SLSLAB_EMULATOR_URL, by default "
            "http://127.0.0.1:9001).",
        ),
        click.Option(
            ["--environment"],
            type=click.Choice(CHOICES["environment"]),
            help="Where functions run: processes of this host, containers, or processes on the nodes of the Ray "
            "cluster that this host belongs to (by default process with the embedded stack, docker with compose).",
        ),
        _option(
            "--placement",
            click.Choice(CHOICES["placement"]),
            help="With --environment ray: environments spread over the nodes (the default), or fill one before the "
            "next.",
        ),
        _strict_option(),
        _option("--account", metavar="ACCOUNT", help=ACCOUNT_HELP),
        _option(
            "--faults",
            click.Path(path_type=Path),
            metavar="FILE",
            help="Fault plan, a TOML file: workers are killed or slowed down, requests refused, at the same moments in "
            'every run. One of its tables [[fault]] has kind = "kill", worker = 1, epoch = 0; docs/reliability.md has '
            "all kinds.",
        ),
        _option("--invoke", click.Choice(CHOICES["invoke"]), help="How the driver invokes the workers."),
        _option(
            "--as-released",
            is_flag=True,
            help="Behave like the authors' released code instead of the recommended defaults; see the architecture's "
            "options.",
        ),
    ]


def _strict_option() -> click.Option:
    kept = "The packages of the workers' image stay, PyTorch among them."
    return click.Option(["--strict-packages"], is_flag=True, help=f"{STRICT_HELP} {kept}")


def _output_options(default: str) -> list[click.Parameter]:
    return [
        click.Option(
            ["--out"],
            type=click.Path(path_type=Path),
            help="The run's directory itself (by default below $SLSLAB_RUNS or ./runs).",
        ),
        click.Option(
            ["--prices"],
            metavar="BOOK",
            help=f"Price book of the bill: a name or a TOML file ({default}).",
        ),
        click.Option(["--json", "json_"], is_flag=True, help="Print one JSON document on stdout and nothing else."),
    ]


def _run(start: "Callable[[Bar], RunDocument]", json_: bool) -> None:
    from slslab.report.run import brief
    from slslab_lab.runs.processor import measure_first

    with Bar() as bar:
        if not json_ and bar.on_terminal:
            measure_first(bar)
        document = start(bar)
    print_document(document, lambda: brief(document), json_)
    if trouble := document["report"]["error"]:
        click.echo(f"The run's page couldn't be written. {trouble}\nHint: `slslab report` tries again.", err=True)
    if document["error"] is not None:
        if document["status"] == "interrupted":
            raise click.Abort
        raise click.exceptions.Exit(1)


run = RunOrPlanGroup(
    "run",
    no_args_is_help=True,
    subcommand_metavar="ARCH | PLAN.toml [OPTIONS]",
    help="Run an architecture and print what it did and what it cost.\n\n"
    "slslab run scatterreduce --model lenet --dataset digits --epochs 5\n\n"
    "Each run saves its plan.toml. To repeat the run: slslab run runs/RUN/plan.toml\n\n"
    "To inject faults, give a fault plan (docs/reliability.md): slslab run spirt --faults faults.toml",
)
