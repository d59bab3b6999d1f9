"""All rules, in one table by name, and their check of a run."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from slslab.run.run import Run
from slslab_lab.checks import ledger, left, messages, times
from slslab_lab.checks.exchange import Exchange
from slslab_lab.checks.violation import NotChecked, Violation

# A rule takes a run, or a run and its exchange. Only architectures with a protocol in `messages` have an exchange.
EXCHANGED: Mapping[str, Callable[[Run, Exchange], Iterable[Violation]]] = {
    "lost": messages.check_lost,
    "twice": messages.check_twice,
    "stray": messages.check_stray,
    "altered": messages.check_altered,
    "early": messages.check_early,
    "barrier": times.check_barrier,
    "objects": left.check_objects,
}
RECORDED: Mapping[str, Callable[[Run], Iterable[Violation]]] = {
    "counts": messages.check_counts,
    "order": times.check_order,
    "overlap": times.check_overlap,
    "span": times.check_span,
    "billed": times.check_billed,
    "metered": ledger.check_metered,
    "totals": ledger.check_totals,
    "bill": ledger.check_bill,
    "queues": left.check_queues,
    "environments": left.check_environments,
}
RULES = (*EXCHANGED, *RECORDED)
# A run that didn't finish would break these.
OF_FINISHED = frozenset({"lost", "counts", "metered", "objects", "queues", "environments"})
UNFINISHED = "the run didn't finish, so messages, records and removals may be missing"


@dataclass(frozen=True)
class Checked:
    """Result of the rules on a run: which were checked, why the others weren't, and all violations."""

    run: str
    events: int
    rules: tuple[str, ...]
    not_checked: Mapping[str, str]
    violations: tuple[Violation, ...]

    def as_document(self) -> dict[str, Any]:
        """Return it as JSON-safe data."""
        return {"run": self.run, "holds": not self.violations, **asdict(self)}


def check(run: Run, rules: Iterable[str] = RULES) -> Checked:
    """Check a run by these rules."""
    checked: list[str] = []
    not_checked: dict[str, str] = {}
    violations: list[Violation] = []
    exchange: Exchange | NotChecked
    try:
        exchange = messages.exchange_of(run)
    except NotChecked as reason:
        exchange = reason
    for rule in rules:
        try:
            if rule in OF_FINISHED and not run.complete:
                raise NotChecked(UNFINISHED)
            if rule in RECORDED:
                violations += RECORDED[rule](run)
            elif isinstance(exchange, NotChecked):
                raise exchange
            else:
                violations += EXCHANGED[rule](run, exchange)
        except NotChecked as reason:
            not_checked[rule] = str(reason)
        else:
            checked.append(rule)
    if isinstance(exchange, Exchange) and exchange.protocol.unjudged:
        not_checked["messages"] = exchange.protocol.unjudged
    return Checked(run.id, len(run.events), tuple(checked), not_checked, tuple(violations))
