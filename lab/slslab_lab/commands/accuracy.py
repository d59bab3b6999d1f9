"""`slslab accuracy ARCH`: how accurate an architecture's training is, without its time."""

from pathlib import Path
from typing import Any

import click

from slslab.cli.terminal import Bar, json_option, print_document
from slslab.errors import counted
from slslab_lab.commands.options import directory_option, plot_option
from slslab_lab.commands.run import RunGroup
from slslab_lab.pages.accuracy import curve
from slslab_workers.architecture import architectures

# Options of `slslab run` that affect learning, unlike options of functions, stores and prices.
LEARNING = (
    *("model", "dataset", "workers", "batch_size", "batches", "epochs", "seed", "lr", "momentum", "weight_decay"),
    *("until_accuracy", "early_stopping", "as_released", "memory_format"),
)
DEFAULTS = {"epochs": 30}
DEVICE = click.Option(
    ["--device"],
    type=click.Choice(["auto", "cuda", "cpu"]),
    default="auto",
    show_default=True,
    help="The device to train on; auto uses CUDA if torch finds it.",
)


class AccuracyGroup(RunGroup):
    """A command for every architecture, with its own options and the options of `slslab run` that affect learning."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        running = super().get_command(ctx, cmd_name)
        architecture = architectures()[cmd_name]
        specific = [option.name.replace("-", "_") for option in architecture.options]
        params = [param for param in running.params if param.name in (*LEARNING, *specific)]
        for param in params:
            param.default = DEFAULTS.get(str(param.name), param.default)
        if "device" not in specific:
            params.append(DEVICE)
        common = [str(param.name) for param in params if param.name not in (*specific, "device")]

        def accuracy(out: Path | None, resume: bool, plot: Path | None, json_: bool, **values: Any) -> None:
            from slslab_lab.runs.accuracy.curve import make_curve
            from slslab_lab.studies.kept import typed_command

            options = {name.replace("_", "-"): values[name] for name in specific if values[name] is not None}
            chosen, device = {name: values[name] for name in common}, str(values["device"] or "auto")
            with Bar() as bar:
                made_of: dict[str, Any] = {"device": device, "out": out, "resume": resume, "command": typed_command()}
                document = make_curve(cmd_name, chosen, options, watcher=bar, **made_of)
            _show(document, plot, json_)

        command = click.Command(
            cmd_name,
            callback=accuracy,
            params=params,
            help=f"{running.help}\n\nIn one process: options of stores, queues, functions and polling have no effect.",
        )
        made: click.Command = json_option(plot_option(_resume_option(_out_option(command))))
        return made


_out_option = directory_option("--out", "The curve's directory (by default results/accuracy/ARCH-MODEL-DATASET).")
_resume_option = click.option(
    "--resume", is_flag=True, help="Continue the curve in the directory; --epochs may be larger than before."
)


def _show(document: dict[str, Any], plot: Path | None, json_: bool) -> None:
    from slslab_lab.pages.pictures import draw_curve

    print_document(document, lambda: curve(document), json_)
    if plot is not None and document["epochs"]:
        draw_curve(document, plot)
    if document["status"] == "interrupted":
        kept = len(document["epochs"])
        state = f"{counted(kept, 'epoch')} kept, --resume continues" if kept else "no epoch was completed"
        click.echo(f"Interrupted: {state}.", err=True)
        raise click.Abort


accuracy = AccuracyGroup(
    "accuracy",
    no_args_is_help=True,
    help="Train with an architecture's update rules in one process, on CUDA if available.\n\n"
    "The same minibatches, gradients, sums, filters and updates as `slslab run`, without functions, stores and queues: "
    "accuracy by epoch, without the time of an epoch, which `slslab replay` models. Every epoch is saved; "
    "--resume continues an interrupted command.\n\n"
    "slslab accuracy spirt --dataset folder:DIR --epochs 30",
)
