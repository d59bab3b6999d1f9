"""Options that several commands share."""

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import click

from slslab.cli.terminal import json_option
from slslab.errors import RequestError
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab_lab.runs.sweeps.sweep import LOCAL, check_place

memory_option = click.option("--memory", metavar="LIST", help="Memory sizes of the training functions, MB: 512,1024.")

plot_option = click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw it: a .svg, .png or .pdf file.",
)


def read_place(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Return where to compute, None for this process; RequestError for what is no place."""
    return None if value is None else check_place(value)


on_option = click.option(
    "--on",
    metavar="PLACE",
    callback=read_place,
    help="Compute over many cores: local (this host's), ray (of the cluster that this machine is a node of) or "
    "ray://HOST:PORT; what takes long is kept, and not computed again. By default one after another.",
)


# What is learnt is recorded with the host that trains.
train_on_option = click.option(
    "--on",
    type=click.Choice([LOCAL]),
    help="Train several at once, on this host's processors. By default one after another.",
)

# Beside each other they would take each other's processors.
measure_on_option = click.option(
    "--on",
    metavar="PLACE",
    callback=read_place,
    help="Make the runs on a Ray cluster, one at a time on each node: ray (that this machine is a node of) or "
    "ray://HOST:PORT. local, as by default, makes them one after another here: side by side on one host they would "
    "take each other's processors.",
)


def directory_option(name: str, text: str) -> Callable[[Any], Any]:
    """Return an option that names a directory."""
    return click.option(name, type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help=text)


def with_options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what adds these options to a command, in the order of its help."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


platform_option = click.option(
    "--profile",
    default=DEFAULT_PROFILE,
    show_default=True,
    metavar="PROFILE",
    help="The platform: a name or a TOML file.",
)

# What a run is played on and priced by: options that replay and every question have.
platform_options = with_options(
    click.option("--arch", type=click.Choice(["x86_64", "arm64"]), help="Functions on these processors."),
    click.option("--prices", metavar="BOOK", help="Another price book, by name, or a TOML file."),
    click.option(
        "--network",
        metavar="PROFILE",
        help="Take stores, queues and transitions from this profile; this-host is fitted to the run itself.",
    ),
    platform_option,
    json_option,
)


class Amount(click.FloatRange):
    """A range of numbers, which what is not a number (`nan`) is not in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value} is not a number.", param, ctx)
        return number


def read_numbers(option: str, text: str | None, least: int, most: int) -> tuple[int, ...]:
    """Return the numbers of a list such as 4,8,16; RequestError if it is malformed, or one is out of its range."""
    if text is None:
        return ()
    try:
        numbers = tuple(int(part.replace("_", "")) for part in text.split(","))
    except ValueError:
        raise RequestError(
            f"{option} {text[:60]!r} is not a list of whole numbers.", f"separate them by commas: {option} 4,8,16."
        ) from None
    for number in numbers:
        if not least <= number <= most:
            raise RequestError(f"{option} {number} is out of range.", f"choose from {least} to {most}.")
    return tuple(dict.fromkeys(numbers))
