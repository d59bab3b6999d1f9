"""ScatterReduce's trigger script: n workers of one function, each with its rank."""

from typing import TYPE_CHECKING

from slslab_workers.architecture import Architecture, Cloud, Outcome, Progress
from slslab_workers.deployment import train_data_parallel
from slslab_workers.job import PARTITION, REPLICAS
from slslab_workers.logs import LOG_TRAFFIC
from slslab_workers.plan import Plan
from slslab_workers.polling import POLLING
from slslab_workers.scatterreduce.counts import counts
from slslab_workers.scatterreduce.pattern import pattern

if TYPE_CHECKING:
    from slslab_workers.replicas import Replicas


class ScatterReduce(Architecture):
    """LambdaML ScatterReduce over S3."""

    name = "scatterreduce"
    summary = (
        "LambdaML ScatterReduce over S3: worker i merges chunk i of everybody's gradient.\n\n"
        "--as-released polls as the authors' code does and has its log traffic; its arithmetic is the mean already."
    )
    options = (POLLING, LOG_TRAFFIC, REPLICAS, PARTITION)

    counts = staticmethod(counts)
    pattern = staticmethod(pattern)

    def replicas(self) -> "type[Replicas]":
        """The mean in every step."""
        from slslab_workers.replicas import Replicas

        return Replicas

    def drive(self, plan: Plan, cloud: Cloud, progress: Progress) -> Outcome:
        """Deploy, invoke, wait, evaluate."""
        return train_data_parallel(plan, "slslab_workers.scatterreduce.handlers.handler", cloud, progress)
