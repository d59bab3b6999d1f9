"""How often to poll S3, which has no way to wait: by choice, or as the authors' code did."""

from collections.abc import Iterator
from dataclasses import dataclass

from slslab_workers.option import Option
from slslab_workers.plan import Plan

POLLING = Option(
    "polling",
    str,
    "adaptive",
    "Pauses between polls: adaptive sleeps 10 ms, growing by half to 100 ms; released gets every 100 ms and lists "
    "without a pause.",
    ("adaptive", "released"),
    released="released",
)


@dataclass(frozen=True)
class Poll:
    """How long to sleep between polls: from `first` seconds, growing by `factor`, to at most `limit` seconds."""

    first: float
    factor: float
    limit: float

    def delays(self) -> Iterator[float]:
        """Yield the sleeps, s, forever."""
        delay = self.first
        while True:
            yield delay
            delay = min(delay * self.factor, self.limit)


@dataclass(frozen=True)
class PollPolicy:
    """Pauses between failed gets, and between listings without new keys."""

    gets: Poll
    lists: Poll


POLICIES = {
    "adaptive": PollPolicy(Poll(0.01, 1.5, 0.1), Poll(0.01, 1.5, 0.1)),
    "released": PollPolicy(Poll(0.1, 1.0, 0.1), Poll(0.0, 1.0, 0.0)),
}


def poll_policy(plan: Plan) -> PollPolicy:
    """Return the plan's polling policy."""
    return POLICIES[str(POLLING.of(plan.options))]
