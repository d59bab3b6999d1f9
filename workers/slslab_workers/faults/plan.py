"""The fault plan: which faults a run meets, and where.

A plan is a seed and a list of faults. Nothing here depends on time: whether a fault happens is decided by the seed and
by the place (worker, epoch, step, operation, key), so that the same plan gives the same faults at the same moments.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from slslab_workers.plan import Plan, PlanError
from slslab_workers.trace.operations import OPERATIONS

# The environment variable that carries a plan, as JSON, to the processes of workers.
VARIABLE = "SLSLAB_FAULTS"
PHASES = ("fetch", "compute", "synchronise", "update", "wait", "other")
# What happens to a worker once, at one moment.
DEATHS = ("kill", "out-of-memory", "timeout")
# What happens to a worker's tensor database once, at one moment.
LOSSES = ("database-loss", "database-restart")
# Those that a worker's requests to stores meet; all but the first refuse them.
REQUESTS = ("slow-store", "slow-down", "unreachable")
REFUSALS = (*REQUESTS[1:], "throttle")
# What happens to messages on their way, with how often each then arrives.
MESSAGES: Mapping[str, int] = MappingProxyType({"message-lost": 0, "message-duplicated": 2})
PLACE = ("worker", "epoch", "step", "phase")
Kinds = Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
# By kind: the fields that it must have, and those that it may have.
KINDS: Kinds = MappingProxyType(
    {
        **dict.fromkeys((*DEATHS, *LOSSES), (("worker", "epoch"), ("step", "phase"))),
        "straggler": (("factor",), PLACE),
        "slow-store": (("seconds",), (*PLACE, "op", "probability")),
        "slow-down": ((), (*PLACE, "op", "count", "probability")),
        "unreachable": (("op",), (*PLACE, "count", "probability")),
        **dict.fromkeys(MESSAGES, ((), (*PLACE, "count", "probability"))),
        "throttle": ((), ("worker", "count", "probability")),
    }
)
# Likewise of functions that are no workers of a run: those of `slslab up` and of tests.
FUNCTION_KINDS: Kinds = MappingProxyType(
    {
        **dict.fromkeys(("kill", "timeout"), (("function",), ("invocation", "count", "seconds", "probability"))),
        "throttle": (("function",), ("invocation", "count", "probability")),
    }
)
TYPES: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("worker", "epoch", "step", "invocation", "count"), (int,)),
        **dict.fromkeys(("factor", "seconds", "probability"), (int, float)),
        **dict.fromkeys(("kind", "phase", "op", "function"), (str,)),
    }
)
# A minibatch is fetched and computed on in a step; SPIRT synchronises between steps.
STEPWISE = ("fetch", "compute")
STORES = tuple(op for op, meaning in OPERATIONS.items() if meaning.channel)
OBJECTS = tuple(op for op in STORES if OPERATIONS[op].channel == "object")
# What connects to a queue's broker again and again is not cut off by a request.
CUT = tuple(op for op in STORES if OPERATIONS[op].channel != "queue")
# A worker that starts again is told which have happened, by a bit for each.
MOST_FAULTS = 63
MOST_SECONDS, MOST_FACTOR, MOST_COUNT = 900.0, 1000.0, 10**6


@dataclass(frozen=True)
class Fault:
    """One entry of a plan, of which `number` counts from 1.

    `worker`, `epoch`, `step` (all from 0, as in the trace), `phase` and `op` say where it happens; None is anywhere.
    `factor` is how many times slower a straggler is, `seconds` how much longer a request takes; the first `count`
    requests at each place fail, of a share `probability` of all places.

    Of a function that is no worker, `count` invocations from `invocation` (from 0) on meet it, or all, so many
    `seconds` after they began.
    """

    number: int
    kind: str
    worker: int | None = None
    epoch: int | None = None
    step: int | None = None
    phase: str | None = None
    op: str | None = None
    function: str | None = None
    invocation: int | None = None
    factor: float = 1.0
    seconds: float = 0.0
    count: int = 1
    probability: float = 1.0

    def is_at(self, worker: int, epoch: int, step: int, phase: str) -> bool:
        """Return whether it may happen at this place."""
        asked = zip((self.worker, self.epoch, self.step, self.phase), (worker, epoch, step, phase), strict=True)
        return all(own is None or own == there for own, there in asked)

    def is_met(self, seed: int, function: str, number: int) -> bool:
        """Return whether this invocation of a function meets it, by its number, from 0."""
        first = number if self.invocation is None else self.invocation
        chosen = function == self.function and first <= number < first + self.count
        return chosen and self.is_drawn(seed, function, number)

    def is_drawn(self, seed: int, *place: object) -> bool:
        """Return whether it happens at this place, which of all places has its probability."""
        return self.probability >= 1 or random.Random(f"{seed} {self.number} {place}").random() < self.probability


@dataclass(frozen=True)
class FaultPlan:
    """A seed, by which probabilities are drawn, and faults."""

    seed: int
    faults: tuple[Fault, ...]

    @classmethod
    def from_document(cls, document: Mapping[str, Any], kinds: Kinds = KINDS) -> Self:
        """Return the plan in a document of `seed` and a list `fault`; PlanError, naming the entry, for a wrong one."""
        unknown = sorted(set(document) - {"seed", "fault"})
        if unknown:
            raise PlanError(f"A fault plan has no {unknown[0]!r}.", "it has seed and tables [[fault]].")
        seed, entries = document.get("seed", 0), document.get("fault", [])
        if type(seed) is not int or seed < 0:
            raise PlanError(f"The fault plan's seed is {seed!r}.", "give a whole number, 0 or more.")
        if isinstance(entries, list | tuple) and len(entries) > MOST_FAULTS:
            raise PlanError(f"The fault plan has {len(entries)} faults.", f"it has at most {MOST_FAULTS}.")
        if not isinstance(entries, list | tuple) or not entries or not all(isinstance(e, Mapping) for e in entries):
            raise PlanError("The fault plan has no faults.", "write each as a table [[fault]] with its kind.")
        return cls(seed, tuple(_read(number, entry, kinds) for number, entry in enumerate(entries, 1)))

    def check(self, plan: Plan, *, instances: bool, databases: int, queue: bool) -> None:
        """Raise PlanError, naming the entry, for a fault whose place is not in the plan, or that cannot be there.

        `instances` says whether workers are instances, `queue` whether they have a queue, `databases` how many tensor
        databases.
        """
        for fault in self.faults:
            for name, many in (("worker", plan.workers), ("epoch", plan.epochs), ("step", plan.batches)):
                chosen = getattr(fault, name)
                if chosen is not None and chosen not in range(many):
                    raise _wrong(
                        fault.number,
                        fault.kind,
                        f"has {name} {chosen}, and the plan has {name}s 0 to {many - 1}",
                        f"they are counted from 0; --{'batches' if name == 'step' else name + 's'} decides how many.",
                    )
            if instances and fault.kind in ("out-of-memory", "timeout", "throttle"):
                raise _wrong(
                    fault.number,
                    fault.kind,
                    "is a limit of Lambda's, and the workers are instances",
                    "choose kill, straggler or a store's fault.",
                )
            if not queue and fault.kind in MESSAGES:
                raise _wrong(
                    fault.number, fault.kind, "is a fault of a queue, and the plan has none", "choose spirt or mlless."
                )
            if not databases and fault.kind in LOSSES:
                raise _wrong(
                    fault.number,
                    fault.kind,
                    "is a fault of a tensor database, and the plan has none",
                    "choose spirt, or mlless --store tensordb.",
                )

    def of_kinds(self, *kinds: str) -> tuple[Fault, ...]:
        """Return the faults of these kinds."""
        return tuple(fault for fault in self.faults if fault.kind in kinds)


def _read(number: int, entry: Mapping[str, Any], kinds: Kinds) -> Fault:
    kind: Any = entry.get("kind")
    if type(kind) is not str or kind not in kinds:
        has = "has no kind" if kind is None else f"is of kind {kind!r}, which does not exist"
        raise PlanError(f"Fault {number} {has}.", f"kinds are {', '.join(kinds)}.")
    needed, optional = kinds[kind]
    for name, value in entry.items():
        if name not in ("kind", *needed, *optional):
            raise _wrong(
                number, kind, f"has {name!r}, which does not apply to it", f"it has {', '.join((*needed, *optional))}."
            )
        # To Python, True is an integer.
        if type(value) not in TYPES[name]:
            raise _wrong(number, kind, f"has {name} {value!r}", f"give a value of type {TYPES[name][-1].__name__}.")
    for name in needed:
        if name not in entry:
            raise _wrong(number, kind, f"has no {name}", f"it needs {' and '.join(needed)}.")
    given: dict[str, Any] = dict(entry)
    if kind in (*DEATHS, *LOSSES) and given.get("phase") in STEPWISE:
        given.setdefault("step", 0)
    fault = Fault(number, **given)
    _check_values(fault)
    return fault


def _check_values(fault: Fault) -> None:
    operations = {"slow-down": OBJECTS, "unreachable": CUT}.get(fault.kind, STORES)
    checks = (
        ("phase", fault.phase in (None, *PHASES), f"phases are {', '.join(PHASES)}."),
        ("op", fault.op in (None, *operations), f"operations are {', '.join(operations)}."),
        ("invocation", fault.invocation is None or fault.invocation >= 0, "they are counted from 0."),
        ("factor", 1 <= fault.factor <= MOST_FACTOR, f"a straggler is 1 to {MOST_FACTOR:,.0f} times slower."),
        ("seconds", 0 <= fault.seconds <= MOST_SECONDS, f"give 0 to {MOST_SECONDS:,.0f} s."),
        ("count", 1 <= fault.count <= MOST_COUNT, f"give 1 to {MOST_COUNT:,}."),
        ("probability", 0 < fault.probability <= 1, "it is a share, more than 0 and at most 1."),
    )
    for name, right, hint in checks:
        value = getattr(fault, name)
        if not right or (isinstance(value, float) and not math.isfinite(value)):
            raise _wrong(fault.number, fault.kind, f"has {name} {value!r}", hint)


def _wrong(number: int, kind: str, what: str, hint: str) -> PlanError:
    return PlanError(f"Fault {number} ({kind}) {what}.", hint)
