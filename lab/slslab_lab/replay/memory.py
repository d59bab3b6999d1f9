"""Whether a cache or tensor database on AWS has memory for what an architecture's protocol keeps in it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from slslab.errors import RequestError
from slslab.run.bill import HOST, Price, load_book
from slslab_workers.architecture import Architecture, workload_of
from slslab_workers.patterns import Kept
from slslab_workers.patterns.kept import TENSOR, kept
from slslab_workers.plan import Plan, PlanError

GIB = 2**30


@dataclass(frozen=True)
class Shortage:
    """A host with less memory than its server may need.

    `option` chooses another one. `hosts` are the prices of an hour of all types with a known memory.
    """

    architecture: str
    workers: int
    host: str
    option: str
    kept: Kept
    hosts: Mapping[str, Price] = field(repr=False)

    @property
    def is_certain(self) -> bool:
        """Whether the memory isn't enough whatever the timing is."""
        return self.kept.least > _memory_of(self.hosts[self.host])

    @property
    def message(self) -> str:
        """What is wrong, in a sentence."""
        least, most = (f"{kept / 1e9:.3g}" for kept in (self.kept.least, self.kept.most))
        amount = f"up to {most}" if not self.is_certain else most if least == most else f"{least} to {most}"
        return (
            f"{self.architecture} with {self.workers} workers keeps {amount} GB in one {self.host}, which has "
            f"{_memory_of(self.hosts[self.host]) / GIB:.4g} GiB."
        )

    @property
    def hint(self) -> str:
        """The cheapest type of the same service with enough memory, or that there is none."""
        service = self.host.startswith("cache.")
        enough = [host for host in self.hosts if host.startswith("cache.") is service]
        enough = [host for host in enough if _memory_of(self.hosts[host]) >= self.kept.most]
        if not enough:
            return "choose a smaller model or fewer workers: no host in the price book has as much memory."
        host = min(enough, key=lambda host: self.hosts[host].price)
        return f"run it with {self.option} {host}, which has {_memory_of(self.hosts[host]) / GIB:.4g} GiB."


def shortages(architecture: Architecture, plan: Plan, parameters: int | None) -> Iterator[Shortage]:
    """Yield the hosts of a plan that may have too little memory for a model with this number of parameters.

    Nothing is known without the model's size, a pattern, the plan's price book, or the memory of a host in it.
    """
    try:
        hosts = _hosts(plan.prices)
        pattern = architecture.pattern(workload_of(plan, parameters)) if parameters is not None else None
        needed = architecture.requirements(plan)
    except (PlanError, RequestError):
        return
    for channel, each in kept(pattern).items() if pattern is not None else ():
        tensor = channel == TENSOR
        host, option = (needed.tensor_host, "--tensor-host") if tensor else (needed.channel_host, "--channel-host")
        if host in hosts and each.most > _memory_of(hosts[host]):
            yield Shortage(architecture.name, plan.workers, host, option, each, hosts)


def _hosts(book: str) -> dict[str, Price]:
    """Return the price of an hour of each type of host with a known memory."""
    prices = load_book(book).prices.items()
    return {meter.removeprefix(HOST): price for meter, price in prices if price.memory_gib is not None}


def _memory_of(host: Price) -> float:
    assert host.memory_gib is not None
    return float(host.memory_gib.value) * GIB
