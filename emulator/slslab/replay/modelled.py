"""The part of a run's document about the same run on Lambda: its trace played on the profile of AWS, and priced."""

from collections.abc import Mapping
from typing import Any

from slslab.billing.bill import Book, compute_bill
from slslab.errors import RunError, SlslabError
from slslab.replay.accuracy import stated_error
from slslab.replay.kernel.kernel import ReplayError, play
from slslab.replay.outcome import WorkerFigures, outcome
from slslab.replay.path import critical_path
from slslab.replay.profiles.profile import load_profile
from slslab.replay.programs.recorded import make_program
from slslab.replay.programs.recording import Recording, check
from slslab.trace import metrics
from slslab.trace.document import not_modelled

PROFILE = "aws-us-east-1"


def model(recording: Recording, book: Book) -> dict[str, Any]:
    """Return the modelled part of a document; if the trace cannot be replayed, it says why.

    Seconds are modelled, and with them what the book makes of them; requests that no poll makes are exact.
    """
    try:
        return _model(recording, book)
    except (SlslabError, ReplayError) as error:
        return {**not_modelled(str(error))}
    except Exception as error:
        # A run that is done keeps its results even if its model fails for an unknown reason.
        return {**not_modelled(f"Its trace could not be replayed ({type(error).__name__}: {error}).")}


def _model(recording: Recording, book: Book) -> dict[str, Any]:
    check(recording)
    if gpus := sorted({instance["device"] for instance in recording.instances} - {"cpu"}):
        raise RunError(
            f"It computed on {gpus[0]}; a GPU's times are modelled from steps that a processor computed.",
            "run it with --device cpu.",
        )
    profile = load_profile(PROFILE)
    timeline = play(make_program(recording), profile)
    records = recording.invocations
    played = outcome(timeline, str(records[0]["architecture"]) if records else "x86_64")
    hosts = [kind for kind, _ in metrics.hosts(recording.events)]
    return {
        "status": "modelled",
        "profile": {"name": profile.name, "date": profile.date.isoformat()},
        "seconds": round(played.seconds, 6),
        "billed_seconds": round(played.billed_seconds, 3),
        "error": stated_error(profile.name, instances=bool(recording.instances)),
        "gb_seconds": format(played.gb_seconds, "f"),
        "cold_starts": played.cold_starts,
        "waiting_share": round(played.waiting_share, 4),
        "critical_path": critical_path(timeline).describe(),
        "per_worker": [_worker(worker) for worker in played.workers],
        "cost": compute_bill(played.usage(hosts, metrics.driver_requests(recording.events)), book).as_document(),
    }


def _worker(figures: WorkerFigures) -> Mapping[str, Any]:
    """Return one worker's seconds; `init` comes before the duration."""
    return {
        "worker": figures.worker,
        "seconds": round(figures.duration, 6),
        "billed_seconds": round(figures.billed, 3),
        "parts": {name: round(getattr(figures, name), 6) for name in ("init", "compute", "transfer", "waiting")},
    }
