"""KubeML's accuracy by global batch, on what two processors can train: LeNet on 3,584 of MNIST's images."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Annotated, Any

from pydantic import Field

from slslab.errors import counted
from slslab.run.metrics import grouped
from slslab.toml_files import TomlTable
from slslab_lab.runs.planning import architectures, make_plan
from slslab_lab.studies.documents import Cell, ReproducedRow, make_curve, make_document, middle
from slslab_lab.studies.kept import Kept, made_now
from slslab_lab.studies.rankings import Order, judge
from slslab_lab.studies.study import Setup
from slslab_lab.studies.trainings import learn, train
from slslab_workers.plan import Plan

TABLE, ARCHITECTURE = "accuracy", "kubeml"
FUNCTIONS, BATCH_SIZES = (1, 2, 4), (16, 32, 64, 128)
# Of mnist5k's 4,000: 56 documents, which can be divided by all numbers of functions and minibatch sizes.
SAMPLES = 3_584
# The paper's values for LeNet; K = ∞ was its best.
TRAINING = {"model": "lenet", "dataset": "mnist5k", "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4}
OURS, PUBLISHED = "LeNet on mnist5k", "ResNet34 on CIFAR-10"
COLUMNS = (("accuracy", "Accuracy after the last epoch", "%", 2),)


class Series(TomlTable):
    """Test accuracies (0..1) after each epoch, by seed, for these functions and samples a minibatch."""

    functions: Annotated[int, Field(ge=1)]
    batch_size: Annotated[int, Field(ge=1)]
    accuracies: Annotated[Mapping[int, Annotated[tuple[float, ...], Field(min_length=1)]], Field(min_length=1)]

    @property
    def global_batch(self) -> int:
        """Return the samples of all functions' minibatches."""
        return self.functions * self.batch_size

    @property
    def last(self) -> list[float]:
        """Return the accuracy after the last epoch from each seed, %."""
        return [100 * each[-1] for each in self.accuracies.values()]


class Accuracies(Kept):
    """All series."""

    series: Annotated[tuple[Series, ...], Field(min_length=1)]


RESULTS = Accuracies


@dataclass(frozen=True)
class Setting:
    """One training."""

    functions: int
    batch_size: int
    seed: int
    epochs: int

    def plan(self) -> Plan:
        """Return the complete plan."""
        sizes = {"workers": self.functions, "batch_size": self.batch_size, "seed": self.seed, "epochs": self.epochs}
        batches = SAMPLES // (self.functions * self.batch_size)
        return make_plan(architectures()[ARCHITECTURE], {**TRAINING, **sizes, "batches": batches}, {})


def settings_of(seeds: int, epochs: int) -> list[Setting]:
    """Return all trainings."""
    return [
        Setting(functions, batch_size, seed, epochs)
        for functions in FUNCTIONS
        for batch_size in BATCH_SIZES
        for seed in range(seeds)
    ]


def measure(setup: Setup) -> Accuracies:
    """Train all settings, one after another or where `on` says."""
    learnt = train(learn, settings_of(*setup.effort), setup.options.get("on"), setup.watcher.report)
    return Accuracies(
        **made_now(),
        series=tuple(
            Series(functions=setting.functions, batch_size=setting.batch_size, accuracies=accuracies)
            for setting, accuracies in learnt.items()
        ),
    )


def build(setup: Setup, accuracies: Accuracies) -> dict[str, Any]:
    """Return the document."""
    table = setup.paper.table(TABLE)
    published = [(int(row.inputs["functions"]), int(row.inputs["batch_size"]), row) for row in table.rows]
    of_paper = grouped((n, (n * size, float(row.published["accuracy"]))) for n, size, row in published)
    members = grouped((series.functions, series) for series in accuracies.series)
    rows = [
        *(
            _row(each.functions, each.global_batch, OURS, Cell(measured=middle(each.last)))
            for each in accuracies.series
        ),
        *(_row(n, n * size, PUBLISHED, Cell(row.published["accuracy"])) for n, size, row in published),
    ]
    return make_document(
        setup,
        table,
        COLUMNS,
        rows,
        _notes(accuracies),
        curves=[
            _picture(OURS, {n: [(one.global_batch, fmean(one.last)) for one in each] for n, each in members.items()}),
            _picture(PUBLISHED, of_paper),
        ],
        measurements=accuracies.about("series"),
        orders=[asdict(order(each)) for each in members.values()],
    )


def order(series: Sequence[Series]) -> Order:
    """Return whether, from every seed, accuracy is lower with the largest global batch than with the smallest."""
    first, last = (pick(series, key=lambda one: one.global_batch) for pick in (min, max))
    pairs = list(zip(first.last, last.last, strict=True))
    figures = ", ".join(f"{one.global_batch:,}: {middle(one.last).value:.1f} %" for one in series)
    verdict = judge(small > large for small, large in pairs)
    title = "accuracy falls from the smallest to the largest global batch"
    return Order(title, counted(first.functions, "function"), verdict, figures)


def _row(functions: int, global_batch: int, variant: str, cell: Cell) -> ReproducedRow:
    name, group = f"global batch of {global_batch:,}", counted(functions, "function")
    return ReproducedRow(name, group, variant, {"accuracy": cell})


def _picture(variant: str, lines: Mapping[int, Sequence[tuple[int, float]]]) -> dict[str, Any]:
    x, y = ("global_batch", "images of all functions' minibatches", ""), ("accuracy", "accuracy", "%")
    named = [(counted(n, "function"), [x for x, _ in points], [y for _, y in points]) for n, points in lines.items()]
    return make_curve(f"{variant}: accuracy by global batch", variant, x, y, named)


def _notes(accuracies: Accuracies) -> Iterator[str]:
    first = next(iter(accuracies.series[0].accuracies.values()))
    seeds = len(accuracies.series[0].accuracies)
    yield (
        f"Measured: LeNet-5 on {SAMPLES:,} of mnist5k's training images, {counted(len(first), 'epoch')}, "
        f"{counted(seeds, 'seed')}, learning rate {TRAINING['lr']}, momentum {TRAINING['momentum']}, one merge an "
        f"epoch (K = ∞), all functions in one process with the same bits as a run. {accuracies.origin}."
    )
    yield (
        "Different from the paper: its figure uses ResNet34 on CIFAR-10 after 30 epochs with 2, 4 and 8 functions, "
        "and doesn't state the K of its bars. Here 1,000 test images resolve accuracies to 0.1 points. So the "
        "comparison is only about the order, not about accuracies."
    )
