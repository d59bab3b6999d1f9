"""The output of `slslab check`, for a terminal."""

import re
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
    over = f"{counted(len(run['rules']), 'rule')} over {counted(run['events'], 'event')}"
    if run["holds"]:
        yield f"Holds: {over}: {run['run']}"
    else:
        violations = run["violations"]
        violated = len({violation["rule"] for violation in violations})
        yield f"Violated: {violated} of {over}, {counted(len(violations), 'time')}: {run['run']}"
        yield Table(HEADINGS, [_row(*alike) for alike in _similar(violations)], words=WORDS)
    reasons: dict[str, list[str]] = {}
    for rule, reason in run["not_checked"].items():
        reasons.setdefault(reason, []).append(rule)
    for reason, rules in reasons.items():
        yield f"Not checked: {', '.join(rules)}: {reason.rstrip('.')}."


def _similar(violations: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield the first of the violations of a rule that differ only in numbers, and how many there are."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for violation in violations:
        groups.setdefault((violation["rule"], re.sub(r"\d+", "", violation["sentence"])), []).append(violation)
    for group in groups.values():
        yield group[0], len(group)


def _row(violation: Mapping[str, Any], similar: int) -> Row:
    worker, epoch, step = (violation[name] for name in ("worker", "epoch", "step"))
    at = "" if epoch < 0 else f"e{epoch}" if step < 0 else f"e{epoch} s{step}"
    event = "" if violation["event"] is None else str(violation["event"])
    more = f" {similar - 1:,} more like it (all with --json)." if similar > 1 else ""
    return violation["rule"], event, "" if worker < 0 else str(worker), at, violation["sentence"] + more
