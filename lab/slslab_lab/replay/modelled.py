"""The modelled part of a run's document: the same run on Lambda, or on the platform that its plan names, with its trace
played on the platform's profile, and priced."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log
from typing import Any

from slslab.aws.limits import lambda_limits
from slslab.errors import SlslabError
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import Profile, load_profile
from slslab.predict.uncertainty import Uncertainty
from slslab.run import metrics
from slslab.run.bill import Bill, Book, compute_bill
from slslab.run.document import Crossing, ModelledWorker, Range, not_modelled
from slslab.run.metrics import Records
from slslab.run.run import Run
from slslab_lab.replay.gpus import with_gpus
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.timeline import Timeline
from slslab_lab.replay.outcome import Totals, outcome
from slslab_lab.replay.path import critical_path, describe
from slslab_lab.replay.programs.recorded import make_program
from slslab_lab.replay.programs.recording import check, processor_of
from slslab_lab.replay.ranges import figures_of, find_uncertainties, with_processor
from slslab_lab.replay.whatif import SIZES, over_timeout, with_memory

# Named figures: init and duration of a function.
INIT, TIMEOUT = "init of ", "duration of "
# Limits how long a large run waits for the replays with other memory sizes, to about 3 s.
STEPS = 400_000


def model(recording: Run, book: Book) -> dict[str, Any]:
    """Return the modelled part of a document; if the trace can't be replayed, it says why.

    Seconds are modelled, and so are the costs that depend on them; requests that aren't polls are exact.
    """
    try:
        return _model(recording, book)
    except SlslabError as error:
        return {**not_modelled(str(error))}
    except Exception as error:
        # A finished run keeps its results even if its model fails for an unknown reason.
        return {**not_modelled(f"Its trace could not be replayed ({type(error).__name__}: {error}).")}


def play_on_platform(recording: Run) -> Timeline:
    """Play the run on its platform's profile, by default AWS's; RunError or ReplayError if that isn't possible.

    A run on GPUs computes as fast as the anchor of its kind of GPU says; RequestError without an anchor.
    """
    check(recording)
    program = make_program(recording)
    profile = with_processor(recording.platform or load_profile(DEFAULT_PROFILE), processor_of(recording))
    return play(program, with_gpus(profile, recording, program))


def _model(recording: Run, book: Book) -> dict[str, Any]:
    timeline = play_on_platform(recording)
    profile, played = timeline.profile, outcome(timeline, recording.arch)
    bill = _bill(recording, played, book)

    def play_figures(profile: Profile) -> dict[str, float]:
        moved = outcome(play(timeline.program, profile), recording.arch)
        return {**figures_of(moved, _bill(recording, moved, book)), **longest(moved.invocations)}

    plain, calls = figures_of(played, bill), longest(played.invocations)
    # Only Lambda limits init.
    limited = calls if profile.containers is None else {name: calls[name] for name in calls if INIT not in name}
    uncertainties = find_uncertainties(
        {**plain, **calls}, play_figures, profile, processor_of(recording), bool(recording.instances)
    )
    return {
        "status": "modelled",
        "profile": {"name": profile.name, "date": profile.date.isoformat()},
        "seconds": round(played.seconds, 6),
        "billed_seconds": round(played.billed_seconds, 3),
        "ranges": {name: _range(uncertainties[name].around(value)) for name, value in plain.items()},
        "uncertainty": {name: uncertainties[name].as_document() for name in plain},
        "gb_seconds": format(played.gb_seconds, "f"),
        "cold_starts": played.cold_starts,
        "waiting_share": round(played.waiting_share, 4),
        "critical_path": describe(critical_path(timeline)),
        "per_worker": [_rounded(worker) for worker in played.workers],
        "cost": bill.as_document(),
        "memory_sizes": list(_memory_sizes(recording, timeline, book)),
        "limits": list(crossings(limited, uncertainties, recording.invocations, recording.plan.timeout)),
    }


def longest(records: Records) -> dict[str, float]:
    """Return the seconds of each function's longest init and invocation, as named figures."""
    found: dict[str, float] = {}
    for record in records:
        times = (INIT, record["init_ms"] or 0.0), (TIMEOUT, record["duration_ms"])
        for prefix, ms in times:
            name = prefix + record["function"]
            found[name] = max(found.get(name, 0.0), ms / 1000)
    return found


