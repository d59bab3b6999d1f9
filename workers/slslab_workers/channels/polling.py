"""How often S3, which cannot be waited on, is polled: by choice, or as the authors' code did."""

from collections.abc import Iterator
from dataclasses import dataclass

from slslab_workers.option import Option
from slslab_workers.plan import Plan

POLLING = Option(
    "polling",
    str,
    "adaptive",
    "Between polls: adaptive sleeps 10 ms, growing by half to 100 ms; released polls gets every 100 ms and lists "
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
        """Yield the sleeps, without end, in seconds."""
        delay = self.first
        while True:
            yield delay
            delay = min(delay * self.factor, self.limit)


@dataclass(frozen=True)
class PollPolicy:
    """Pauses between failed gets, and between lists that found nothing new."""

    gets: Poll
    lists: Poll


POLICIES = {
    "adaptive": PollPolicy(Poll(0.01, 1.5, 0.1), Poll(0.01, 1.5, 0.1)),
    "released": PollPolicy(Poll(0.1, 1.0, 0.1), Poll(0.0, 1.0, 0.0)),
}


def poll_policy(plan: Plan) -> PollPolicy:
    """Return the plan's polling."""
    return policy(str(POLLING.of(plan.options)))


def policy(polling: str) -> PollPolicy:
    """Return what one of the choices of POLLING means."""
    return POLICIES[polling]
