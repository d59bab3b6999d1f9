"""The fault plan: which faults happen in a run, and where.

A plan is a seed and a list of faults. The seed and the place (worker, epoch, step, operation, key) decide whether a
fault happens, and time plays no part. So the same plan gives the same faults at the same moments.
"""

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from slslab_workers.plan import Plan, PlanError
from slslab_workers.trace.operations import OPERATIONS

# The environment variable that passes a plan, as JSON, to workers' processes.
VARIABLE = "SLSLAB_FAULTS"
PHASES = ("fetch", "compute", "synchronise", "update", "wait", "other")
# Happen to a worker once.
DEATHS = ("kill", "out-of-memory", "timeout")
# Happen to a worker's tensor database once.
LOSSES = ("database-loss", "database-restart")
# Happen to a worker's requests to stores; all except the first refuse them.
REQUESTS = ("slow-store", "slow-down", "unreachable")
REFUSALS = (*REQUESTS[1:], "throttle")
# Happen to messages, with the number of copies that arrive.
MESSAGES: Mapping[str, int] = MappingProxyType({"message-lost": 0, "message-duplicated": 2})
PLACE = ("worker", "epoch", "step", "phase")
Kinds = Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
# Required and optional fields of each kind.
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
# The same for functions that aren't workers of a run: those of `slslab up` and of tests.
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
# Steps fetch and compute minibatches; workers may synchronise between steps.
STEPWISE = ("fetch", "compute")
STORES = tuple(op for op, meaning in OPERATIONS.items() if meaning.channel not in ("", "sqs"))
OBJECTS = tuple(op for op in STORES if OPERATIONS[op].channel == "object")
# Requests to a queue's broker can't be cut off, because its client keeps reconnecting.
CUT = tuple(op for op in STORES if OPERATIONS[op].channel != "queue")
# A restarted worker learns which faults have happened from a bit for each.
MOST_FAULTS = 63
MOST_SECONDS, MOST_FACTOR, MOST_COUNT = 900.0, 1000.0, 10**6


@dataclass(frozen=True)
class Fault:
    """One entry of a plan; `number` counts from 1.

    `worker`, `epoch`, `step` (all from 0, as in the trace), `phase` and `op` say where it happens; None means anywhere.
    `factor` is how many times slower a straggler is, `seconds` how much longer a request takes. The first `count`
    requests fail at each place, at a share `probability` of all places.

    For a function that isn't a worker, it happens in `count` invocations from `invocation` (from 0) on, or in all, this
    many `seconds` after they began.
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

    @property
    def title(self) -> str:
        """Return its name in messages."""
        return f"Fault {self.number} ({self.kind})"

    def is_at(self, worker: int, epoch: int, step: int, phase: str) -> bool:
        """Return whether it may happen at this place."""
        asked = zip((self.worker, self.epoch, self.step, self.phase), (worker, epoch, step, phase), strict=True)
        return all(own is None or own == there for own, there in asked)

    def is_met(self, seed: int, function: str, number: int) -> bool:
        """Return whether it happens in this invocation of a function, by the invocation's number, from 0."""
        first = number if self.invocation is None else self.invocation
        chosen = function == self.function and first <= number < first + self.count
        return chosen and self.is_drawn(seed, function, number)

    def is_drawn(self, seed: int, *place: object) -> bool:
        """Return whether it happens at this place, given its probability."""
        return self.probability >= 1 or random.Random(f"{seed} {self.number} {place}").random() < self.probability


