"""`slslab replay`: what a recorded run would have been on Lambda, and every what-if without running it again."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from slslab.errors import RequestError, RunError
from slslab.terminal import Bar, json_option, print_document, run_argument

if TYPE_CHECKING:
    from slslab.billing import Book
    from slslab.replay.measured import Measured
    from slslab.replay.profiles import Profile
    from slslab.replay.whatif import Platform, Row, Variant

PLATFORM = "aws-us-east-1"
THIS_HOST = "this-host"
SCHEMA = 1
Command = TypeVar("Command", bound=Callable[..., Any])

memory_option = click.option("--memory", metavar="LIST", help="Memory sizes of the training functions, MB: 512,1024.")
plot_option = click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw it: a .svg, .png or .pdf file.",
)


def directory_option(name: str, text: str) -> Callable[[Command], Command]:
    """An option that names a directory."""
    return click.option(name, type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help=text)


def platform_options(command: Command) -> Command:
    """What a run is played on and priced by: options that replay and every question have."""
    for option in (
        json_option,
        click.option(
            "--profile",
            default=PLATFORM,
            show_default=True,
            metavar="PROFILE",
            help="The platform: a name or a TOML file.",
        ),
        click.option(
            "--network",
            metavar="PROFILE",
            help="Take stores, queues and transitions from this profile; this-host is fitted to the run itself.",
        ),
        click.option("--prices", metavar="BOOK", help="Another price book, by name, or a TOML file."),
        click.option("--arch", type=click.Choice(["x86_64", "arm64"]), help="Functions on these processors."),
    ):
        command = option(command)
    return command


@dataclass(frozen=True)
class Scene:
    """A run with all that it is to be played on."""

    run: "Measured"
    platform: "Platform"
    variant: "Variant"
    prices: "Book"

    def row(self, **changes: Any) -> "Row":
        """The row of a variant, with what was asked for and these changes, by the prices that were asked for."""
        from slslab.replay.whatif import evaluate

        variant = replace(self.variant, **changes)
        row = evaluate(self.run, variant, replace(self.platform, book=self.prices))
        return row if self.prices == self.platform.book else priced(row, self.prices)

    def document(self, **more: Any) -> dict[str, Any]:
        """What every answer says of its run, its profile and its prices."""
        profile = self.platform.profile
        return {
            "schema": SCHEMA,
            "run": self.run.plan.run,
            "architecture": self.run.plan.architecture,
            "workers": self.run.plan.workers,
            "memory_mb": self.run.plan.memory_mb,
            "peak_memory_mb": self.run.peak_memory_mb,
            "oversubscribed": self.run.document["host"]["oversubscribed"],
            "profile": {"name": profile.name, "date": profile.date.isoformat()},
            "network": self.variant.network.name if self.variant.network else None,
            "prices": {"name": self.prices.name, "date": self.prices.date.isoformat()},
            "timeout_s": self.platform.timeout_s,
            **more,
        }


def priced(row: "Row", book: "Book") -> "Row":
    """A row whose label says that it has other prices than the usual ones."""
    return replace(row, label=f"{row.label}, priced by {book.name}")


@contextmanager
def replayable(run: str) -> Iterator[None]:
    """What cannot be played to its end is a RunError; options that a pattern does not cover are a RequestError."""
    from slslab.replay.kernel import ReplayError
    from slslab_workers.plan import PlanError

    try:
        yield
    except PlanError as error:
        raise RequestError(error.message, error.hint) from error
    except ReplayError as error:
        raise RunError(f"{run} cannot be replayed: {error}", "run the plan again.") from error


def read_scene(
    run: str,
    profile: str,
    network: str | None,
    prices: str | None,
    arch: str | None,
    timeout: float | None = None,
    concurrency: int | None = None,
) -> Scene:
    """The run and what it is to be played on, as the options say."""
    from slslab.billing import load_book
    from slslab.execution import DEFAULT_BOOK, architectures
    from slslab.replay.measured import read_measured
    from slslab.replay.profiles import load_profile
    from slslab.replay.whatif import Platform, Variant
    from slslab.runs import resolve

    platform = load_profile(profile)
    book = load_book(DEFAULT_BOOK)
    wanted = load_book(prices) if prices else book
    measured = read_measured(resolve(run).path, architectures())
    channels = _network(network, measured)
    _check_functions(measured, arch=arch, concurrency=concurrency, timeout=timeout)
    return Scene(
        measured,
        Platform(platform, book, measured.plan.timeout if timeout is None else timeout),
        Variant(arch=arch, network=channels, concurrency=concurrency),
        wanted,
    )


def _network(name: str | None, measured: "Measured") -> "Profile | None":
    from slslab.replay.profiles import load_profile

    if name is None:
        return None
    return measured.host_profile() if name == THIS_HOST else load_profile(name)


def _check_functions(measured: "Measured", **given: object) -> None:
    """RequestError for an option of functions where the run has none."""
    option = next((name for name, value in given.items() if value is not None), None)
    if option is not None and not measured.recording.invocations:
        raise RequestError(
            f"{measured.plan.run} ran on instances, which have no --{option}.", "replay a run of functions."
        )


def read_numbers(option: str, text: str | None, least: int, most: int) -> tuple[int, ...]:
    """A list such as 4,8,16; RequestError if it is malformed, or a number is out of its range."""
    if text is None:
        return ()
    try:
        numbers = tuple(int(part.replace("_", "")) for part in text.split(","))
    except ValueError:
        raise RequestError(
            f"{option} {text!r} is no list of whole numbers.", f"separate them by commas: {option} 4,8,16."
        ) from None
    for number in numbers:
        if not least <= number <= most:
            raise RequestError(f"{option} {number} is out of range.", f"choose from {least} to {most}.")
    return tuple(dict.fromkeys(numbers))


def read_memory(measured: "Measured", text: str | None, usual: Sequence[int] = ()) -> tuple[int, ...]:
    """Memory sizes, MB, as given or the usual ones.

    RequestError for one that Lambda does not have, and if all are less than the run's functions used."""
    from slslab.replay.whatif import check_memory

    if text is not None or usual:
        _check_functions(measured, memory=True)
    sizes = tuple(map(check_memory, read_numbers("--memory", text, 1, 1_000_000))) or tuple(usual)
    if sizes and max(sizes) < measured.peak_memory_mb:
        raise RequestError(
            f"The run's functions used {measured.peak_memory_mb} MB at their peak, more than {max(sizes)} MB.",
            f"choose a --memory of at least {measured.peak_memory_mb} MB.",
        )
    return sizes


