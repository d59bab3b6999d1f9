"""Whether a cache or tensor database on AWS has memory for what an architecture's protocol keeps in it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from slslab.run.bill import DEFAULT_BOOK, HOST, Price, load_book
from slslab_lab.replay.programs.step_costs import workload_of
from slslab_workers.architecture import Architecture
from slslab_workers.patterns import Kept
from slslab_workers.patterns.kept import TENSOR, kept
from slslab_workers.plan import Plan, PlanError

GIB = 2**30


@dataclass(frozen=True)
class Shortage:
    """A host with less memory than its server may need; `option` chooses another one."""

    architecture: str
    workers: int
    host: str
    option: str
    kept: Kept

    @property
    def is_certain(self) -> bool:
        """Whether the memory isn't enough whatever the timing is."""
        return self.kept.least > _memory_of(self.host)

    @property
    def message(self) -> str:
        """What is wrong, in a sentence."""
        most = "" if self.is_certain else "up to "
        return (
            f"{self.architecture} with {self.workers} workers keeps {most}{self.kept.most / 1e9:.3g} GB in one "
            f"{self.host}, which has {_memory_of(self.host) / GIB:.4g} GiB."
        )

    @property
    def hint(self) -> str:
        """The cheapest type of the same service with enough memory, or that there is none."""
        service = self.host.startswith("cache.")
        enough = [host for host in _hosts() if host.startswith("cache.") is service]
        enough = [host for host in enough if _memory_of(host) >= self.kept.most]
        if not enough:
            return "choose a smaller model or fewer workers: no host in the price book has as much memory."
        host = min(enough, key=lambda host: _hosts()[host].price)
        return f"choose {self.option} {host}, which has {_memory_of(host) / GIB:.4g} GiB."


def shortages(architecture: Architecture, plan: Plan, parameters: int | None) -> Iterator[Shortage]:
    """Yield the hosts of a plan that may have too little memory for a model with this number of parameters.

    Nothing is known of a model that must be built to be counted, of a plan without a pattern, and of a host that the
    price book has no memory for.
    """
    try:
        pattern = architecture.pattern(workload_of(plan, parameters)) if parameters is not None else None
        needed = architecture.requirements(plan)
    except PlanError:
        return
    for channel, each in kept(pattern).items() if pattern is not None else ():
        tensor = channel == TENSOR
        host, option = (needed.tensor_host, "--tensor-host") if tensor else (needed.channel_host, "--channel-host")
        if host in _hosts() and each.most > _memory_of(host):
            yield Shortage(architecture.name, plan.workers, host, option, each)


@cache
def _hosts() -> dict[str, Price]:
    """Return the price of an hour of each type of host with a known memory."""
    prices = load_book(DEFAULT_BOOK).prices.items()
    return {meter.removeprefix(HOST): price for meter, price in prices if price.memory_gib is not None}


def _memory_of(host: str) -> float:
    known = _hosts()[host].memory_gib
    assert known is not None
    return float(known.value) * GIB
