"""The GPU baseline's trigger script: n instances, each with its rank."""

from typing import Any

from slslab_workers.architecture import Architecture, Cloud, Fleet, Outcome, Progress, Requirements
from slslab_workers.driver.instances import DEVICE, INSTANCE_TYPE, check, launch_and_train
from slslab_workers.gpu.pattern import pattern
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import attacks, robust
from slslab_workers.training.options import COMBINE, OPTIMISER, PARTITION, REPLICAS

MODULE = "slslab_workers.gpu.instance"


class Gpu(Architecture):
    """Instances with GPUs that exchange gradients over S3."""

    name = "gpu"
    summary = (
        "The GPU baseline over S3: n long-running instances, each of which puts its gradient and gets all others.\n\n"
        "Instances are billed from launch to end, and Lambda's limits do not apply to them: --timeout has no effect, "
        "--memory is what the host keeps free for a worker and, as for a function, decides how many threads it has. "
        "--mode per-batch, --invoke event and --as-released are refused: the authors' script is a single process that "
        "plays all workers one after another."
    )
    options = (DEVICE, INSTANCE_TYPE, COMBINE, robust.BYZANTINE, attacks.ATTACK, OPTIMISER, REPLICAS, PARTITION)

    def requirements(self, plan: Plan) -> Requirements:
        """Return the instances; raise PlanError for what an instance cannot do."""
        check(
            plan,
            "The authors' GPU script is a single process that plays all workers one after another, and has no "
            "exchange that could be run as released.",
        )
        attacks.check(plan)
        robust.check(plan)
        if plan.options[COMBINE.name] == robust.ZENO:
            raise PlanError(
                "Zeno judges gradients by one trusted minibatch, and here each worker would judge by its own.",
                "choose allreduce, where rank 0 judges for all.",
            )
        return Requirements(instances=Fleet(str(plan.options["instance-type"]), str(plan.options["device"])))

    pattern = staticmethod(pattern)

    def replicas(self) -> type[Any]:
        """Return the replicas that update in every step with the mean."""
        from slslab_workers.training.replicas import Replicas

        return Replicas

    def drive(self, plan: Plan, cloud: Cloud, progress: Progress) -> Outcome:
        """Store minibatches, launch, wait, evaluate."""
        self.requirements(plan)
        return launch_and_train(MODULE, plan, cloud, progress)
