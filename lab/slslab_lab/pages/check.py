"""The output of `slslab check`, for a terminal."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slslab.errors import counted
from slslab.report.page import WORDS, Part, Row, Table
from slslab.run.metrics import grouped


def checked(runs: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    """Yield the answer for each run, then its violations, and the rules that don't apply, with the reason."""
    for run in runs:
        over = f"{counted(len(run['rules']), 'rule')} over {counted(run['events'], 'event')}"
        violations = run["violations"]
        if run["holds"]:
            yield f"Holds: {over}: {run['run']}"
        else:
            violated = len({violation["rule"] for violation in violations})
            yield f"Violated: {violated} of {over}, {counted(len(violations), 'time')}: {run['run']}"
            # Violations of a rule that differ only in numbers are one line.
            alike = grouped(((each["rule"], re.sub(r"\d+", "", each["sentence"])), each) for each in violations)
            headings = ("rule", "event", "worker", "step", "what happened")
            yield Table(headings, [_row(group[0], len(group)) for group in alike.values()], words=WORDS)
        for reason, rules in grouped((reason, rule) for rule, reason in run["not_checked"].items()).items():
            yield f"Not checked: {', '.join(rules)}: {reason.rstrip('.')}."


def _row(violation: Mapping[str, Any], similar: int) -> Row:
    worker, epoch, step = (violation[name] for name in ("worker", "epoch", "step"))
    at = "" if epoch < 0 else f"e{epoch}" if step < 0 else f"e{epoch} s{step}"
    event = "" if violation["event"] is None else str(violation["event"])
    more = f" {similar - 1:,} more like it (all with --json)." if similar > 1 else ""
    return violation["rule"], event, "" if worker < 0 else str(worker), at, violation["sentence"] + more
