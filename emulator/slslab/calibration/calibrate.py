"""`slslab calibrate`: profiles of this host, of the host of recorded runs, and of Lambda's processors."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import median
from typing import Any

from slslab.calibration.cloudwatch import STDIN, fit_reports, read_reports
from slslab.calibration.host import BATCH, MODEL, Progress, measure_channels, measure_step
from slslab.calibration.profile import BASE, fit_host
from slslab.calibration.transfers import measure_transfers
from slslab.errors import RequestError
from slslab.replay.fitting import fit
from slslab.replay.profiles.profile import Figure, Profile, figures, load_profile, save_profile
from slslab.replay.programs.recorded import make_program
from slslab.replay.programs.recording import read_recording
from slslab.trace.directory import resolve

HOST, CALIBRATED = Path("this-host.toml"), Path("aws-calibrated.toml")
Document = dict[str, Any]


def calibrate_host(out: Path | None, progress: Progress) -> Document:
    """Measure this host and write its profile; return what `calibrate` prints."""
    path = _vacant(out or HOST)
    step = measure_step(progress)
    profile = fit_host(step, measure_channels(progress), _today())
    save_profile(profile, path)
    seconds = {
        str(threads): {"cpu_seconds": step.cpu_s[threads], "seconds": wall} for threads, wall in step.wall_s.items()
    }
    transfers = measure_transfers(progress)
    moved = {"ms_per_mb": dict(transfers.ms_per_mb), "add_ms_per_mb": transfers.add_ms_per_mb}
    return _document(profile, path) | {"step": seconds, "busy": step.busy, "transfers": moved}


def calibrate_runs(runs: Sequence[str], epochs: int | None, out: Path | None, progress: Progress) -> Document:
    """Fit the profile of these runs' host to what they recorded, by default in half of their epochs.

    What several threads do at once is measured here, since one run does not show it.
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
    return _document(profile, path) | {
        "runs": [recording.plan.run for recording in recordings],
        "epochs": first,
        "busy": step.busy,
    }


def calibrate_cloudwatch(file: Path, run: str, function: str | None, base: str, out: Path | None) -> Document:
    """Fit the base profile's processors and init so that the run, replayed, takes what the REPORT lines say."""
    path = _vacant(out or CALIBRATED)
    reports = read_reports(file)
    recording = read_recording(resolve(run).path)
    named, written = "standard input", _today()
    if file != STDIN:
        named, written = file.name, datetime.fromtimestamp(file.stat().st_mtime, UTC).date()
    source = f"REPORT lines of {named}, {written.isoformat()}, against the run {recording.plan.run}"
    profile, fitted = fit_reports(reports, make_program(recording), function, load_profile(base), source, _today())
    save_profile(profile, path)
    document = _document(profile, path, base)
    own = (record["max_memory_mb"] for record in recording.invocations if record["function"] == fitted["function"])
    return document | {"run": recording.plan.run, "base": base, **fitted, "recorded_max_memory_mb": median(own)}


def _document(profile: Profile, path: Path, base: str = BASE) -> Document:
    """Return where the profile was written, and the figures that were measured for it or fitted."""
    of_base = dict(figures(load_profile(base)))
    measured = [
        {"entry": entry, "value": figure.value, "source": figure.source}
        for entry, figure in figures(profile)
        if figure.status in ("measured", "fitted") and figure != of_base.get(entry)
    ]
    return {"schema": 1, "name": profile.name, "path": str(path), "figures": measured}


def _vacant(path: Path) -> Path:
    """Return the path; RequestError if it exists: a measurement of a minute is not overwritten, nor made in vain."""
    if path.exists():
        raise RequestError(f"{path} exists already.", "choose another --out, or remove it.")
    return path


def _today() -> date:
    return datetime.now(UTC).date()
