"""What a run's document says of the same run on Lambda: its trace played on the profile of AWS, and priced."""

from collections.abc import Mapping
from typing import Any

from slslab import metrics
from slslab.billing import Book, compute_bill
from slslab.errors import SlslabError
from slslab.replay.kernel import ReplayError, play
from slslab.replay.outcome import WorkerFigures, outcome
from slslab.replay.path import critical_path
from slslab.replay.profiles import load_profile
from slslab.replay.recorded import make_program
from slslab.replay.recording import Recording, check

PROFILE = "aws-us-east-1"


def model(recording: Recording, book: Book) -> dict[str, Any]:
    """The modelled part of a document; one that says why there is none if the trace cannot be replayed.

    Seconds are modelled, and with them what the book makes of them; requests that no poll makes are exact.
    """
    try:
        return _model(recording, book)
    except SlslabError as error:
        return not_modelled(error.message)
    except ReplayError as error:
        return not_modelled(str(error))
    except Exception as error:
        # A run that is done keeps its results, whatever its model stumbles over.
        return not_modelled(f"Its trace could not be replayed ({type(error).__name__}: {error}).")


def not_modelled(reason: str) -> dict[str, Any]:
    """The modelled part of a document of a run that cannot be replayed."""
    return {"status": "not modelled", "reason": reason}


def _model(recording: Recording, book: Book) -> dict[str, Any]:
    check(recording)
    profile = load_profile(PROFILE)
    timeline = play(make_program(recording), profile)
    records = recording.invocations
    found = outcome(timeline, str(records[0]["architecture"]) if records else "x86_64")
    hosts = [kind for kind, _ in metrics.hosts(recording.events)]
    usage = found.usage(hosts, metrics.driver_requests(recording.events))
    return {
        "status": "modelled",
        "profile": {"name": profile.name, "date": profile.date.isoformat()},
        "seconds": round(found.seconds, 6),
        "billed_seconds": round(found.billed_seconds, 3),
        "gb_seconds": format(found.gb_seconds, "f"),
        "cold_starts": found.cold_starts,
        "waiting_share": round(found.waiting_share, 4),
        "critical_path": critical_path(timeline).describe(),
        "per_worker": [_worker(worker) for worker in found.workers],
        "cost": compute_bill(usage, book).as_document(),
    }


def _worker(figures: WorkerFigures) -> Mapping[str, Any]:
    """One worker's seconds; of these `init` comes before the duration."""
    return {
        "worker": figures.worker,
        "seconds": round(figures.duration, 6),
        "billed_seconds": round(figures.billed, 3),
        "parts": {name: round(getattr(figures, name), 6) for name in ("init", "compute", "transfer", "waiting")},
    }