@dataclass(frozen=True)
class FaultPlan:
    """Faults, and the seed for their probabilities."""

    seed: int
    faults: tuple[Fault, ...]

    @classmethod
    def from_document(cls, document: Mapping[str, Any], kinds: Kinds = KINDS) -> Self:
        """Read a plan from a document with `seed` and a list `fault`; PlanError, naming the entry, if it is wrong."""
        unknown = sorted(set(document) - {"seed", "fault"})
        if unknown:
            raise PlanError(f"A fault plan can't contain {unknown[0]!r}.", "use seed and tables [[fault]].")
        seed, entries = document.get("seed", 0), document.get("fault", [])
        if type(seed) is not int or seed < 0:
            raise PlanError(f"The fault plan's seed is {seed!r}.", "give a whole number, 0 or more.")
        if isinstance(entries, list | tuple) and len(entries) > MOST_FAULTS:
            raise PlanError(f"The fault plan has {len(entries)} faults.", f"at most {MOST_FAULTS} are allowed.")
        if not isinstance(entries, list | tuple) or not entries or not all(isinstance(e, Mapping) for e in entries):
            raise PlanError("The fault plan has no faults.", "write each as a table [[fault]] with its kind.")
        return cls(seed, tuple(_read(number, entry, kinds) for number, entry in enumerate(entries, 1)))

    def check(self, plan: Plan, *, instances: bool, databases: int, queue: bool) -> None:
        """Raise PlanError, naming the entry, if a fault's place isn't in the plan, or can't have this fault.

        `instances` says whether workers are instances, `queue` whether they have a queue, `databases` how many tensor
        databases they have.
        """
        for fault in self.faults:
            for name, many in (("worker", plan.workers), ("epoch", plan.epochs), ("step", plan.batches)):
                chosen = getattr(fault, name)
                if chosen is not None and chosen not in range(many):
                    raise PlanError(
                        f"{fault.title} has {name} {chosen}, but the plan's {name}s are 0 to {many - 1}.",
                        f"count from 0; --{'batches' if name == 'step' else name + 's'} sets their number.",
                    )
            if instances and fault.kind in ("out-of-memory", "timeout", "throttle"):
                raise PlanError(
                    f"{fault.title} is a limit of Lambda, but the workers are instances.",
                    "choose kill, straggler or a store's fault.",
                )
            for service, present, kinds in (("queue", queue, MESSAGES), ("tensor database", databases, LOSSES)):
                if fault.kind in kinds and not present:
                    raise PlanError(
                        f"{fault.title} needs a {service}, and the plan doesn't have one.",
                        f"choose an architecture with a {service}.",
                    )

    def of_kinds(self, *kinds: str) -> tuple[Fault, ...]:
        """Return the faults of these kinds."""
        return tuple(fault for fault in self.faults if fault.kind in kinds)


def kinds_left_out(faults: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the kinds of these faults that a replay leaves out: all except stragglers, in order."""
    return sorted({str(fault["kind"]) for fault in faults} - {"straggler"})


def _read(number: int, entry: Mapping[str, Any], kinds: Kinds) -> Fault:
    kind: Any = entry.get("kind")
    if type(kind) is not str or kind not in kinds:
        has = "has no kind" if kind is None else f"is of kind {kind!r}, which does not exist"
        raise PlanError(f"Fault {number} {has}.", f"kinds are {', '.join(kinds)}.")
    title, (needed, optional) = Fault(number, kind).title, kinds[kind]
    for name, value in entry.items():
        if name not in ("kind", *needed, *optional):
            fields = ", ".join((*needed, *optional))
            raise PlanError(f"{title} has {name!r}, which does not apply to it.", f"it has {fields}.")
        # To Python, True is an integer.
        if type(value) not in TYPES[name]:
            raise PlanError(f"{title} has {name} {value!r}.", f"give a value of type {TYPES[name][-1].__name__}.")
    for name in needed:
        if name not in entry:
            raise PlanError(f"{title} has no {name}.", f"it needs {' and '.join(needed)}.")
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
        ("invocation", fault.invocation is None or fault.invocation >= 0, "count from 0."),
        ("factor", 1 <= fault.factor <= MOST_FACTOR, f"a straggler is 1 to {MOST_FACTOR:,.0f} times slower."),
        ("seconds", 0 <= fault.seconds <= MOST_SECONDS, f"give 0 to {MOST_SECONDS:,.0f} s."),
        ("count", 1 <= fault.count <= MOST_COUNT, f"give 1 to {MOST_COUNT:,}."),
        ("probability", 0 < fault.probability <= 1, "give a share, more than 0 and at most 1."),
    )
    for name, right, hint in checks:
        value = getattr(fault, name)
        if not right or (isinstance(value, float) and not math.isfinite(value)):
            raise PlanError(f"{fault.title} has {name} {value!r}.", hint)
