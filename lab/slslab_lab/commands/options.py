"""Shared parts of commands: options, progress over many points, and the errors of a replay."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slslab.cli.terminal import Bar, json_option
from slslab.errors import RunError
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab_lab.pages.pictures import check_format
from slslab_lab.runs.sweeps.results import Results
from slslab_lab.runs.sweeps.sweep import LOCAL, check_place, sweep

if TYPE_CHECKING:
    from slslab_lab.questions.setup import ReplaySetup


def list_option(name: str, text: str, default: str | None = None) -> Callable[[Any], Any]:
    """Return an option that takes a list of numbers."""
    return click.option(name, default=default, show_default=default is not None, metavar="LIST", help=text)


memory_option = list_option("--memory", "Memory sizes of the training functions, MB: 512,1024.")


def directory_option(name: str, text: str, *also: str) -> Callable[[Any], Any]:
    """Return an option that names a directory; `also` are other names, and its argument's name."""
    return click.option(name, *also, type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help=text)


def file_option(name: str, text: str, *also: str, **more: Any) -> Callable[[Any], Any]:
    """Return an option that names a file."""
    return click.option(name, *also, type=click.Path(path_type=Path), metavar="FILE", help=text, **more)


def converted(convert: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a callback that passes the value of an option through a function, if it was given."""
    return lambda _context, _parameter, value: None if value is None else convert(value)


plot_option = file_option("--plot", "Draw it: a .svg, .png or .pdf file.", callback=converted(check_format))
on_option = click.option(
    "--on",
    metavar="PLACE",
    callback=converted(check_place),
    help="Compute over many cores: local (this host's), ray (of this machine's Ray cluster) or "
    "ray://HOST:PORT; slow results are kept and reused. By default one after another.",
)


# Accuracies are recorded with the host that trains.
train_on_option = click.option(
    "--on",
    type=click.Choice([LOCAL]),
    help="Train several at once, on this host's processors. By default one after another.",
)

# Side by side they would compete for processors.
measure_on_option = click.option(
    "--on",
    metavar="PLACE",
    callback=converted(check_place),
    help="Make the runs on a Ray cluster, one at a time on each node: ray (that this machine is a node of) or "
    "ray://HOST:PORT. local, as by default, makes them one after another here: side by side on one host they would "
    "compete for processors.",
)


def with_options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator that adds these options to a command, in the order of its help."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


platform_option = click.option(
    "--profile",
    default=DEFAULT_PROFILE,
    show_default=True,
    metavar="PROFILE",
    help="The platform: a name or a TOML file.",
)

# A run with --platform is replayed there by default.
replay_platform_option = click.option(
    "--profile",
    metavar="PROFILE",
    help=f"The platform: a name or a TOML file (by default the run's --platform, or else {DEFAULT_PROFILE}).",
)

gpu_platform_option = click.option(
    "--platform",
    metavar="NAME",
    help="Functions with GPUs, and their prices: modal-t4 and others (docs/serverless-gpus.md).",
)

# Options of replay and every question: the platform and the prices.
platform_options = with_options(
    click.option("--arch", type=click.Choice(["x86_64", "arm64"]), help="Functions on these processors."),
    click.option("--prices", metavar="BOOK", help="Another price book, by name, or a TOML file."),
    click.option(
        "--network",
        metavar="PROFILE",
        help="Take stores, queues and transitions from this profile; this-host is fitted to the run itself.",
    ),
    replay_platform_option,
    gpu_platform_option,
    json_option,
)


class Amount(click.FloatRange):
    """A range of numbers, without `nan`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value} is not a number.", param, ctx)
        return number


@contextmanager
def replayable(run: str) -> Iterator[None]:
    """Raise RunError if a replay can't finish."""
    from slslab_lab.replay.kernel.kernel import ReplayError

    try:
        yield
    except ReplayError as error:
        raise RunError(f"{run} cannot be replayed: {error.message}", error.hint) from error
    except OverflowError as error:
        raise RunError(f"{run} cannot be replayed: its figures are too large.", "run the plan again.") from error


def with_progress(
    label: str,
    points: Sequence[Any],
    function: Callable[[Any], Any],
    on: str | None = None,
    bound: "Sequence[ReplaySetup]" = (),
) -> list[Any]:
    """Return a function's results at all points, with a bar on stderr if there are several.

    `on` is where to compute (`sweep`), None for this process. Elsewhere results are kept, identified by the setups
    `bound` to the function.
    """
    if on is None and len(points) == 1:
        return [function(points[0])]
    results = None if on is None else _results(function, bound)
    with Bar() as bar:
        return sweep(function, points, on, partial(bar.report, label), results)


def _results(function: Callable[[Any], Any], setups: "Sequence[ReplaySetup]") -> Results:
    inputs = [
        text
        for setup in setups
        for text in (setup.run.directory.digest(), repr(setup.platform), repr(setup.variant), repr(setup.prices))
    ]
    # A replay depends on the architecture's pattern, so its package identifies the results, too.
    packages = {type(setup.run.architecture).__module__.partition(".")[0] for setup in setups}
    return Results(function, inputs, sorted(packages))
