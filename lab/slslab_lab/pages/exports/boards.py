"""Runs as TensorBoard's event files, a directory for each."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slslab.errors import HostError, RequestError, writable
from slslab.run.run import Run
from slslab_lab.pages.exports.finished import curves, figures, parameters, unix_ns, versions
from slslab_lab.pages.exports.tables import make_directory

EVENTS = "events.out.tfevents.*"


def write_boards(runs: Sequence[Run], out: Path) -> list[dict[str, Any]]:
    """Write each run to `out/RUN`: loss and accuracy by trained epochs, the run's figures, its plan as text.

    It replaces an earlier export of the run. RequestError if a directory with the run's name contains anything else;
    HostError if it can't be written.
    """
    make_directory(out)
    for path in (out / run.id for run in runs):
        if path.exists() and (not path.is_dir() or set(path.iterdir()) != set(path.glob(EVENTS))):
            raise RequestError(f"{path} contains something other than event files.", "choose another --out.")
    with writable(out, "choose another --out.", HostError):
        return [_write(run, out) for run in runs]


def _write(run: Run, out: Path) -> dict[str, Any]:
    from torch.utils.tensorboard import SummaryWriter

    path = out / run.id
    # Write to another directory first: two event files in one directory would double the points.
    temporary = out / f".{run.id}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    ended = unix_ns(run, run.span_ns()[1]) / 1e9
    with SummaryWriter(str(temporary)) as writer:
        for name, points in curves(run).items():
            for epoch, value, when in points:
                writer.add_scalar(name, value, epoch, walltime=when / 1e9)
        for name, value in figures(run).items():
            writer.add_scalar(f"run/{name}", value, 0, walltime=ended)
        writer.add_text("plan", _listed(parameters(run)), 0, walltime=ended)
        writer.add_text("versions", _listed(versions(run)), 0, walltime=ended)
    state = "replaced" if path.exists() else "written"
    shutil.rmtree(path, ignore_errors=True)
    temporary.rename(path)
    return {"run": run.id, "path": str(path), "state": state}


def _listed(entries: Mapping[str, str]) -> str:
    rows = "".join(f"| {name} | {value.replace('|', '&#124;')} |\n" for name, value in entries.items())
    return f"| name | value |\n|---|---|\n{rows}"
