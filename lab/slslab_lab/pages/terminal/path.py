"""The critical path of a replay as a table."""

from rich.table import Table

from slslab.predict.environment import NS
from slslab.report.terminal.tables import plain_table
from slslab_lab.replay.kernel.timeline import Timeline
from slslab_lab.replay.path import NAMED, critical_path, worker_name


def critical_path_table(timeline: Timeline) -> Table:
    """Return the critical path by operation: seconds, share of the run, and the workers with the most of it."""
    path = critical_path(timeline)
    rows = []
    for part in path.parts():
        shares = [f"{worker_name(worker)} ({ns / part.ns:.0%})" for worker, ns in part.workers[:NAMED]]
        if len(part.workers) > NAMED:
            shares.append(f"{len(part.workers) - NAMED:,} more")
        figures = f"{part.ns / NS:,.3f}", f"{part.ns / path.ns:.1%}", f"{part.stretches:,}"
        rows.append((part.op, part.phase, *figures, ", ".join(shares)))
    return plain_table(
        ("operation", "phase", "seconds", "share", "stretches", "of"),
        rows,
        title=f"Critical path, modelled on {timeline.profile.name}: {path.ns / NS:,.3f} s",
    )
