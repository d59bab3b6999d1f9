"""What steps cost, made up: of it programs are generated, which stand for recorded ones."""

from collections.abc import Mapping
from typing import Any

from slslab_lab.replay.kernel.program import Track
from slslab_lab.replay.programs.step_costs import Cost, Key, StepCosts, is_first, is_request, name_of, unit_of
from slslab_lab.runs.planning import architectures
from slslab_workers import patterns
from slslab_workers.architecture import Architecture, Cloud, Outcome, Progress
from slslab_workers.channels.polling import Poll
from slslab_workers.patterns import Pattern, Workload
from slslab_workers.plan import Plan, Value

MS = 1_000_000
PARAMETERS = 1_000
ARCHITECTURES = ("allreduce", "gpu", "mlless", "scatterreduce", "spirt")


class PatternOnly(Architecture):
    """An architecture that is never run."""

    name = "architecture"
    summary = ""

    def drive(self, plan: Plan, cloud: Cloud, progress: Progress) -> Outcome:
        raise NotImplementedError


def make_costs(
    name: str, per_request: float = 2 * MS, per_byte: float = 3.0, per_work: float = 5.0, **options: Value
) -> StepCosts:
    """A millisecond for each computation, and these costs for each request, byte and byte of work."""
    workload = Workload(2, 2, 2, PARAMETERS, options)
    architecture: Any = architectures()[name]
    pattern: Pattern = architecture.pattern(workload)
    costs: dict[Key, Cost] = {}
    for role in pattern.roles:
        for slot, parts in patterns.slots(role, workload):
            for activity in patterns.activities(parts, slot):
                op = name_of(activity)
                request = is_request(op)
                working = bool(activity.work)
                costs[unit_of(role), op, activity.phase, is_first(role, slot)] = Cost(
                    fixed=0.0 if working or op in ("join", "transition") else per_request if request else MS,
                    per_byte=per_byte if request and activity.bytes != 0 else 0.0,
                    per_work=per_work if working and not request else 0.0,
                    server_fixed=0.0,
                    server_per_work=per_work if working and request else 0.0,
                    parallel=op == "compute",
                    bytes=500.0,
                )
    return StepCosts(
        architecture, workload, costs, _functions(pattern), frozenset(), Poll(0.01, 1.5, 0.1), {"get": MS, "list": MS}
    )


def _functions(pattern: Pattern) -> Mapping[str, Track]:
    found = {}
    for role in pattern.roles:
        name = "g4dn.xlarge" if role.kind == "instance" else f"run-{role.function}" if role.function else "run"
        found[unit_of(role)] = Track(name, role.kind, -1, (), 1769, init_cpu_ns=10 * MS)
    return found