def crossings(
    played: Mapping[str, float],
    uncertainties: Mapping[str, Uncertainty],
    records: Sequence[Mapping[str, Any]],
    timeout_s: float,
) -> Iterator[Crossing]:
    """Yield the limits that a run kept here although its 80 % range on Lambda exceeds them, and the reverse.

    `played` comes from `longest`, and `uncertainties` are its figures'; `records` are the run's metered invocations.
    While a run is recorded, limits count in the recording host's seconds.
    """
    here = longest(records)
    limits = {INIT: lambda_limits().init_s, TIMEOUT: timeout_s}
    for name, value in played.items():
        prefix = INIT if name.startswith(INIT) else TIMEOUT
        limit_s, function = limits[prefix], name.removeprefix(prefix)
        low, high = uncertainties[name].around(value)
        kept = here.get(name, 0.0) <= limit_s and not _exceeded(records, function, prefix)
        if high > limit_s if kept else low <= limit_s:
            yield {
                "function": function,
                "limit": "init" if prefix == INIT else "timeout",
                "limit_seconds": limit_s,
                "kept_here": kept,
                **_range((low, high)),
            }


def _range(ends: tuple[float, float]) -> Range:
    low, high = ends
    return {"low": float(f"{low:.6g}"), "high": float(f"{high:.6g}")}


def _bill(recording: Run, played: Totals, book: Book) -> Bill:
    hosts = [kind for kind, _ in metrics.hosts(recording.events)]
    return compute_bill(played.as_usage(hosts, metrics.driver_requests(recording.events)), book)


def _memory_sizes(recording: Run, timeline: Timeline, book: Book) -> Iterator[Mapping[str, Any]]:
    """Yield the run's time and cost for each memory size of its training functions, including its own.

    Skip sizes below their measured peak, and sizes at which an invocation would exceed the time-out. A large run is
    only played with the sizes closest to its own. Instances, and containers with a GPU, have one size.
    """
    plan, program = recording.plan, timeline.program
    if not recording.invocations or recording.platform is not None:
        return
    others = [size for size in SIZES if size >= recording.peak_memory_mb and size != plan.memory_mb]
    others.sort(key=lambda size: abs(log(size / plan.memory_mb)))
    for size in sorted((plan.memory_mb, *others[: STEPS // max(1, len(timeline.steps))])):
        played = outcome(play(with_memory(program, plan.memory_mb, size), timeline.profile), recording.arch)
        if not over_timeout(played.invocations, plan.timeout):
            cost = _bill(recording, played, book).as_document()["total"]
            yield {"memory_mb": size, "seconds": round(played.seconds, 6), "cost": cost}


def _rounded(worker: ModelledWorker) -> ModelledWorker:
    parts = worker["parts"]
    return {
        "worker": worker["worker"],
        "seconds": round(worker["seconds"], 6),
        "billed_seconds": round(worker["billed_seconds"], 3),
        "parts": {
            "init": round(parts["init"], 6),
            "compute": round(parts["compute"], 6),
            "transfer": round(parts["transfer"], 6),
            "waiting": round(parts["waiting"], 6),
        },
    }


def _exceeded(records: Iterable[Mapping[str, Any]], function: str, prefix: str) -> bool:
    """Return whether a function exceeded a limit here: it repeated its init in the invocation, or timed out."""
    own = (record for record in records if record["function"] == function)
    if prefix == INIT:
        return any(record["cold_start"] and record["init_ms"] is None for record in own)
    return any(record["error_type"] == "Sandbox.Timedout" for record in own)
