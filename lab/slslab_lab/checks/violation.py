"""What a check finds: that a run broke a rule, and by which event; or that a rule says nothing about the run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Violation:
    """One breach of a rule: what happened, in one sentence.

    `event` is the number of the event in the trace by which it happened, or after which something should have
    happened. Worker, epoch and step are -1 where there is none; `event` is None for what is not in the trace.
    """

    rule: str
    sentence: str
    worker: int = -1
    epoch: int = -1
    step: int = -1
    event: int | None = None

    @classmethod
    def by(cls, event: Mapping[str, Any], rule: str, sentence: str) -> Self:
        """Return a breach by an event of a trace, whose worker, epoch and step it takes."""
        return cls(rule, f"{sentence}.", event["worker"], event["epoch"], event["step"], event["event"])

    def as_document(self) -> dict[str, Any]:
        """Return it safe for JSON."""
        return asdict(self)


class NotChecked(Exception):
    """A rule says nothing about this run; the message says why."""
