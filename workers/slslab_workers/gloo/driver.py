"""The trigger script of IaaS peers: n instances, each with its rank."""

from dataclasses import replace

from slslab_workers.architecture import Requirements
from slslab_workers.driver.instances import DEVICE, INSTANCE_TYPE, InstanceArchitecture
from slslab_workers.gloo.pattern import pattern
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import robust
from slslab_workers.training.buffers import BUFFERS
from slslab_workers.training.options import COMBINE, OPTIMISER, PARTITION, REPLICAS


class Gloo(InstanceArchitecture):
    """Instances that add up their gradients with an all-reduce."""

    name = "gloo"
    title = "IaaS peers"
    paper = "LambdaML, SIGMOD 2021"
    summary = (
        "IaaS peers: n long-running instances that add up their gradients with PyTorch's ring all-reduce, over gloo, "
        "or NCCL on GPUs.\n\n"
        "Instances are billed from launch to end, and Lambda's limits don't apply to them: --timeout is how long a "
        "peer waits for the others in an all-reduce, --memory is what the host keeps free for a worker and, as for a "
        "function, decides how many threads it has. --mode per-batch, --invoke event and --as-released are refused."
    )
    options = (
        replace(
            DEVICE,
            help="What instances compute on; auto uses CUDA if the instance type has a GPU and torch sees one, else "
            "the CPU. On CUDA each instance needs its own GPU.",
        ),
        replace(INSTANCE_TYPE, default="c5.large"),
        COMBINE,
        OPTIMISER,
        REPLICAS,
        PARTITION,
        BUFFERS,
    )
    released = "The all-reduce is PyTorch's, so there isn't any code of the authors to run as released."
    module = "slslab_workers.gloo.instance"
    messages = staticmethod(pattern)
    learns = "slslab_workers.gloo.replicas:Replicas"

    def requirements(self, plan: Plan) -> Requirements:
        fleet = super().requirements(plan).instances
        assert fleet is not None
        robust.refuse(plan, "gloo's ring adds them up itself", "choose gpu, where every instance reads them all.")
        if not fleet.has_gpu:
            if fleet.device == "cuda":
                raise PlanError(
                    f"An instance of type {fleet.instance_type} doesn't have a GPU.",
                    "use --device cpu, or --instance-type g4dn.xlarge.",
                )
            fleet = replace(fleet, device="cpu")
        return Requirements(instances=fleet)
