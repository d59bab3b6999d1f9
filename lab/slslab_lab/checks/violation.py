"""The result of a rule: a violation with its event, or the reason why the rule doesn't apply to the run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Violation:
    """One breach of a rule, described in one sentence.

    `event` is the number of the event that broke the rule, or the last one before something that should have happened;
    None if the breach isn't in the trace. Worker, epoch and step are -1 where they don't apply.
    """

    rule: str
    sentence: str
    worker: int = -1
    epoch: int = -1
    step: int = -1
    event: int | None = None

    @classmethod
    def by(cls, event: Mapping[str, Any], rule: str, sentence: str) -> Self:
        """Return a breach by an event of a trace, with its worker, epoch and step."""
        return cls(rule, f"{sentence}.", event["worker"], event["epoch"], event["step"], event["event"])


class NotChecked(Exception):
    """A rule doesn't apply to this run; the message says why."""
