"""AllReduce's trigger script: n workers of one function, by rank."""

from dataclasses import replace

from slslab_workers.allreduce.pattern import longest_chain, pattern
from slslab_workers.architecture import Requirements
from slslab_workers.channels.choice import CHANNEL, CHANNEL_HOST, SERIALISATION, adds_up
from slslab_workers.channels.polling import POLLING
from slslab_workers.driver.channels import ChannelDeployment, channel_requirements
from slslab_workers.driver.deployment import FunctionArchitecture
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import algorithms, attacks, robust
from slslab_workers.training.buffers import BUFFERS
from slslab_workers.training.options import COMBINE, OPTIMISER, PARTITION, REPLICAS
from slslab_workers.training.released_log import LOG_TRAFFIC


class AllReduce(FunctionArchitecture):
    """LambdaML AllReduce over S3."""

    name = "allreduce"
    title = "AllReduce"
    paper = "LambdaML, SIGMOD 2021; Barrak et al. 2025"
    colour = "1"
    summary = (
        "LambdaML AllReduce over S3: rank 0 fetches all gradients, merges them and puts the result for the others.\n\n"
        "--as-released does what the authors' replication did: it sums the gradients instead of averaging them, polls "
        "as their code does, and has its log traffic."
    )
    options = (
        CHANNEL,
        CHANNEL_HOST,
        SERIALISATION,
        *algorithms.OPTIONS,
        replace(COMBINE, released="sum"),
        robust.BYZANTINE,
        attacks.ATTACK,
        OPTIMISER,
        POLLING,
        LOG_TRAFFIC,
        REPLICAS,
        PARTITION,
        BUFFERS,
    )
    handler = "slslab_workers.allreduce.handlers.handler"
    deploys = ChannelDeployment
    messages = staticmethod(pattern)
    longest_chain = staticmethod(longest_chain)
    learns = "slslab_workers.training.replicas:Replicas"

    def requirements(self, plan: Plan) -> Requirements:
        """Return the channel's requirements; PlanError if its algorithm or channel doesn't suit the plan."""
        algorithms.check(plan)
        robust.check(plan, "rank 0 deletes each as soon as it has read it", "choose gpu, where all workers read them.")
        if adds_up(plan.options):
            robust.refuse(plan, "a parameter server only has their sum", "choose another --channel.")
        if 0 in attacks.Attack.of(plan).ranks and COMBINE.of(plan.options) == robust.ZENO:
            raise PlanError("Zeno trusts the minibatch of rank 0, which attacks.", "name other ranks in --attack.")
        return channel_requirements(plan, algorithms.largest_bytes(plan))
