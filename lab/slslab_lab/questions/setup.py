"""The subject of a question: recorded runs, each with the platform, variant and price book for its replay."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from slslab.aws.limits import lambda_limits
from slslab.errors import RequestError, read_numbers
from slslab.predict.processor import UNANCHORED
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import Profile, load_platform, load_profile
from slslab.predict.uncertainty import Uncertainty
from slslab.run.bill import DEFAULT_BOOK, Book, load_book
from slslab.run.directory import resolve
from slslab.run.run import Run
from slslab_lab.replay.fitting import NAME as THIS_HOST
from slslab_lab.replay.gpus import check_book, with_gpus
from slslab_lab.replay.kernel.timeline import Timeline
from slslab_lab.replay.measured import Measured, read_measured
from slslab_lab.replay.outcome import Totals
from slslab_lab.replay.ranges import with_processor
from slslab_lab.replay.whatif import Platform, Row, Variant, evaluate, modelled, simulate
from slslab_workers.training.algorithms import is_asynchronous

SCHEMA = 1


@dataclass(frozen=True)
class ReplaySetup:
    """A recorded run, the platform and variant to replay it on, and the prices for its bill."""

    run: Measured
    platform: Platform
    variant: Variant
    prices: Book

    @property
    def name(self) -> str:
        """The run's id."""
        return self.run.plan.run

    def vary(self, **changes: Any) -> "ReplaySetup":
        """Return a copy with changes to the variant."""
        return replace(self, variant=replace(self.variant, **changes))

    def simulate(self, profile: Profile) -> tuple[Timeline, Totals]:
        """Return the variant's timeline and outcome on a profile."""
        return simulate(self.run, self.variant, profile)

    def row(self, point: tuple[int | None, int | None]) -> Row:
        """Return the row of the variant with these workers and MB, at the setup's prices; None means as recorded."""
        variant = replace(self.variant, workers=point[0], memory_mb=point[1])
        row = evaluate(self.run, variant, replace(self.platform, book=self.prices))
        return row if self.prices == self.platform.book else priced(row, self.prices)

    def document(self, **more: Any) -> dict[str, Any]:
        """Return a document with the run, profile and prices that every answer states."""
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
    """The runs of a question, usually one; `on` says where to compute (see `sweep`), None for this host."""

    setups: tuple[ReplaySetup, ...]
    on: str | None
    sweep: Callable[..., list[Any]]

    @property
    def setup(self) -> ReplaySetup:
        """The first run."""
        return self.setups[0]

    def warned(self, fleets: Sequence[int | None]) -> dict[str, list[str]]:
        """Return the warnings of the runs with these numbers of workers (None means as recorded), for a document."""
        warnings = [text for setup in self.setups for workers in fleets for text in setup.run.warnings(workers)]
        return {"warnings": warnings} if warnings else {}

    def play(self, label: str, points: Sequence[Any], function: Callable[[Any], Any]) -> list[Any]:
        """Return a function of these runs at every point, with a labelled progress bar if there are several points."""
        return self.sweep(label, points, function, self.on, self.setups)


def figure(value: float | Decimal, uncertainty: Uncertainty | None = None) -> dict[str, Any]:
    """Return a modelled figure for a document, with its 80 % range if its uncertainty is given."""
    return modelled(value, uncertainty).as_document()


def priced(row: Row, book: Book) -> Row:
    """Return the row with a label that names its price book."""
    return replace(row, label=f"{row.label}, priced by {book.name}")


def read_setup(
    run: str,
    profile: str | None,
    network: str | None,
    prices: str | None,
    arch: str | None,
    timeout: float | None = None,
    concurrency: int | None = None,
    straggler: tuple[int, float] | None = None,
    platform: str | None = None,
) -> ReplaySetup:
    """Return the run and the platform that the options ask to replay it on, by default the run's own.

    RequestError for a run that the platform can't have, and if no anchor says how long its GPU takes.
    """
    measured = read_measured(resolve(run).path)
    chosen = choose(platform, profile, measured)
    plan, containers, is_own = measured.plan, chosen.containers, chosen == measured.platform
    _check_functions(measured, arch=arch, concurrency=concurrency, timeout=timeout)
    book = load_book(DEFAULT_BOOK)
    usual_s: float = min(plan.timeout, lambda_limits().timeout_s.maximum)
    if containers is not None:
        _check_functions(measured, **{"profile" if platform is None else "platform": chosen.name})
        if arch not in (None, "x86_64"):
            raise RequestError(f"{chosen.name} has only x86_64 processors.", "leave out --arch.")
        if prices is not None:
            check_book(containers, load_book(prices))
        book = load_book(plan.prices if is_own else containers.prices)
        usual_s = plan.timeout if is_own else containers.timeout_s.value
    channels = None
    if network is not None:
        channels = measured.host_profile() if network == THIS_HOST else load_profile(network)
    try:
        played_on = with_gpus(with_processor(chosen, measured.processor), measured, measured.program)
    except RequestError as error:
        if containers is None or (platform, profile) != (None, None):
            raise
        hint = f"{error.hint.rstrip('.')}; or model the run on Lambda with --profile {DEFAULT_PROFILE}."
        raise RequestError(error.message, hint) from error
    return ReplaySetup(
        measured,
        Platform(played_on, book, usual_s if timeout is None else timeout),
        Variant(arch=arch, network=channels, concurrency=concurrency, straggler=straggler),
        book if prices is None else load_book(prices),
    )


def choose(platform: str | None, profile: str | None, run: Run) -> Profile:
    """Return the profile of --platform or --profile, or else the run's own, or else Lambda's.

    RequestError if both are given, or for a platform that has no functions with GPUs.
    """
    if platform is not None and profile is not None:
        raise RequestError("--platform and --profile both name a platform.", "give one of them.")
    if platform is not None:
        return load_platform(platform)
    return (run.platform if profile is None else None) or load_profile(profile or DEFAULT_PROFILE)


def _check_functions(measured: Measured, **options: object) -> None:
    option = next((name for name, value in options.items() if value is not None), None)
    if option is not None and not measured.invocations:
        raise RequestError(
            f"{measured.plan.run} ran on instances, so --{option} doesn't apply.", "replay a run of functions."
        )


def read_memory(setup: ReplaySetup, text: str | None, usual: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the given or the usual memory sizes, MB; RequestError if none of them is possible for the run."""
    measured, platform, limit = setup.run, setup.platform.profile, lambda_limits().memory_mb
    if text is not None or usual:
        _check_functions(measured, memory=True)
        if platform.containers is not None:
            of_lambda = "leave out --platform" if measured.platform is None else f"choose --profile {DEFAULT_PROFILE}"
            raise RequestError(
                f"On {platform.name} all functions have {platform.size(0)[0]} MB.",
                f"{of_lambda}." if text is None else f"leave out --memory, or {of_lambda}.",
            )
    sizes = read_numbers("--memory", text, limit.minimum, limit.maximum, " MB") or tuple(usual)
    peak_mb = measured.peak_memory_mb
    if sizes and max(sizes) < peak_mb:
        raise RequestError(
            f"The run's functions used {peak_mb} MB at their peak, more than {max(sizes)} MB.",
            f"choose a --memory of at least {peak_mb} MB.",
        )
    return sizes
