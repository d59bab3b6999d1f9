"""`slslab accuracy ARCH`: what an architecture learns, without how long that takes."""

import shlex
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from slslab.cli.options import plot_option
from slslab.cli.run import RunGroup
from slslab.cli.terminal import Bar, json_option, print_document
from slslab.errors import counted
from slslab.reports.terminal.accuracy import curve
from slslab_workers.architecture import architectures

# Options of `slslab run` that decide what is learnt, unlike those of functions, stores and prices.
LEARNING = (
    "model",
    "dataset",
    "workers",
    "batch_size",
    "batches",
    "epochs",
    "seed",
    "lr",
    "momentum",
    "weight_decay",
    "until_accuracy",
    "early_stopping",
    "as_released",
    "memory_format",
)
DEFAULTS = {"dataset": "cifar10", "epochs": 30}
DEVICE = click.Option(
    ["--device"],
    type=click.Choice(["auto", "cuda", "cpu"]),
    default="auto",
    show_default=True,
    help="What computes; auto takes CUDA if torch finds it.",
)


class AccuracyGroup(RunGroup):
    """A command for every architecture, with those options of `slslab run` that decide what is learnt, and its own."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        running = super().get_command(ctx, cmd_name)
        specific = [option.name.replace("-", "_") for option in architectures()[cmd_name].options]
        params = [param for param in running.params if param.name in (*LEARNING, *specific)]
        for param in params:
            param.default = DEFAULTS.get(str(param.name), param.default)
        if "device" not in specific:
            params.append(DEVICE)
        common = [str(param.name) for param in params if param.name not in (*specific, "device")]

        def accuracy(out: Path | None, resume: bool, plot: Path | None, json_: bool, **values: Any) -> None:
            options = {name.replace("_", "-"): values[name] for name in specific if values[name] is not None}
            device = str(values["device"] or "auto")
            _accuracy(cmd_name, {name: values[name] for name in common}, options, device, out, resume, plot, json_)

        command = click.Command(
            cmd_name,
            callback=accuracy,
            params=params,
            help=f"{running.help}\n\nIn one process: options of stores, queues, functions and polling change nothing.",
        )
        return json_option(plot_option(_resume_option(_out_option(command))))


_out_option = click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="The curve's directory (by default results/accuracy/ARCH-MODEL-DATASET).",
)
_resume_option = click.option(
    "--resume", is_flag=True, help="Continue the curve in the directory; --epochs may be larger than before."
)


def _accuracy(
    name: str,
    values: dict[str, Any],
    options: dict[str, Any],
    device: str,
    out: Path | None,
    resume: bool,
    plot: Path | None,
    json_: bool,
) -> None:
    from slslab.accuracy.curve import make_curve
    from slslab.reports.plots.lines import check_format, draw_curve

    check_format(plot)
    with Bar() as bar:
        document = make_curve(
            name, values, options, device=device, out=out, resume=resume, command=command_line(), watcher=bar
        )
    print_document(document, lambda: curve(document), json_)
    if plot is not None and document["epochs"]:
        draw_curve(document, plot)
    if document["status"] == "interrupted":
        kept = len(document["epochs"])
        state = f"{counted(kept, 'epoch')} kept, --resume continues" if kept else "no epoch was completed"
        click.echo(f"Interrupted: {state}.", err=True)
        raise click.Abort


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
                words += [param.opts[0], str(value)]
    return shlex.join(words)


accuracy = AccuracyGroup(
    "accuracy",
    no_args_is_help=True,
    help="What an architecture learns: its update rules run in one process, on CUDA when there is one.\n\n"
    "The same minibatches, gradients, sums, filters and updates as `slslab run`, without functions, stores and queues: "
    "accuracy by epoch, without the time that an epoch takes, which `slslab replay` models. After every epoch the "
    "curve is in its directory; --resume continues a command that was interrupted.\n\n"
    "slslab accuracy spirt --dataset folder:DIR --epochs 30",
)
