"""Whether a cache or tensor database on AWS has memory for what an architecture's protocol keeps in it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from slslab.errors import RequestError
from slslab.run.bill import HOST, load_book
from slslab_workers.architecture import Architecture, workload_of
from slslab_workers.patterns import Kept
from slslab_workers.patterns.kept import TENSOR, kept
from slslab_workers.plan import Plan, PlanError

GIB = 2**30


@dataclass(frozen=True)
class Shortage:
    """A host with less memory than its server may need.

    `option` chooses another one. `memory` has the bytes of all types with a known memory, the cheapest type first.
    """

    architecture: str
    workers: int
    host: str
    option: str
    kept: Kept
    memory: Mapping[str, float] = field(repr=False)

    @property
    def is_certain(self) -> bool:
        """Whether the memory isn't enough whatever the timing is."""
        return self.kept.least > self.memory[self.host]

    @property
    def message(self) -> str:
        """What is wrong, in a sentence."""
        least, most = (f"{kept / 1e9:.3g}" for kept in (self.kept.least, self.kept.most))
        amount = f"up to {most}" if not self.is_certain else most if least == most else f"{least} to {most}"
        return (
            f"{self.architecture} with {self.workers} workers keeps {amount} GB in one {self.host}, which has "
            f"{self.memory[self.host] / GIB:.4g} GiB."
        )

    @property
    def hint(self) -> str:
        """The cheapest type of the same service with enough memory, or that there is none."""
        service = self.host.startswith("cache.")
        for host, held in self.memory.items():
            if host.startswith("cache.") is service and held >= self.kept.most:
                return f"run it with {self.option} {host}, which has {held / GIB:.4g} GiB."
        return "choose a smaller model or fewer workers: no host in the price book has as much memory."


def shortages(architecture: Architecture, plan: Plan, parameters: int | None) -> Iterator[Shortage]:
    """Yield the hosts of a plan that may have too little memory for a model with this number of parameters.

    Nothing is known without the model's size, a pattern, the plan's price book, or the memory of a host in it.
    """
    try:
        memory = _memory(plan.prices)
        pattern = architecture.pattern(workload_of(plan, parameters)) if parameters is not None else None
        needed = architecture.requirements(plan)
    except (PlanError, RequestError):
        return
    for channel, each in kept(pattern).items() if pattern is not None else ():
        tensor = channel == TENSOR
        host, option = (needed.tensor_host, "--tensor-host") if tensor else (needed.channel_host, "--channel-host")
        if host in memory and each.most > memory[host]:
            yield Shortage(architecture.name, plan.workers, host, option, each, memory)


def _memory(book: str) -> dict[str, float]:
    """Return the bytes of memory of each type of host for which a price book has them, the cheapest first."""
    prices = sorted(load_book(book).prices.items(), key=lambda each: each[1].price)
    return {
        meter.removeprefix(HOST): float(price.memory_gib.value) * GIB
        for meter, price in prices
        if price.memory_gib is not None
    }
