"""AllReduce's trigger script: n workers of one function, each with its rank."""

from typing import TYPE_CHECKING

from slslab_workers.allreduce.counts import counts
from slslab_workers.allreduce.pattern import pattern
from slslab_workers.architecture import Architecture, Cloud, Option, Outcome, Progress
from slslab_workers.deployment import train_data_parallel
from slslab_workers.job import PARTITION, REPLICAS
from slslab_workers.logs import LOG_TRAFFIC
from slslab_workers.plan import Plan
from slslab_workers.polling import POLLING

if TYPE_CHECKING:
    from slslab_workers.replicas import Replicas


class AllReduce(Architecture):
    """LambdaML AllReduce over S3."""

    name = "allreduce"
    summary = (
        "LambdaML AllReduce over S3: rank 0 fetches all gradients, merges them and puts the result for the others.\n\n"
        "--as-released does what the authors' replication did: it sums the gradients instead of averaging them, polls "
        "as their code does, and has its log traffic."
    )
    options = (
        Option(
            "combine",
            str,
            "mean",
            "What becomes of the gradients; the authors' replication sums them.",
            ("mean", "sum"),
            released="sum",
        ),
        POLLING,
        LOG_TRAFFIC,
        REPLICAS,
        PARTITION,
    )

    counts = staticmethod(counts)
    pattern = staticmethod(pattern)

    def replicas(self) -> "type[Replicas]":
        """Mean, or sum."""
        from slslab_workers.allreduce.replicas import AllReduceReplicas

        return AllReduceReplicas

    def drive(self, plan: Plan, cloud: Cloud, progress: Progress) -> Outcome:
        """Deploy, invoke, wait, evaluate."""
        return train_data_parallel(plan, "slslab_workers.allreduce.handlers.handler", cloud, progress)
