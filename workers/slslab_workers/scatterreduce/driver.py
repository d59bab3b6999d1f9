"""ScatterReduce's trigger script: n workers of one function, by rank."""

from slslab_workers.architecture import Requirements
from slslab_workers.channels.choice import CHANNEL, CHANNEL_HOST, adds_up
from slslab_workers.channels.polling import POLLING
from slslab_workers.driver.channels import ChannelDeployment, channel_requirements
from slslab_workers.driver.deployment import FunctionArchitecture
from slslab_workers.plan import Plan, PlanError
from slslab_workers.scatterreduce.pattern import longest_chain, pattern
from slslab_workers.training import algorithms, attacks, robust
from slslab_workers.training.buffers import BUFFERS
from slslab_workers.training.options import COMBINE, OPTIMISER, PARTITION, REPLICAS
from slslab_workers.training.released_log import LOG_TRAFFIC


class ScatterReduce(FunctionArchitecture):
    """LambdaML ScatterReduce over S3."""

    name = "scatterreduce"
    title = "ScatterReduce"
    paper = "LambdaML, SIGMOD 2021; Barrak et al. 2025"
    colour = "2"
    summary = (
        "LambdaML ScatterReduce over S3: worker i merges chunk i of all gradients.\n\n"
        "--as-released polls as the authors' code does and has its log traffic; its arithmetic is the mean already."
    )
    options = (
        CHANNEL,
        CHANNEL_HOST,
        *algorithms.OPTIONS,
        COMBINE,
        robust.BYZANTINE,
        attacks.ATTACK,
        OPTIMISER,
        POLLING,
        LOG_TRAFFIC,
        REPLICAS,
        PARTITION,
        BUFFERS,
    )
    handler = "slslab_workers.scatterreduce.handlers.handler"
    deploys = ChannelDeployment
    messages = staticmethod(pattern)
    longest_chain = staticmethod(longest_chain)
    learns = "slslab_workers.training.replicas:Replicas"

    def requirements(self, plan: Plan) -> Requirements:
        """Return the channel's requirements; PlanError if its algorithm or channel doesn't suit the plan."""
        if algorithms.is_asynchronous(plan.options):
            raise PlanError(
                "S-ASP has one global model, and ScatterReduce has a part of it for each worker.",
                "choose allreduce, or --synchronisation bsp.",
            )
        if adds_up(plan.options):
            raise PlanError(
                "A parameter server adds up whole vectors, and ScatterReduce has a worker for each part of one.",
                "choose allreduce, or another --channel.",
            )
        algorithms.check(plan)
        why = "ScatterReduce's workers only have a part of each"
        robust.check(plan, why, "choose gpu, where all workers read them.")
        robust.refuse_inseparable(plan, why)
        return channel_requirements(plan, algorithms.largest_bytes(plan, plan.workers))
