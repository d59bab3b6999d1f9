"""`slslab accuracy ARCH`: how accurate an architecture's training is, without its time."""

import shlex
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from slslab.cli.terminal import Bar, json_option, print_document
from slslab.errors import RequestError, counted
from slslab_lab.commands.options import plot_option, train_on_option
from slslab_lab.commands.run import RunGroup
from slslab_lab.pages.accuracy import curve, several_curves
from slslab_workers.architecture import architectures

if TYPE_CHECKING:
    from slslab_lab.runs.accuracy.several import Curves, Varied

# Options of `slslab run` that affect learning, unlike options of functions, stores and prices.
LEARNING = (
    *("model", "dataset", "workers", "batch_size", "batches", "epochs", "seed", "lr", "momentum", "weight_decay"),
    *("until_accuracy", "early_stopping", "as_released", "memory_format"),
)
DEFAULTS = {"epochs": 30}
# Options that may have several values; each combination gives a curve.
LISTS = ("seed", "threshold")
DEVICE = click.Option(
    ["--device"],
    type=click.Choice(["auto", "cuda", "cpu"]),
    default="auto",
    show_default=True,
    help="The device to train on; auto uses CUDA if torch finds it.",
)


class Several(click.ParamType[tuple[Any, ...]]):
    """Values of another type, separated by commas, each once."""

    name = "list"

    def __init__(self, of: click.ParamType[Any]) -> None:
        self.of = of

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        parts = value.split(",") if isinstance(value, str) else [value]
        return tuple(dict.fromkeys(self.of.convert(part, param, ctx) for part in parts))


class AccuracyGroup(RunGroup):
    """A command for every architecture, with its own options and the options of `slslab run` that affect learning."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        running = super().get_command(ctx, cmd_name)
        architecture = architectures()[cmd_name]
        names = [*(option.name for option in architecture.options), *architecture.lacks]
        specific = [name.replace("-", "_") for name in names]
        params = [param for param in running.params if param.name in (*LEARNING, *specific)]
        for param in params:
            param.default = DEFAULTS.get(str(param.name), param.default)
            if param.name in LISTS:
                param.type, param.metavar = Several(param.type), "LIST"
        if "device" not in specific:
            params.append(DEVICE)
        common = [str(param.name) for param in params if param.name not in (*specific, "device")]

        def accuracy(
            out: Path | None, resume: bool, on: str | None, plot: Path | None, json_: bool, **values: Any
        ) -> None:
            from slslab_lab.runs.accuracy.several import Curves

            options = {name.replace("_", "-"): values[name] for name in specific if values[name] is not None}
            chosen, device = {name: values[name] for name in common}, str(values["device"] or "auto")
            folder = (out or Path("results", "accuracy")).absolute()
            curves = Curves(cmd_name, chosen, options, device, folder, resume, command_line())
            _accuracy(curves, out, on, plot, json_)

        command = click.Command(
            cmd_name,
            callback=accuracy,
            params=params,
            help=f"{running.help}\n\nIn one process: options of stores, queues, functions and polling have no effect.",
        )
        return json_option(plot_option(train_on_option(_resume_option(_out_option(command)))))


_out_option = click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="The curve's directory (by default results/accuracy/ARCH-MODEL-DATASET), or the folder of several.",
)
_resume_option = click.option(
    "--resume", is_flag=True, help="Continue the curve in the directory; --epochs may be larger than before."
)


def _accuracy(curves: "Curves", out: Path | None, on: str | None, plot: Path | None, json_: bool) -> None:
    from slslab_lab.pages.pictures import draw_curve

    given = {**curves.values, **curves.options}
    lists = {option: given[option] for option in LISTS if option in given}
    varied = [tuple(zip(lists, each, strict=True)) for each in product(*lists.values())]
    if len(varied) > 1:
        _several(curves, varied, on, plot, json_)
        return
    if on is not None:
        raise RequestError("One curve is trained in one process, not with --on.", "give several seeds: --seed 0,1,2.")
    with Bar() as bar:
        document = curves.make_one(varied[0], out, bar)
    print_document(document, lambda: curve(document), json_)
    if plot is not None and document["epochs"]:
        draw_curve(document, plot)
    if document["status"] == "interrupted":
        kept = len(document["epochs"])
        state = f"{counted(kept, 'epoch')} kept, --resume continues" if kept else "no epoch was completed"
        click.echo(f"Interrupted: {state}.", err=True)
        raise click.Abort


def _several(curves: "Curves", varied: "list[Varied]", on: str | None, plot: Path | None, json_: bool) -> None:
    if plot is not None:
        raise RequestError("A picture shows one curve.", "leave out --plot, or give one value of each option.")
    try:
        with Bar() as bar:
            made = curves.make(varied, on, partial(bar.report, "training curves"))
    except KeyboardInterrupt:
        click.echo("Interrupted: complete epochs are kept, --resume continues.", err=True)
        raise
    document = {"schema": 1, "folder": str(curves.folder), "curves": made}
    print_document(document, lambda: several_curves(document), json_)


def command_line() -> str:
    """Return the command as it was typed: its explicit options, in the order of the help."""
    context = click.get_current_context()
    words = ["slslab", *context.command_path.split()[-2:]]
    for param in context.command.params:
        assert param.name is not None
        if context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE:
            value = context.params[param.name]
            if isinstance(value, bool):
                words.append(param.opts[0] if value else param.secondary_opts[0])
            else:
                values = value if isinstance(value, tuple) else (value,)
                words += [param.opts[0], ",".join(map(str, values))]
    return shlex.join(words)


accuracy = AccuracyGroup(
    "accuracy",
    no_args_is_help=True,
    help="Train with an architecture's update rules in one process, on CUDA if available.\n\n"
    "The same minibatches, gradients, sums, filters and updates as `slslab run`, without functions, stores and queues: "
    "accuracy by epoch, without the time of an epoch, which `slslab replay` models. Every epoch is saved; "
    "--resume continues an interrupted command.\n\n"
    "slslab accuracy spirt --dataset folder:DIR --epochs 30\n\n"
    "slslab accuracy mlless --seed 0,1,2 --threshold 0.2,0.7 --on local",
)
