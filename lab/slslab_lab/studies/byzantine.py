"""Accuracy by attack, rule and number of attackers, and the cost of each rule: LeNet on digits, 5 workers.

All workers are in one process, with the same bits as a run. The SPIRT paper's abstract says that robust rules keep its
accuracy under Byzantine attacks. Its figures are not reproduced here.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean, median
from typing import Annotated, Any

from pydantic import Field

from slslab.errors import counted
from slslab.report.formats import listed
from slslab.run.bill import Book
from slslab.run.metrics import grouped
from slslab.toml_files import TomlTable
from slslab_lab.runs.planning import architectures, make_plan
from slslab_lab.studies.documents import Cell, Estimate, ReproducedRow, make_document, middle
from slslab_lab.studies.kept import Kept, made_now
from slslab_lab.studies.study import Setup
from slslab_lab.studies.trainings import learn, train
from slslab_workers.models import spec
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import robust
from slslab_workers.training.attacks import ALIE, IPM, NAMES

TABLE, ARCHITECTURE = "byzantine", "allreduce"
RULES, NO_ATTACK, MEAN = ("mean", *robust.RULES), "none", "mean"
WORKERS, ATTACKERS = 5, (1, 2)
TRAINING = {"model": "lenet", "dataset": "digits", "batch_size": 32, "batches": 8, "lr": 0.02, "epochs": 20}
# A rule stays beside the mean without attack up to so many points, and falls from so many on.
CLOSE, FALLEN = 3.0, 10.0
CHANCE = 10.0
LAST = 3
SIGN_FLIP = "sign-flip"
# Models for timing the rules, repetitions, and images.
MODELS, TIMES, IMAGES = ("lenet", "mobilenet", "resnet18"), 5, 32
UPDATES = 1000
COLUMNS = (
    ("accuracy", "Accuracy, median of the last three epochs", "%", 1),
    ("seconds", "Seconds of a rule, 5 gradients", "s", 5),
    ("cost", "Cost of a rule in 1,000 updates", "USD", 6),
)


class Series(TomlTable):
    """Test accuracies (0..1) after each epoch, by seed, of a rule that expects this number of attackers."""

    rule: str
    attack: str
    attackers: Annotated[int, Field(ge=0)]
    accuracies: Annotated[Mapping[int, Annotated[tuple[float, ...], Field(min_length=1)]], Field(min_length=1)]

    @property
    def last(self) -> list[float]:
        """Return the accuracy of each seed in %: the median over the last three epochs."""
        return [100 * median(each[-LAST:]) for each in self.accuracies.values()]


class Cost(TomlTable):
    """Seconds of a rule on a model's gradients, in a process with the threads of the model's memory size."""

    rule: str
    model: str
    parameters: int
    memory_mb: int
    seconds: Annotated[tuple[float, ...], Field(min_length=1)]


class Accuracies(Kept):
    """All series and costs."""

    series: Annotated[tuple[Series, ...], Field(min_length=1)]
    costs: tuple[Cost, ...]


RESULTS = Accuracies


@dataclass(frozen=True)
class Setting:
    """One training: the rule knows the number of attackers, which have the highest ranks."""

    rule: str
    attack: str
    attackers: int
    seed: int

    def plan(self) -> Plan:
        """Return the complete plan; PlanError if the rule can't withstand that many attackers."""
        options: dict[str, Any] = {"combine": self.rule}
        if self.rule in robust.KNOWN and robust.KNOWN[self.rule].informed:
            options["byzantine"] = max(1, self.attackers)
        if self.attackers:
            ranks = range(WORKERS - self.attackers, WORKERS)
            options["attack"] = f"{self.attack}:{','.join(map(str, ranks))}"
        plan = make_plan(architectures()[ARCHITECTURE], {**TRAINING, "workers": WORKERS, "seed": self.seed}, options)
        robust.check(plan)
        return plan


def settings_of(seeds: int) -> list[Setting]:
    """Return all trainings that the rules' preconditions allow."""
    wanted = [(rule, NO_ATTACK, 0) for rule in RULES]
    wanted += [(rule, attack, attackers) for attackers in ATTACKERS for attack in NAMES for rule in RULES]
    return [Setting(*each, seed) for each in wanted if is_possible(each[0], each[2]) for seed in range(seeds)]


