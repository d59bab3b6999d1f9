"""What the steps of one architecture say of another one: the same requests and computations, in another order.

Both train the same model, and a put, a get, a sum, an update cost a worker the same CPU time in either; what only the
other one does cannot be said, and is refused when its program is made."""

from dataclasses import replace

from slslab.replay.scaling import BEFORE, Cost, Key, StepCosts
from slslab_workers.architecture import Architecture
from slslab_workers.plan import Plan

INSTANCE = "instance"


def transfer(costs: StepCosts, room: Architecture, plan: Plan) -> StepCosts:
    """The costs of a recording for another architecture, with that one's default options; `plan` is the recording's.

    An instance starts as an environment does: Python, torch. It is of the type that the architecture asks for."""
    functions, known = dict(costs.functions), dict(costs.costs)
    fleet = room.requirements(replace(plan, architecture=room.name, options={})).instances
    if fleet is not None:
        example = max(functions.values(), key=lambda track: track.memory_mb)
        functions[INSTANCE] = replace(example, name=fleet.instance_type, kind="instance", memory_mb=plan.memory_mb)
        start: Key = (INSTANCE, *BEFORE, False)
        known[start] = Cost(example.init_cpu_ns, 0.0, 0.0, 0.0, 0.0, False, 0.0)
    workload = replace(costs.workload, options={}, share=1.0)
    return replace(costs, room=room, workload=workload, costs=known, functions=functions)
