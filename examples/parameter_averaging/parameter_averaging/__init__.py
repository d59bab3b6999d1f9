"""Parameter averaging (local SGD): workers train on their own and average their models every few steps, over S3."""

from collections.abc import Mapping

from slslab_workers.architecture import NO_OPTIONS, Architecture, Cloud, Outcome, Progress
from slslab_workers.driver.deployment import train_data_parallel
from slslab_workers.option import Option
from slslab_workers.patterns import Counts
from slslab_workers.plan import Plan, Value

EVERY = Option("every", int, 5, "Steps between two averages.")


class ParameterAveraging(Architecture):
    """Another architecture: what it is called, its options, what it sends, and how it is run."""

    name = "parameter-averaging"
    summary = "Parameter averaging over S3: every worker trains on its own, and all average their models every K steps."
    options = (EVERY,)

    def counts(
        self, workers: int, batches: int, epochs: int, parameters: int, options: Mapping[str, Value] = NO_OPTIONS
    ) -> Counts:
        """Per average n puts and n(n − 1) gets of G bytes."""
        averages = batches * epochs // int(self.complete(options)["every"])
        puts, gets = averages * workers, averages * workers * (workers - 1)
        return Counts({"object.put": puts, "object.get": gets}, puts * 4 * parameters, gets * 4 * parameters)

    def drive(self, plan: Plan, cloud: Cloud, progress: Progress) -> Outcome:
        """Deploy n workers of one function, train, evaluate and clean up."""
        return train_data_parallel(plan, "parameter_averaging.handlers.handler", cloud, progress)


architecture = ParameterAveraging()