def is_possible(rule: str, attackers: int) -> bool:
    """Return whether a rule allows this number of attackers among the workers."""
    try:
        Setting(rule, SIGN_FLIP, attackers, 0).plan()
    except PlanError:
        return False
    return True


def time_rule(rule: str, model: str) -> Cost:
    """Return the time of a rule in this process, over `WORKERS` gradients of a model's size."""
    import torch

    from slslab_workers.plan import thread_count
    from slslab_workers.training import aggregation
    from slslab_workers.training.models import build

    known = spec(model)
    torch.set_num_threads(thread_count(known.memory_mb))
    built = build(model, 0)
    parameters = sum(parameter.numel() for parameter in built.parameters())
    generator = torch.Generator().manual_seed(0)
    vectors = [torch.randn(parameters, generator=generator) for _ in range(WORKERS)]
    plan = replace(Setting(MEAN, NO_ATTACK, 0, 0).plan(), options={"combine": rule, "byzantine": 1})
    channels = 1 if model == "lenet" else 3
    trusted = torch.randn(IMAGES, channels, 32, 32, generator=generator), torch.zeros(IMAGES, dtype=torch.int64)
    seconds = []
    for _ in range(1 + TIMES):
        began = time.perf_counter()
        if rule == MEAN:
            # Computed as workers do: the sum in rank order, divided.
            aggregation.RULES["mean"](aggregation.sum_in_rank_order(vectors), WORKERS, WORKERS)
        else:
            robust.applied(plan, vectors, built, trusted)
        seconds.append(time.perf_counter() - began)
    # The first repetition runs with cold caches.
    return Cost(rule=rule, model=model, parameters=parameters, memory_mb=known.memory_mb, seconds=tuple(seconds[1:]))


def measure(setup: Setup) -> Accuracies:
    """Train all settings, one after another or where `on` says; then time all rules on this host."""
    learnt = train(learn, settings_of(setup.effort), setup.options.get("on"), setup.watcher.report)
    timed = [(rule, model) for model in MODELS for rule in RULES]
    costs = [time_rule(*each) for each in setup.watched("timing rules", timed)]
    series = [
        Series(rule=each.rule, attack=each.attack, attackers=each.attackers, accuracies=accuracies)
        for each, accuracies in learnt.items()
    ]
    return Accuracies(**made_now(), series=tuple(series), costs=tuple(costs))


def build(setup: Setup, accuracies: Accuracies) -> dict[str, Any]:
    """Return the document."""
    book = setup.book
    return make_document(
        setup,
        setup.paper.table(TABLE),
        COLUMNS,
        _rows(accuracies, book),
        _notes(accuracies, book),
        measurements=accuracies.about("series", "costs"),
        findings=list(_findings(accuracies)),
        matrices=[*_accuracy_matrices(accuracies), _cost_matrix(accuracies, book)],
    )


def _rows(accuracies: Accuracies, book: Book) -> Iterator[ReproducedRow]:
    for series in accuracies.series:
        attackers = counted(series.attackers, "attacker")
        cells = {"accuracy": Cell(measured=middle(series.last))}
        yield ReproducedRow(series.rule, series.attack, attackers, cells)
    for cost in accuracies.costs:
        usd = Cell(modelled=Estimate(_usd(cost, book)))
        cells = {"seconds": Cell(measured=middle(cost.seconds)), "cost": usd}
        yield ReproducedRow(cost.rule, cost.model, f"{cost.memory_mb:,} MB", cells)


def _usd(cost: Cost, book: Book) -> float:
    """Return the USD for the GB-seconds of a rule in `UPDATES` updates by one function of the model's memory size."""
    price = float(book.prices["lambda.duration.x86_64"].price)
    return UPDATES * median(cost.seconds) * cost.memory_mb / book.gb_mb * price


def _means(accuracies: Accuracies) -> dict[tuple[str, str, int], float]:
    return {(each.rule, each.attack, each.attackers): fmean(each.last) for each in accuracies.series}


