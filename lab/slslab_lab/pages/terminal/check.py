"""What `slslab check` found, for a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from slslab.errors import counted
from slslab.report.terminal.tables import plain_table

HEADINGS = ("rule", "event", "worker", "step", "what happened")


def checked(runs: Sequence[Mapping[str, Any]]) -> Group:
    """Return the answer for each run, then its violations, and which rules said nothing, with the reason."""
    return Group(*(part for run in runs for part in _one(run)))


def _one(run: Mapping[str, Any]) -> Iterator[RenderableType]:
    over = f"{counted(len(run['rules']), 'rule')} over {counted(run['events'], 'event')}: {run['run']}"
    if run["holds"]:
        yield Text(f"Holds: {over}")
    else:
        yield Text(f"Violated: {counted(len(run['violations']), 'time')}, {over}")
        yield plain_table(HEADINGS, [_row(violation) for violation in run["violations"]], words=True)
    reasons: dict[str, list[str]] = {}
    for rule, reason in run["not_checked"].items():
        reasons.setdefault(reason, []).append(rule)
    for reason, rules in reasons.items():
        yield Text(f"Not checked: {', '.join(rules)}: {reason}.")


def _row(violation: Mapping[str, Any]) -> tuple[str, ...]:
    worker, epoch, step = (violation[name] for name in ("worker", "epoch", "step"))
    place = "" if epoch < 0 else f"e{epoch}" if step < 0 else f"e{epoch} s{step}"
    event = "" if violation["event"] is None else str(violation["event"])
    return violation["rule"], event, "" if worker < 0 else str(worker), place, violation["sentence"]