def with_progress(label: str, tasks: Sequence[Any], do: Callable[[Any], Any]) -> list[Any]:
    """Do every task, with a bar on stderr if there are several."""
    if len(tasks) == 1:
        return [do(tasks[0])]
    done = []
    with Bar() as bar:
        for number, task in enumerate(tasks, 1):
            done.append(do(task))
            bar.report(label, number, len(tasks))
    return done


def modelled(value: float | str) -> dict[str, Any]:
    """A figure that rests on a played time."""
    return {"value": value, "basis": "modelled"}


def draw(path: Path | None, rows: Iterable["Row"], title: str) -> None:
    """Write a picture of the rows, if one was asked for."""
    if path is not None:
        from slslab.reports.plots import check_format, draw_rows

        check_format(path)
        draw_rows([row for row in rows if row.figures], title, path)


@click.command()
@run_argument
@memory_option
@click.option("--workers", metavar="LIST", help="Numbers of workers, up to 4096: 4,8,16,4096.")
@click.option("--timeout", type=click.FloatRange(0, 900, min_open=True), help="Time-out of a function, s.")
@click.option("--concurrency", type=click.IntRange(1), help="Environments of the account that may be busy at once.")
@plot_option
@platform_options
def replay(
    run: str,
    memory: str | None,
    workers: str | None,
    timeout: float | None,
    concurrency: int | None,
    plot: Path | None,
    profile: str,
    network: str | None,
    prices: str | None,
    arch: str | None,
    json_: bool,
) -> None:
    """What a run would have been on Lambda, and with other memory, processors, workers or prices.

    \b
    slslab replay                                     the last run: as measured, and as modelled on Lambda
    slslab replay last --memory 512,1024,1769,3008    with less and more memory, and with it CPU
    slslab replay last --workers 8,64,1024            with more workers than ran
    slslab replay last --arch arm64 --prices paper-2025
    slslab replay last --network this-host            with the stores of the host that recorded it
    slslab ask --help                                 questions: the cheapest size, who waits, what crosses where

    Nothing runs again: the trace's CPU seconds, bytes and causes are played on a profile of the platform. Several lists
    give every combination. Each figure is measured, exact (prices, rounding, counts) or modelled, and says which.
    """
    from slslab.replay.whatif import LARGEST_FLEET, as_document, evaluate, measured_row
    from slslab.reports import replays

    fleets = read_numbers("--workers", workers, 1, LARGEST_FLEET)
    scene = read_scene(run, profile, network, prices, arch, timeout, concurrency)
    sizes = read_memory(scene.run, memory)
    platform = scene.platform
    rows = [measured_row(scene.run, platform.book, platform.timeout_s)]
    if scene.prices != platform.book:
        rows.append(priced(measured_row(scene.run, scene.prices, platform.timeout_s), scene.prices))
    plain = type(scene.variant)()
    with replayable(scene.run.plan.run):
        rows.append(evaluate(scene.run, plain, platform))
        changes = [
            {"memory_mb": size, "workers": count} for count, size in product(fleets or (None,), sizes or (None,))
        ]
        same = scene.variant == plain and scene.prices == platform.book
        if not same or fleets or sizes:
            rows += with_progress("playing variants", changes, lambda change: scene.row(**change))
    document = scene.document(rows=[as_document(row) for row in rows])
    draw(plot, rows, f"{scene.run.plan.run} on {platform.profile.name}")
    print_document(document, lambda: replays.replay(document), json_)
