"""`slslab calibrate`: profiles of this host, of the host of recorded runs, and of Lambda's processors."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from slslab.errors import RequestError
from slslab.replay.calibration import BASE, fit_host
from slslab.replay.cloudwatch import fit_reports, read_reports
from slslab.replay.fitting import fit
from slslab.replay.host import BATCH, MODEL, Progress, measure_host, measure_step
from slslab.replay.profiles import Figure, Profile, figures, load_profile, save_profile
from slslab.replay.recorded import make_program
from slslab.replay.recording import read_recording
from slslab.runs import resolve

HOST, CALIBRATED = Path("this-host.toml"), Path("aws-calibrated.toml")
Document = dict[str, Any]


def calibrate_host(out: Path | None, progress: Progress) -> Document:
    """Measure this host and write its profile; returns what `calibrate` prints."""
    path = _vacant(out or HOST)
    times = measure_host(progress)
    profile = fit_host(times, _today())
    save_profile(profile, path)
    step = {
        str(threads): {"cpu_seconds": times.step.cpu_s[threads], "seconds": wall}
        for threads, wall in times.step.wall_s.items()
    }
    return _document(profile, path) | {"step": step, "busy": times.step.busy}


def calibrate_runs(runs: Sequence[str], epochs: int | None, out: Path | None, progress: Progress) -> Document:
    """Fit the profile of the host of these runs to what they recorded, by default in half of their epochs.

    What several threads do at once is measured here, since one run cannot tell.
    """
    path = _vacant(out or HOST)
    recordings = [read_recording(resolve(run).path) for run in runs]
    first = epochs or max(1, min(recording.plan.epochs for recording in recordings) // 2)
    step = measure_step(progress)
    share = step.parallel
    source = f"slslab calibrate, {_today().isoformat()}: {MODEL}, minibatch of {BATCH}"
    parallel = None if share is None else Figure(value=round(share, 4), status="measured", source=source)
    profile = fit(recordings, first, _today(), parallel)
    save_profile(profile, path)
    return _document(profile, path) | {
        "runs": [recording.plan.run for recording in recordings],
        "epochs": first,
        "busy": step.busy,
    }


def calibrate_cloudwatch(file: Path, run: str, function: str | None, base: str, out: Path | None) -> Document:
    """Fit the base profile's processors and init so that the run, replayed, takes what the file's REPORT lines say."""
    path = _vacant(out or CALIBRATED)
    reports = read_reports(file)
    recording = read_recording(resolve(run).path)
    written = datetime.fromtimestamp(file.stat().st_mtime, UTC).date()
    source = f"REPORT lines of {file.name}, {written.isoformat()}, against the run {recording.plan.run}"
    found = fit_reports(reports.lines, make_program(recording), function, load_profile(base), source, _today())
    save_profile(found.profile, path)
    return _document(found.profile, path, base) | {
        "run": recording.plan.run,
        "function": found.function,
        "base": base,
        "memory_mb": found.memory_mb,
        "lines": {
            "read": len(reports.lines),
            "unread": reports.unread,
            "failed": len(reports.lines) - found.lines,
            "fitted": found.lines,
            "cold": found.cold,
            "billed_as_here": found.billed_as_here,
        },
        "duration_ms": {"real": found.real[0], "before": found.before[0], "after": found.after[0]},
        "init_ms": {"real": found.real[1], "before": found.before[1], "after": found.after[1]},
        "max_memory_mb": found.max_memory_mb,
    }


def _document(profile: Profile, path: Path, base: str = BASE) -> Document:
    """Where the profile was written, and the figures that were measured for it."""
    below = dict(figures(load_profile(base)))
    own = [
        {"entry": entry, "value": figure.value, "source": figure.source}
        for entry, figure in figures(profile)
        if figure.status == "measured" and figure != below.get(entry)
    ]
    return {"schema": 1, "name": profile.name, "path": str(path), "figures": own}


def _vacant(path: Path) -> Path:
    """The path, which must be free: what took a minute to measure is not overwritten, nor measured for nothing."""
    if path.exists():
        raise RequestError(f"{path} is there already.", "choose another --out, or remove it.")
    return path


def _today() -> date:
    return datetime.now(UTC).date()
