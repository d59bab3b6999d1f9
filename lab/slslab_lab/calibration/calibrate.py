"""`slslab calibrate`: profiles of the host of recorded runs, and of Lambda's processors."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from slslab.errors import RequestError
from slslab.predict.profiles.profile import Figure, Profile, figures, load_profile, save_profile
from slslab.run.directory import resolve
from slslab.run.predictions import Predicted
from slslab.run.service import read_service
from slslab_lab.calibration.cloudwatch import (
    STDIN,
    Invocations,
    Recorded,
    choose_function,
    fit_reports,
    predicted_times,
    read_reports,
    replayed_times,
)
from slslab_lab.calibration.host import BATCH, MODEL, Progress, measure_step
from slslab_lab.replay.fitting import fit
from slslab_lab.replay.programs.recorded import make_program
from slslab_lab.replay.programs.recording import read_recording

HOST, CALIBRATED = Path("this-host.toml"), Path("aws-calibrated.toml")
Document = dict[str, Any]


def calibrate_runs(runs: Sequence[str], epochs: int | None, out: Path | None, progress: Progress) -> Document:
    """Fit the profile of these runs' host to their recordings, by default to the first half of their epochs.

    One run can't show how well several threads work in parallel, so that is measured here.
    """
    path = _vacant(out or HOST)
    recordings = [read_recording(resolve(run).path) for run in runs]
    first = epochs or max(1, min(recording.plan.epochs for recording in recordings) // 2)
    step, parallel = measure_step(progress), None
    if step.parallel is not None:
        source = f"slslab calibrate, {_today().isoformat()}: {MODEL}, minibatch of {BATCH}"
        parallel = Figure(value=round(step.parallel, 4), status="measured", source=source)
    profile = fit(recordings, first, _today(), parallel)
    save_profile(profile, path)
    return _document(profile, path, {}) | {
        "runs": [recording.plan.run for recording in recordings],
        "epochs": first,
        "busy": step.busy,
    }


def calibrate_cloudwatch(file: Path, run: str, function: str | None, base: str, out: Path | None) -> Document:
    """Fit the base profile's processors and init so that the replayed run takes as long as its REPORT lines say.

    For a session of `slslab up`, fit to the function's invocations instead, and write the profile into the session's
    directory, where `show` and `bill` find it.
    """
    reports = read_reports(file)
    directory = resolve(run)
    about = directory.service()
    recorded: Recorded
    if about is None:
        path = _vacant(out or CALIBRATED)
        recording = read_recording(directory.path)
        program = make_program(recording)
        chosen = choose_function(sorted({t.name for t in program.tracks if t.kind == "invocation"}), function)
        own = [r["max_memory_mb"] for r in recording.invocations if r["function"] == chosen]
        recorded = partial(replayed_times, program, chosen)
    else:
        found = read_service(directory, about).predicted
        chosen = choose_function(sorted({record["function"] for record in found.records}), function)
        records = _succeeded(found, chosen)
        path = _vacant(out or directory.profile(chosen))
        own = [record["max_memory_mb"] for record, _ in records]
        recorded = partial(predicted_times, found.predictor, records)
    named, written = "standard input", _today()
    if file != STDIN:
        named, written = file.name, datetime.fromtimestamp(file.stat().st_mtime, UTC).date()
    source = f"REPORT lines of {named}, {written.isoformat()}, against the run {directory.id}"
    profile, fitted = fit_reports(reports, chosen, recorded, load_profile(base), source, _today())
    save_profile(profile, path)
    document = _document(profile, path, dict(figures(load_profile(base))))
    return document | {"run": directory.id, "base": base, **fitted, "recorded_max_memory_mb": median(own)}


def _succeeded(found: Predicted, function: str) -> Invocations:
    """Return a function's successful invocations with their requests to S3; RequestError without any."""
    records = [
        (record, made)
        for record, made in zip(found.records, found.requests, strict=True)
        if record["function"] == function and record["status"] == "success"
    ]
    if not records:
        raise RequestError(f"No invocation of {function} succeeded here.", f"invoke {function} and calibrate again.")
    return records


def _document(profile: Profile, path: Path, of_base: Mapping[str, Figure]) -> Document:
    measured = [
        {"entry": entry, "value": figure.value, "source": figure.source}
        for entry, figure in figures(profile)
        if figure.status in ("measured", "fitted") and figure != of_base.get(entry)
    ]
    return {"schema": 1, "name": profile.name, "path": str(path), "figures": measured}


def _vacant(path: Path) -> Path:
    """Return the path; RequestError if it exists. Checked first, since a measurement takes a minute."""
    if path.exists():
        raise RequestError(f"{path} exists already.", "choose another --out, or remove it.")
    return path


def _today() -> date:
    return datetime.now(UTC).date()