def _accuracy_matrices(accuracies: Accuracies) -> Iterator[dict[str, Any]]:
    means = _means(accuracies)
    for attackers in ATTACKERS:
        columns = [(NO_ATTACK, 0), *((attack, attackers) for attack in NAMES)]
        found = {rule: [means.get((rule, *column)) for column in columns] for rule in RULES}
        yield {
            "title": f"Accuracy with {attackers} of {WORKERS} workers attacking (%)",
            "headings": ["rule", "no attack", *NAMES],
            "rows": [
                [rule, *("refused" if cell is None else f"{cell:.1f}" for cell in cells)]
                for rule, cells in found.items()
            ],
        }


def _cost_matrix(accuracies: Accuracies, book: Book) -> dict[str, Any]:
    by_rule = grouped((cost.rule, cost) for cost in accuracies.costs)
    means = {cost.model: median(cost.seconds) for cost in by_rule[MEAN]}

    def texts(cost: Cost) -> tuple[str, str, str]:
        seconds = median(cost.seconds)
        return f"{1000 * seconds:.2f}", f"{seconds / means[cost.model]:.1f}", f"≈{_usd(cost, book):.6f}"

    rows = [[rule, *chain(*map(texts, costs))] for rule, costs in by_rule.items()]
    headings = [f"{model}, {what}" for model in means for what in ("ms", "× mean", f"USD per {UPDATES:,}")]
    return {"title": f"What a rule costs, {WORKERS} gradients", "headings": ["rule", *headings], "rows": rows}


def _findings(accuracies: Accuracies) -> Iterator[str]:
    means = _means(accuracies)
    usual = means[(MEAN, NO_ATTACK, 0)]
    flipped = means[(MEAN, SIGN_FLIP, 1)]
    close = [rule for rule in robust.RULES if means[(rule, SIGN_FLIP, 1)] >= usual - CLOSE]
    learns = "fails to learn" if flipped < 2 * CHANCE else "still learns"
    yield (
        f"With one sign-flipping worker of {WORKERS}, the mean {learns}: {flipped:.1f} %, against {usual:.1f} % "
        f"without attack and {CHANCE:.0f} % by guessing. {len(close)} of {len(robust.RULES)} rules stay within "
        f"{CLOSE:.0f} points of the accuracy without attack: {listed(close) if close else 'none'}."
    )
    for attack, attackers in ((ALIE, 1), (IPM, 1), (ALIE, 2), (IPM, 2)):
        found = {rule: means[key] for rule in RULES if (key := (rule, attack, attackers)) in means}
        fallen = [f"{rule} ({each:.1f} %)" for rule, each in found.items() if each < usual - FALLEN]
        kept = [rule for rule, each in found.items() if each >= usual - CLOSE]
        yield (
            f"{attack.upper()} by {attackers} of {WORKERS}: {FALLEN:.0f} points or more are lost with "
            f"{listed(fallen) if fallen else 'no rule'}, at most {CLOSE:.0f} points with "
            f"{listed(kept) if kept else 'no rule'}."
        )


def _notes(accuracies: Accuracies, book: Book) -> Iterator[str]:
    seeds = len(accuracies.series[0].accuracies)
    yield (
        f"Measured: LeNet-5 on digits, {WORKERS} workers, 8 minibatches of 32 each, {TRAINING['epochs']} epochs, "
        f"learning rate {TRAINING['lr']}, means of {counted(seeds, 'seed')}, all workers in one process with the bits "
        f"of a run. An accuracy is the median after the last {LAST} epochs. {accuracies.origin}."
    )
    yield "Learning rate and epochs were chosen for a small spread between seeds, by trainings without attack alone."
    yield (
        "A rule that takes f gets the number of attackers, or 1 without attack; it is refused if n is too small. "
        "ALIE and IPM know the honest workers' gradients, as in their papers; Zeno judges by rank 0's minibatch, "
        "which is honest here."
    )
    yield (
        f"Seconds are medians of {TIMES} in one process at this machine's speed, with the threads of the model's "
        f"memory size. USD are their GB-seconds at that size by {book.name} of {book.date}, for one function that "
        "merges. They don't include the memory for all gradients at once."
    )
