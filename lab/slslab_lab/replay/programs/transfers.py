"""Use one architecture's step costs for another one: the same requests and computations, in another order.

Both train the same model, and a put, get, sum or update takes a worker the same CPU time in both. If only the other
architecture has a step, its cost is unknown and its program is refused.
"""

from dataclasses import replace

from slslab_lab.replay.programs.scaling import BEFORE
from slslab_lab.replay.programs.step_costs import Cost, StepCosts
from slslab_workers.architecture import Architecture
from slslab_workers.plan import Plan

INSTANCE = "instance"


def transfer(costs: StepCosts, architecture: Architecture, plan: Plan) -> StepCosts:
    """Return the costs of a recording for another architecture with its default options; `plan` is the recording's.

    An instance starts like an environment: Python, then torch. Its type is the one that the architecture asks for.
    """
    functions, known = dict(costs.functions), dict(costs.costs)
    options = architecture.complete({})
    fleet = architecture.requirements(replace(plan, architecture=architecture.name, options=options)).instances
    if fleet is not None:
        example = max(functions.values(), key=lambda track: track.memory_mb)
        functions[INSTANCE] = replace(example, name=fleet.instance_type, kind="instance", memory_mb=plan.memory_mb)
        known[INSTANCE, *BEFORE, False] = Cost(example.init_cpu_ns, 0.0, 0.0, 0.0, 0.0, False, 0.0)
    workload = replace(costs.workload, options=options, share=1.0)
    return replace(costs, architecture=architecture, workload=workload, costs=known, functions=functions)
