"""The runs behind the model of LambdaML's Table 1: rounds of 2 workers of each job, by each channel."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from slslab.predict.environment import NS
from slslab.run.metrics import grouped
from slslab.run.run import Run
from slslab_lab.replay.measured import Measured, read_measured
from slslab_lab.runs.planning import architectures, make_plan
from slslab_lab.studies import committed
from slslab_lab.studies.documents import Estimate
from slslab_lab.studies.minibatches import mean_of, ratio_of
from slslab_lab.studies.recording import Recording, channel_options, make_missing, small_run
from slslab_lab.studies.study import Setup
from slslab_workers.channels.choice import PARAMETER_SERVER
from slslab_workers.plan import PlanError, Value
from slslab_workers.training.algorithms import ALGORITHM

PATTERN, BASE = "allreduce", "s3"
# The table's columns begin with these names; the values are those of --channel.
COLUMNS = {"memcached": "memcached", "dynamodb": "dynamodb", "vm_ps": PARAMETER_SERVER}
CHANNELS = (BASE, *COLUMNS.values())
RECORDED_WORKERS, ROUNDS, MEMORY_MB = 2, 5, 3008
# HIGGS has 11 M rows; the paper trains with 90 % of them.
HIGGS_ROWS, CIFAR_IMAGES = 9_900_000, 50_000
REQUESTS = (".put", ".get", ".push", ".pull")
# The measured rounds count as a sample of this many.
MANY = 1_000_000


@dataclass(frozen=True)
class Job:
    """A training job of the table; its epochs are the defaults of LambdaML's code."""

    name: str
    model: str
    dataset: str
    samples: int
    batch_size: int
    epochs: int
    options: Mapping[str, Value] = field(default_factory=dict)

    @property
    def algorithm(self) -> str:
        """Return the algorithm's name."""
        return str(ALGORITHM.of(self.options)).upper()

    def batches(self, workers: int) -> int:
        """Return the minibatches of a worker's share in an epoch; the last one may not be full."""
        return -(-self.samples // (workers * self.batch_size))

    def recording(self, channel: str) -> Recording:
        """Return its recording with a channel, with the same number of rounds for each algorithm."""
        batches, epochs = (1, ROUNDS) if self.algorithm == "EM" else (ROUNDS, 1)
        values = small_run(self.model, self.dataset, RECORDED_WORKERS, self.batch_size, batches, epochs, MEMORY_MB)
        return Recording(f"{self.name}-{channel}", PATTERN, values, {**self.options, **channel_options(channel)})


def _kmeans(clusters: int) -> Job:
    options: Mapping[str, Value] = {"algorithm": "em", "clusters": clusters}
    return Job(f"kmeans-{clusters}", "kmeans", "higgs-shaped", HIGGS_ROWS, 100_000, 10, options)


# By the model of a row and its clusters.
JOBS = {
    ("LR", 0): Job("lr", "lr", "higgs-shaped", HIGGS_ROWS, 100_000, 2),
    ("KMeans", 10): _kmeans(10),
    ("KMeans", 1000): _kmeans(1000),
    ("MobileNet", 0): Job("mobilenet", "mobilenet", "synthetic", CIFAR_IMAGES, 128, 5),
}


def refusals() -> dict[str, str]:
    """Return why some jobs can't be run with a channel, by the name that their recording would have."""
    architecture, found = architectures()[PATTERN], {}
    for each in _every():
        try:
            architecture.requirements(make_plan(architecture, each.values, each.options))
        except PlanError as error:
            found[each.name] = error.message.removesuffix(".")
    return found


def _every() -> list[Recording]:
    return [job.recording(channel) for job in JOBS.values() for channel in CHANNELS]


def read(setup: Setup) -> dict[str, Measured]:
    """Return all recordings; RunError for a missing or unfinished one."""
    return _read_all(setup.options.get("recordings") or committed("lambdaml-table1"))


def measure(setup: Setup) -> dict[str, Measured]:
    """Make the missing runs, and return all; finished runs are kept, whatever their plan.

    RunError if one fails, RequestError if another command is making one."""
    make_missing(setup.out, _recordings(), setup.watcher)
    return _read_all(setup.out)


def _read_all(directory: Path) -> dict[str, Measured]:
    return {each.name: read_measured(directory / each.name) for each in _recordings()}


def _recordings() -> list[Recording]:
    refused = refusals()
    return [each for each in _every() if each.name not in refused]


def exchange_ratio(run: Measured, base: Measured) -> Estimate | None:
    """Return a measured round's seconds ÷ another run's."""
    return ratio_of([mean_of(_rounds(each), MANY) for each in (run, base)])


def _rounds(recording: Run) -> list[float]:
    """Return the seconds from the end of each exchange to the end of the next, on the wall clock."""
    ends = grouped(
        ((event["epoch"], event["step"]), event["end_ns"])
        for event in recording.events
        if 0 <= event["worker"] < recording.plan.workers
        and event["step"] >= 0
        and event["phase"] == "synchronise"
        and event["op"].endswith(REQUESTS)
    )
    last = [max(ends[when]) for when in sorted(ends)]
    return [(later - earlier) / NS for earlier, later in pairwise(last)]
