"""`slslab calibrate`: profiles of the host of recorded runs, and of Lambda's processors."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import median
from typing import Any

from slslab.errors import RequestError
from slslab.predict.profiles.profile import Figure, Profile, figures, load_profile, save_profile
from slslab.run.directory import resolve
from slslab.run.service import Service, read_service
from slslab_lab.calibration.cloudwatch import STDIN, Metered, Replayed, choose_function, fit_reports, read_reports
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
    metered = None if about is None else _metered(read_service(directory, about), function)
    path = _vacant(out or (CALIBRATED if metered is None else directory.profile(metered.function)))
    recorded: Replayed | Metered
    if metered is not None:
        recorded, own = metered, [record["max_memory_mb"] for record, _ in metered.records]
    else:
        recording = read_recording(directory.path)
        program = make_program(recording)
        names = sorted({track.name for track in program.tracks if track.kind == "invocation"})
        recorded = Replayed(program, choose_function(names, function))
        own = [r["max_memory_mb"] for r in recording.invocations if r["function"] == recorded.function]
    named, written = "standard input", _today()
    if file != STDIN:
        named, written = file.name, datetime.fromtimestamp(file.stat().st_mtime, UTC).date()
    source = f"REPORT lines of {named}, {written.isoformat()}, against the run {directory.id}"
    profile, fitted = fit_reports(reports, recorded, load_profile(base), source, _today())
    save_profile(profile, path)
    document = _document(profile, path, dict(figures(load_profile(base))))
    return document | {"run": directory.id, "base": base, **fitted, "recorded_max_memory_mb": median(own)}


def _metered(service: Service, function: str | None) -> Metered:
    found = service.predicted
    chosen = choose_function(sorted({record["function"] for record in found.records}), function)
    records = [
        (record, found.requests.get(number, ()))
        for number, record in enumerate(found.records)
        if record["function"] == chosen and record["status"] == "success"
    ]
    if not records:
        raise RequestError(f"No invocation of {chosen} succeeded here.", f"invoke {chosen} and calibrate again.")
    return Metered(chosen, records, found.predictor)


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
