"""What a question is about: recorded runs, each with the platform, variant and price book that it is replayed with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from slslab.errors import RequestError
from slslab.predict.processor import UNANCHORED
from slslab.predict.profiles.profile import Profile, load_profile
from slslab.predict.uncertainty import Uncertainty
from slslab.run.bill import DEFAULT_BOOK, Book, load_book
from slslab.run.directory import resolve
from slslab_lab.replay.fitting import NAME as THIS_HOST
from slslab_lab.replay.kernel.timeline import Timeline
from slslab_lab.replay.measured import Measured, read_measured
from slslab_lab.replay.outcome import Totals
from slslab_lab.replay.ranges import with_processor
from slslab_lab.replay.whatif import Platform, Row, Variant, check_memory, evaluate, modelled, simulate
from slslab_workers.architecture import architectures
from slslab_workers.training.algorithms import is_asynchronous

SCHEMA = 1


@dataclass(frozen=True)
class ReplaySetup:
    """A recorded run, the platform and the variant that it is replayed on, and the prices of its bill."""

    run: Measured
    platform: Platform
    variant: Variant
    prices: Book

    @property
    def name(self) -> str:
        """The run's id."""
        return self.run.plan.run

    def vary(self, **changes: Any) -> "ReplaySetup":
        """Return the same with changes of the variant."""
        return replace(self, variant=replace(self.variant, **changes))

    def simulate(self, profile: Profile) -> tuple[Timeline, Totals]:
        """Return the variant's timeline and outcome on a profile."""
        return simulate(self.run, self.variant, profile)

    def row(self, point: tuple[int | None, int | None]) -> Row:
        """Return the row of the variant with so many workers and MB, by the setup's prices; None is as recorded."""
        variant = replace(self.variant, workers=point[0], memory_mb=point[1])
        row = evaluate(self.run, variant, replace(self.platform, book=self.prices))
        return row if self.prices == self.platform.book else priced(row, self.prices)

    def document(self, **more: Any) -> dict[str, Any]:
        """Return a document with what every answer says of its run, its profile and its prices."""
        plan, profile = self.run.plan, self.platform.profile
        return {
            "schema": SCHEMA,
            "run": plan.run,
            "architecture": plan.architecture,
            "workers": plan.workers,
            "memory_mb": plan.memory_mb,
            "peak_memory_mb": self.run.peak_memory_mb,
            "torch": self.run.document["torch"],
            "oversubscribed": self.run.document["host"]["oversubscribed"],
            "alone": self.run.document.get("alone"),
            "asynchronous": is_asynchronous(plan.options),
            "processor": self._processor(),
            "profile": {"name": profile.name, "date": profile.date.isoformat()},
            "network": self.variant.network.name if self.variant.network else None,
            "prices": {"name": self.prices.name, "date": self.prices.date.isoformat()},
            "timeout_s": self.platform.timeout_s,
            **more,
        }

    def _processor(self) -> dict[str, Any] | None:
        if not self.platform.profile.compute.kinds and self.platform.profile.compute.speed.status != "assumed":
            return None
        processor = self.run.processor or UNANCHORED
        return {"name": processor.name, "form": processor.form, "anchors": dict(processor.anchors)}


@dataclass(frozen=True)
class Asked:
    """The runs that a question is about, of which most have one; `on` is where to compute (`sweep`), None for here."""

    setups: tuple[ReplaySetup, ...]
    on: str | None
    sweep: Callable[..., list[Any]]

    @property
    def setup(self) -> ReplaySetup:
        """The first run."""
        return self.setups[0]

    def play(self, label: str, points: Sequence[Any], function: Callable[[Any], Any]) -> list[Any]:
        """Return what a function of these runs returns at every point, with a labelled bar if there are several."""
        return self.sweep(label, points, function, self.on, self.setups)


def figure(value: float | Decimal, uncertainty: Uncertainty | None = None) -> dict[str, Any]:
    """Return a modelled figure for a document, with its 80 % range if its uncertainty is given."""
    return modelled(value, uncertainty).as_document()


def priced(row: Row, book: Book) -> Row:
    """Return the row with a label that names its price book."""
    return replace(row, label=f"{row.label}, priced by {book.name}")


def read_setup(
    run: str,
    profile: str,
    network: str | None,
    prices: str | None,
    arch: str | None,
    timeout: float | None = None,
    concurrency: int | None = None,
    straggler: tuple[int, float] | None = None,
) -> ReplaySetup:
    """Return the run and what it is replayed on, as the options say."""
    platform, book = load_profile(profile), load_book(DEFAULT_BOOK)
    measured = read_measured(resolve(run).path, architectures())
    channels = None
    if network is not None:
        channels = measured.host_profile() if network == THIS_HOST else load_profile(network)
    _check_functions(measured, arch=arch, concurrency=concurrency, timeout=timeout)
    return ReplaySetup(
        measured,
        Platform(
            with_processor(platform, measured.processor), book, measured.plan.timeout if timeout is None else timeout
        ),
        Variant(arch=arch, network=channels, concurrency=concurrency, straggler=straggler),
        book if prices is None else load_book(prices),
    )


def _check_functions(measured: Measured, **options: object) -> None:
    option = next((name for name, value in options.items() if value is not None), None)
    if option is not None and not measured.invocations:
        raise RequestError(
            f"{measured.plan.run} ran on instances, to which --{option} does not apply.", "replay a run of functions."
        )


def read_memory(measured: Measured, text: str | None, usual: Sequence[int] = ()) -> tuple[int, ...]:
    """Return memory sizes, MB, as given or the usual ones.

    RequestError for a size that Lambda does not have, and if all are smaller than what the run's functions used."""
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
