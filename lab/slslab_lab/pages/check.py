"""The output of `slslab check`, for a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slslab.errors import counted
from slslab.report.page import WORDS, Part, Row, Table

HEADINGS = ("rule", "event", "worker", "step", "what happened")


def checked(runs: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    """Yield the answer for each run, then its violations, and the rules that don't apply, with the reason."""
    for run in runs:
        yield from _one(run)


def _one(run: Mapping[str, Any]) -> Iterator[Part]:
    over = f"{counted(len(run['rules']), 'rule')} over {counted(run['events'], 'event')}: {run['run']}"
    if run["holds"]:
        yield f"Holds: {over}"
    else:
        yield f"Violated: {counted(len(run['violations']), 'time')}, {over}"
        yield Table(HEADINGS, [_row(violation) for violation in run["violations"]], words=WORDS)
    reasons: dict[str, list[str]] = {}
    for rule, reason in run["not_checked"].items():
        reasons.setdefault(reason, []).append(rule)
    for reason, rules in reasons.items():
        yield f"Not checked: {', '.join(rules)}: {reason}."


def _row(violation: Mapping[str, Any]) -> Row:
    worker, epoch, step = (violation[name] for name in ("worker", "epoch", "step"))
    place = "" if epoch < 0 else f"e{epoch}" if step < 0 else f"e{epoch} s{step}"
    event = "" if violation["event"] is None else str(violation["event"])
    return violation["rule"], event, "" if worker < 0 else str(worker), place, violation["sentence"]
