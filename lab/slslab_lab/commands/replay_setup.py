"""What `slslab replay` and `slslab ask` replay: a recorded run with a profile of the platform and a price book."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slslab.cli.terminal import Bar
from slslab.errors import RequestError, RunError
from slslab_lab.commands.options import read_numbers
from slslab_workers.training.algorithms import is_asynchronous

if TYPE_CHECKING:
    from slslab.predict.uncertainty import Uncertainty
    from slslab.run.bill import Book
    from slslab_lab.replay.measured import Measured
    from slslab_lab.replay.whatif import Platform, Row, Variant
    from slslab_lab.runs.sweeps.results import Results

THIS_HOST = "this-host"
SCHEMA = 1


@dataclass(frozen=True)
class ReplaySetup:
    """A recorded run, the platform and the variant that it is replayed on, and the prices of its bill."""

    run: "Measured"
    platform: "Platform"
    variant: "Variant"
    prices: "Book"

    def row(self, point: tuple[int | None, int | None]) -> "Row":
        """Return the row of the variant with so many workers and this memory size, MB, by the prices that were asked
        for; None is as recorded."""
        from slslab_lab.replay.whatif import evaluate

        variant = replace(self.variant, workers=point[0], memory_mb=point[1])
        row = evaluate(self.run, variant, replace(self.platform, book=self.prices))
        return row if self.prices == self.platform.book else priced(row, self.prices)

    def documents(self, rows: "Sequence[Row]") -> list[dict[str, Any]]:
        """Return rows as parts of a document."""
        from slslab_lab.replay.whatif import as_document

        return [as_document(row) for row in rows]

    def document(self, **more: Any) -> dict[str, Any]:
        """Return a document with what every answer says of its run, its profile and its prices."""
        profile = self.platform.profile
        return {
            "schema": SCHEMA,
            "run": self.run.plan.run,
            "architecture": self.run.plan.architecture,
            "workers": self.run.plan.workers,
            "memory_mb": self.run.plan.memory_mb,
            "peak_memory_mb": self.run.peak_memory_mb,
            "torch": self.run.document["torch"],
            "oversubscribed": self.run.document["host"]["oversubscribed"],
            "alone": self.run.document.get("alone"),
            "asynchronous": is_asynchronous(self.run.plan.options),
            "processor": self._processor(),
            "profile": {"name": profile.name, "date": profile.date.isoformat()},
            "network": self.variant.network.name if self.variant.network else None,
            "prices": {"name": self.prices.name, "date": self.prices.date.isoformat()},
            "timeout_s": self.platform.timeout_s,
            **more,
        }

    def _processor(self) -> dict[str, Any] | None:
        """Return what the recording host's processor was compared by; None if the profile has a speed of its own."""
        from slslab.predict.processor import UNANCHORED

        if not self.platform.profile.compute.kinds and self.platform.profile.compute.speed.status != "assumed":
            return None
        processor = self.run.processor or UNANCHORED
        return {"name": processor.name, "form": processor.form, "anchors": dict(processor.anchors)}


def priced(row: "Row", book: "Book") -> "Row":
    """Return the row with a label that names its price book."""
    return replace(row, label=f"{row.label}, priced by {book.name}")


@contextmanager
def replayable(run: str) -> Iterator[None]:
    """Raise RunError for what cannot be played to its end, RequestError for options that a pattern does not cover."""
    from slslab_lab.replay.kernel.kernel import ReplayError
    from slslab_lab.runs.planning import refused_plans

    try:
        with refused_plans():
            yield
    except ReplayError as error:
        raise RunError(f"{run} cannot be replayed: {error}", "run the plan again.") from error
    except OverflowError as error:
        raise RunError(f"{run} cannot be replayed: its figures are too large.", "run the plan again.") from error


