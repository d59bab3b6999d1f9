"""The GPU baseline's trigger script: n instances, each with its rank."""

from slslab_workers.architecture import Requirements
from slslab_workers.driver.instances import DEVICE, INSTANCE_TYPE, InstanceArchitecture
from slslab_workers.gpu.pattern import pattern
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import attacks, robust
from slslab_workers.training.buffers import BUFFERS
from slslab_workers.training.options import COMBINE, OPTIMISER, PARTITION, REPLICAS


class Gpu(InstanceArchitecture):
    """Instances with GPUs that exchange gradients over S3."""

    name = "gpu"
    title = "GPU baseline"
    paper = "Barrak et al. 2025"
    colour = "5"
    summary = (
        "The GPU baseline over S3: n long-running instances. Each puts its gradient and gets all others.\n\n"
        "Instances are billed from launch to end, and Lambda's limits don't apply to them: --timeout has no effect, "
        "--memory is what the host keeps free for a worker and, as for a function, decides how many threads it has. "
        "--mode per-batch, --invoke event and --as-released are refused: the authors' script is a single process that "
        "plays all workers one after another."
    )
    options = (
        DEVICE,
        INSTANCE_TYPE,
        COMBINE,
        robust.BYZANTINE,
        attacks.ATTACK,
        OPTIMISER,
        REPLICAS,
        PARTITION,
        BUFFERS,
    )
    released = (
        "The authors' GPU script is a single process that plays all workers one after another, without an exchange "
        "to run as released."
    )
    module = "slslab_workers.gpu.instance"
    messages = staticmethod(pattern)
    learns = "slslab_workers.training.replicas:Replicas"

    def requirements(self, plan: Plan) -> Requirements:
        requirements = super().requirements(plan)
        robust.check(plan)
        if plan.options[COMBINE.name] == robust.ZENO:
            raise PlanError(
                "Zeno judges gradients by one trusted minibatch, but here each worker would use its own.",
                "choose allreduce, where rank 0 judges for all.",
            )
        return requirements
