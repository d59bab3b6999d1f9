"""Which peers the plan lets take part in which epoch: those from the beginning, and those that join (`--join`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from slslab_workers.option import Option
from slslab_workers.plan import PlanError, Value

JOIN = Option(
    "join",
    str,
    "none",
    "Peers that are not there at the beginning, as RANK:EPOCHS[,RANK:EPOCHS...]: 2:1 has peer 2 join when 1 epoch has "
    "been trained without it. A rank's samples are unused until it joins.",
)


@dataclass(frozen=True)
class Roster:
    """Ranks 0 to `workers` - 1; `joins` has the first epoch of those that join later."""

    workers: int
    joins: Mapping[int, int]

    @classmethod
    def of(cls, workers: int, options: Mapping[str, Value]) -> Self:
        """Read the roster from the options; PlanError if they cannot be read, or name a rank twice."""
        text = str(JOIN.of(options))
        joins: dict[int, int] = {}
        for entry in text.split(",") if text != JOIN.default else ():
            rank, _, first = (part.strip() for part in entry.partition(":"))
            if not (_is_number(rank) and _is_number(first)):
                raise PlanError(
                    f"{entry!r} does not say which peer joins when.",
                    "with --join 2:1,3:4 peer 2 joins after 1 epoch, and peer 3 after 4.",
                )
            if int(rank) in joins:
                raise PlanError(f"Peer {int(rank)} cannot join twice.", "name each rank once in --join.")
            joins[int(rank)] = int(first)
        return cls(workers, joins)

    def check(self, epochs: int) -> None:
        """Raise PlanError if a run of so many epochs cannot have this roster."""
        for rank, first in self.joins.items():
            if rank >= self.workers:
                raise PlanError(
                    f"There is no peer {rank}, so it cannot join.",
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
        """The ranks that take part from the beginning."""
        return self.active(0)

    def active(self, epoch: int) -> list[int]:
        """Return the ranks that take part in an epoch, if all that join are admitted in time."""
        return [rank for rank in range(self.workers) if self.joins.get(rank, 0) <= epoch]

    def asking(self, epoch: int) -> set[int]:
        """Return the ranks that are to be admitted in this epoch, so that they take part in the next."""
        return {rank for rank, first in self.joins.items() if first == epoch + 1}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