def read_setup(
    run: str,
    profile: str,
    network: str | None,
    prices: str | None,
    arch: str | None,
    timeout: float | None = None,
    concurrency: int | None = None,
) -> ReplaySetup:
    """Return the run and what it is replayed on, as the options say."""
    from slslab.predict.profiles.profile import load_profile
    from slslab.run.bill import DEFAULT_BOOK, load_book
    from slslab.run.directory import resolve
    from slslab_lab.replay.measured import read_measured
    from slslab_lab.replay.ranges import with_processor
    from slslab_lab.replay.whatif import Platform, Variant
    from slslab_lab.runs.planning import architectures

    platform, book = load_profile(profile), load_book(DEFAULT_BOOK)
    measured = read_measured(resolve(run).path, architectures())
    channels = None
    if network is not None:
        channels = measured.host_profile() if network == THIS_HOST else load_profile(network)
    _check_functions(measured, arch=arch, concurrency=concurrency, timeout=timeout)
    return ReplaySetup(
        measured,
        Platform(
            with_processor(platform, measured.processor),
            book,
            measured.plan.timeout if timeout is None else timeout,
        ),
        Variant(arch=arch, network=channels, concurrency=concurrency),
        book if prices is None else load_book(prices),
    )


def _check_functions(measured: "Measured", **options: object) -> None:
    """Raise RequestError for an option of functions if the run has none."""
    option = next((name for name, value in options.items() if value is not None), None)
    if option is not None and not measured.invocations:
        raise RequestError(
            f"{measured.plan.run} ran on instances, to which --{option} does not apply.", "replay a run of functions."
        )


def read_memory(measured: "Measured", text: str | None, usual: Sequence[int] = ()) -> tuple[int, ...]:
    """Return memory sizes, MB, as given or the usual ones.

    RequestError for a size that Lambda does not have, and if all are smaller than what the run's functions used."""
    from slslab_lab.replay.whatif import check_memory

    if text is not None or usual:
        _check_functions(measured, memory=True)
    sizes = tuple(map(check_memory, read_numbers("--memory", text, 1, 1_000_000))) or tuple(usual)
    peak_mb = measured.peak_memory_mb
    if sizes and max(sizes) < peak_mb:
        raise RequestError(
            f"The run's functions used {peak_mb} MB at their peak, more than {max(sizes)} MB.",
            f"choose a --memory of at least {peak_mb} MB.",
        )
    return sizes


def with_progress(
    label: str,
    points: Sequence[Any],
    function: Callable[[Any], Any],
    on: str | None = None,
    bound: "Sequence[ReplaySetup | None]" = (),
) -> list[Any]:
    """Return what a function returns at every point, with a bar on stderr if there are several.

    `on` is where to compute (`sweep`), None for this process; elsewhere results are kept, by what is `bound` to the
    function.
    """
    from slslab_lab.runs.sweeps.sweep import sweep

    if on is None and len(points) == 1:
        return [function(points[0])]
    results = None if on is None else _results(function, [setup for setup in bound if setup is not None])
    with Bar() as bar:
        return sweep(function, points, on, partial(bar.report, label), results)


def _results(function: Callable[[Any], Any], setups: Sequence[ReplaySetup]) -> "Results":
    """Return what is kept of a function to which these are bound."""
    from slslab_lab.runs.sweeps.results import Results

    inputs = [
        text
        for setup in setups
        for text in (setup.run.directory.digest(), repr(setup.platform), repr(setup.variant), repr(setup.prices))
    ]
    # The patterns that are replayed are the architectures'.
    packages = {type(setup.run.architecture).__module__.partition(".")[0] for setup in setups}
    return Results(function, inputs, sorted(packages))


def modelled(value: float | str, uncertainty: "Uncertainty | None" = None) -> dict[str, Any]:
    """Return a figure that rests on a replayed time, with its 80 % range if its uncertainty is given."""
    figure: dict[str, Any] = {"value": value, "basis": "modelled"}
    if uncertainty is not None:
        figure["low"], figure["high"] = uncertainty.around(float(value))
    return figure


def draw(path: Path | None, rows: Iterable["Row"], title: str) -> None:
    """Draw the rows, if a picture was asked for."""
    from slslab_lab.pages.plots.lines import check_format, draw_rows

    check_format(path)
    if path is not None:
        draw_rows([row for row in rows if row.figures], title, path)
