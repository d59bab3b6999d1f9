"""What the commands of `slslab reproduce` share: their options, and how they save and print a reproduction."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from slslab.cli.terminal import json_option, print_document
from slslab.errors import RequestError
from slslab_lab.commands.options import directory_option, with_options
from slslab_lab.studies import MODELS

REPLAYED = "replayed"
# The profile that published tables are fitted on, and the price book. Only their names are the same.
PUBLISHED = BOOK = "aws-us-east-1"
FIDELITIES = ("sampled", "full", REPLAYED)

models_option = click.option(
    "--model", "models", multiple=True, type=click.Choice(MODELS), help="Only this model (by default both)."
)
profile_option = click.option(
    "--profile", default=PUBLISHED, show_default=True, metavar="PROFILE", help="The platform of the model."
)
prices_option = click.option(
    "--prices", default=BOOK, show_default=True, metavar="BOOK", help="Prices of the whole bill."
)
recordings_option = directory_option("--recordings", "Read Table 2's runs here (by default the project's own).")
replayed_out_option = directory_option("--out", "Where the tables go (by default reproduce-NAME-replayed beside runs).")


def fidelity_option(text: str) -> Callable[[Any], Any]:
    """Return the option of how much is measured now."""
    return click.option(
        "--fidelity", type=click.Choice(FIDELITIES), default=FIDELITIES[0], show_default=True, help=text
    )


def reproduction(name: str, *options: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], click.Command]:
    """Return what makes a command of a function, with these options in the order of its help, and --json."""
    return lambda function: click.command(name)(with_options(*options, json_option)(function))


def alone_error() -> RequestError:
    """Return the error of --on where runs are made or read."""
    return RequestError(
        "--on does not apply here: runs that are measured need the host to themselves, and recordings take seconds.",
        "leave it out.",
    )


def check_recordings(recordings: Path | None, fidelity: str) -> None:
    """Raise RequestError if recordings are given that would not be read."""
    if recordings is not None and fidelity != REPLAYED:
        raise RequestError("--recordings needs --fidelity replayed.", "add it, or leave out --recordings.")


def check_trainings(recordings: Path | None, fidelity: str, on: str | None) -> None:
    """Raise RequestError if recordings are given that would not be read, or a place that would compute nothing."""
    check_recordings(recordings, fidelity)
    if fidelity == REPLAYED and on is not None:
        raise alone_error()


def folder(name: str, fidelity: str = REPLAYED) -> Path:
    """Return where a reproduction is saved unless --out says otherwise."""
    from slslab.run.directory import root

    return root() / f"reproduce-{name}-{fidelity}"


def finish(document: Mapping[str, Any], directory: Path, json_: bool, show: Callable[[Any], Any] | None = None) -> None:
    """Save a reproduction and print it, as `show` does or else as its tables."""
    from slslab_lab.pages.reproduction import reproduction as tables
    from slslab_lab.studies.saving import save

    saved = save(document, directory)
    print_document(document, lambda: (show or tables)(document), json_)
    click.echo(f"Saved: {', '.join(map(str, saved))}", err=True)
