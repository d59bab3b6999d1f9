"""Where S3 forces polling: how often, by choice or as the authors' code did."""

from dataclasses import dataclass

from slslab_workers.architecture import Option
from slslab_workers.objects import Poll
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
class PollPolicy:
    """Pauses between failed gets, and between lists that brought nothing."""

    gets: Poll
    lists: Poll


def poll_policy(plan: Plan) -> PollPolicy:
    """The plan's polling."""
    return policy(str(plan.options.get(POLLING.name, POLLING.default)))


def policy(polling: str) -> PollPolicy:
    """What one of the choices of POLLING means."""
    if polling == "released":
        return PollPolicy(Poll(0.1, 1.0, 0.1), Poll(0.0, 1.0, 0.0))
    adaptive = Poll(0.01, 1.5, 0.1)
    return PollPolicy(adaptive, adaptive)
