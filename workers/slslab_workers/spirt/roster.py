"""Which peers take part in which epoch: the founders, and the peers that join later (`--join`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from slslab_workers.option import Option
from slslab_workers.plan import PlanError, Value

JOIN = Option(
    "join",
    str,
    "none",
    "Peers that join later, as RANK:EPOCHS[,RANK:EPOCHS...]. With 2:1, peer 2 joins when 1 epoch has "
    "been trained without it. A rank's samples are unused until it joins.",
)


@dataclass(frozen=True)
class Roster:
    """Ranks 0 to `workers` - 1, and in `joins` the first epoch of each peer that joins later."""

    workers: int
    joins: Mapping[int, int]

    @classmethod
    def of(cls, workers: int, options: Mapping[str, Value]) -> Self:
        """Read the roster from the options. PlanError if they are malformed or name a rank twice."""
        text = str(JOIN.of(options))
        joins: dict[int, int] = {}
        for entry in text.split(",") if text != JOIN.default else ():
            rank, _, first = (part.strip() for part in entry.partition(":"))
            if not (_is_number(rank) and _is_number(first)):
                raise PlanError(
                    f"{entry!r} isn't in the form RANK:EPOCHS.",
                    "with --join 2:1,3:4 peer 2 joins after 1 epoch, and peer 3 after 4.",
                )
            if int(rank) in joins:
                raise PlanError(f"Peer {int(rank)} cannot join twice.", "name each rank once in --join.")
            joins[int(rank)] = int(first)
        return cls(workers, joins)

    def check(self, epochs: int) -> None:
        """Raise PlanError if this roster doesn't fit a run of `epochs` epochs."""
        for rank, first in self.joins.items():
            if rank >= self.workers:
                raise PlanError(
                    f"Peer {rank} doesn't exist, so it can't join.",
                    f"with --workers {self.workers} ranks are 0 to {self.workers - 1}.",
                )
            if not 1 <= first < epochs:
                raise PlanError(
                    f"Peer {rank} cannot join after {first} of {epochs} epochs.",
                    f"choose 1 to {epochs - 1}: an epoch without it, and one with it."
                    if epochs > 1
                    else "an epoch is trained without it and one with it: --epochs 2, or more.",
                )
        if len(self.joins) == self.workers:
            raise PlanError("No peer is left to begin the run if all join later.", "leave a rank out of --join.")

    @property
    def founders(self) -> list[int]:
        """Return the ranks that take part from the beginning."""
        return self.active(0)

    def active(self, epoch: int) -> list[int]:
        """Return the ranks that take part in an epoch if everyone who joins is admitted in time."""
        return [rank for rank in range(self.workers) if self.joins.get(rank, 0) <= epoch]

    def asking(self, epoch: int) -> set[int]:
        """Return the ranks that ask to be admitted in this epoch and take part from the next."""
        return {rank for rank, first in self.joins.items() if first == epoch + 1}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
