"""The paper's open question: would functions with GPUs, paid by use, change the comparison?

Table 2's job (an epoch of 4 workers with 24 minibatches of 512) as points of the atlas: the paper's four architectures
on Lambda, functions with GPUs on platforms, and instances with GPUs. Where no anchor says how long a GPU takes, figures
are bounds: what would be left if it took no time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from operator import attrgetter
from typing import Any

from slslab.predict.gpus import load_gpus
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import Containers, load_profile
from slslab.predict.uncertainty import GPU, IDLE, PROFILE, STARTS, STORES
from slslab.report.formats import listed, significant, span
from slslab.run.bill import DEFAULT_BOOK, load_book
from slslab.run.containers import container_sizes
from slslab_lab.papers.paper import Paper
from slslab_lab.studies import MODELS, NAMES, committed, experiments
from slslab_lab.studies.atlas.costs import measure
from slslab_lab.studies.atlas.points import Job, Point, megabytes, points
from slslab_lab.studies.atlas.recordings import COMPUTES, Recordings, read_all
from slslab_lab.studies.atlas.systems import S3, SYSTEMS, System, on_gpus
from slslab_lab.studies.documents import Cell, Estimate, ReproducedRow, make_document
from slslab_lab.studies.study import Setup
from slslab_workers.models import spec

TABLE = "table2"
# The platform with an anchor, the others, and rented instances that run functions.
ANCHORED, OTHERS, MANAGED = "modal-t4", ("modal-l4", "modal-a10", "cloud-run-l4", "runpod-l4"), "lambda-managed"
CPU, FUNCTIONS, RENTED, FLOOR = (
    "CPU functions",
    "GPU functions",
    "GPU instances",
    "GPU functions if the GPU took no time",
)
INSTANCES = "g4dn.xlarge"
CHEAPER, DEARER, ALIKE = "cheaper than", "dearer than", "not to be told apart from"
COLUMNS = (
    ("epoch_seconds", "an epoch", "s", 1),
    ("epoch_usd", "an epoch", "USD", 4),
    ("seconds", "the first epoch, with starts", "s", 1),
    ("usd", "the first epoch, with starts and idle time", "USD", 4),
)
EPOCH = {"epoch_seconds": ("faster", "slower"), "epoch_usd": ("cheaper", "dearer")}
# The measurement that would settle a comparison, by the source of the largest error.
SETTLED = {
    GPU: "the seconds of a step on that GPU",
    STORES: "a put and a get of {size:.3g} MB between the platform and its store",
    PROFILE: "a put and a get of {size:.3g} MB from Lambda",
    STARTS: "cold starts on the platform",
    IDLE: "how long the platform keeps an idle container",
}


@dataclass(frozen=True)
class Way:
    """A way to train: its kind, where it runs, and its best point by a figure."""

    kind: str
    where: str
    point: Point

    def doubt(self, other: "Way", figure: str) -> str:
        """Return the source of the largest error of a figure ÷ another way's."""
        first, second = (way.point.error(figure).shared for way in (self, other))
        return max({**first, **second}, key=lambda name: abs(first.get(name, 0.0) - second.get(name, 0.0)))


def read(_: Setup) -> Recordings:
    """Return the atlas's recordings."""
    return read_all(committed("atlas"))


def build(setup: Setup, recordings: Recordings) -> dict[str, Any]:
    """Return the document: an answer for each model, and the figures of each way."""
    found = {model: ways(recordings, model, setup) for model in MODELS}
    sentences = [" ".join(answer(found, setup.paper)), *doubts(found, setup.paper)]
    for model, each in found.items():
        sentences += [*_answers(model, each), _by_the_papers_seconds(setup.paper, model)]
    return make_document(
        setup,
        setup.paper.table(TABLE),
        COLUMNS,
        [_row(NAMES[model], way) for model, each in found.items() for way in each],
        _notes(),
        table={
            "title": "Would functions with GPUs, paid by use, change the comparison?",
            "source": "the open question",
            "notes": [],
        },
        fidelity="modelled",
        profile=load_profile(DEFAULT_PROFILE),
        prices=setup.book,
        ranged=True,
        findings=sentences,
        matrices=[_matrix(NAMES[model], each) for model, each in found.items()],
    )


def further(setup: Setup) -> dict[str, Any]:
    """Return what this study adds to Table 2: the answer, and a group of rows for each model.

    By another book than the default one it adds nothing but the reason: its platforms have prices of their own.
    """
    if setup.book.name != DEFAULT_BOOK:
        return {"findings": [f"GPU functions aren't compared: {setup.book.name} has no prices for them."]}
    recordings = read(setup)
    found = {model: ways(recordings, model, setup) for model in setup.options["models"]}
    groups = {model: [way for way in each if way.kind == FUNCTIONS] for model, each in found.items()}
    tables = [_matrix(f"GPU functions, {NAMES[model]}", each) for model, each in groups.items()]
    against_instances, _ = answer(found, setup.paper)
    asked = f"Would functions with GPUs, paid by use, change this? {against_instances}"
    return {"findings": [f"{asked} More: slslab reproduce serverless-gpu."], "further": tables}


def ways(recordings: Recordings, model: str, setup: Setup) -> list[Way]:
    """Return the cheapest and the fastest point of each way, and of platforms without an anchor the cheapest."""
    # The step of all systems is AllReduce's (`slslab_lab.studies.atlas.costs`), and so is the processor.
    processor = recordings.architectures[COMPUTES][-1].processor
    aws = Job(1, load_profile(DEFAULT_PROFILE), setup.book, platform=load_profile(ANCHORED), processor=processor)
    managed = replace(aws, profile=load_profile(MANAGED), book=load_book(MANAGED))
    table2 = [system for system in SYSTEMS if system.architecture in experiments.ARCHITECTURES]
    instances = [system for system in table2 if system.instances]
    functions = [system for system in table2 if system.channel in ("", S3) and system.algorithm in ("", "ga")]
    sides: list[tuple[str, str, Sequence[System], Job]] = [
        (CPU, "AWS Lambda", [system for system in functions if not system.instances], aws),
        (FUNCTIONS, ANCHORED, on_gpus(ANCHORED), aws),
        (RENTED, INSTANCES, instances, aws),
        (RENTED, MANAGED, instances, managed),
        *(
            (FLOOR, name, on_gpus(name), replace(aws, platform=load_profile(name), instant=True))
            for name in (ANCHORED, *OTHERS)
        ),
    ]
    return [
        Way(kind, where, point)
        for kind, where, systems, job in sides
        for point in _best(recordings, model, systems, job, ["usd"] if kind == FLOOR else list(EPOCH))
    ]


def _best(
    recordings: Recordings, model: str, systems: Sequence[System], job: Job, figures: Sequence[str]
) -> Iterator[Point]:
    costs = {system: measure(system, recordings, experiments.BATCH_SIZE) for system in systems}
    parameters = spec(model).parameters

    def play(system: System, sizes: Sequence[int] = ()) -> list[Point]:
        return list(points(costs[system], parameters, experiments.WORKERS, job, sizes))

    every = [point for system in systems for point in play(system)]
    for point in dict.fromkeys(min(every, key=attrgetter(figure)) for figure in figures):
        yield from play(point.system, [point.memory_mb])


def answer(found: Mapping[str, Sequence[Way]], paper: Paper) -> tuple[str, str]:
    """Return the answer for all models, by the cost of an epoch: against instances, and against functions on CPUs.

    A comparison holds if it has the same result for all models, by the ranges and by the paper's own seconds.
    """
    told, holds = {}, {}
    for kind in (RENTED, CPU):
        by_verdict: dict[str, list[str]] = {CHEAPER: [], DEARER: [], ALIKE: []}
        times, verdicts = [], set()
        for model, each in found.items():
            mine, other = (_least(each, "epoch_usd", of) for of in (FUNCTIONS, kind))
            verdict = _verdict(*mine.point.times(other.point, "epoch_usd"))
            by_verdict[verdict].append(NAMES[model])
            costs = _papers_costs(paper, model)
            ratio = costs[FUNCTIONS] / costs[kind]
            times.append(f"{ratio:.2f} ({NAMES[model]})")
            verdicts |= {verdict, _verdict(ratio, ratio)}
        ranges = ", ".join(f"{verdict} {kind} for {listed(names)}" for verdict, names in by_verdict.items() if names)
        told[kind] = f"{ranges}; by the paper's own seconds they cost {listed(times)} times as much."
        holds[kind] = verdicts.pop() if len(verdicts) == 1 else ALIKE
    changed = {CHEAPER: "Yes", DEARER: "No", ALIKE: "It can't be said"}[holds[RENTED]]
    anchor = f"by the {load_profile(ANCHORED).gpu_containers.gpu}'s anchor they are"
    second = f"Against {CPU} it can't be said: {anchor}" if holds[CPU] == ALIKE else "They are"
    first = f"{changed}: by the cost of an epoch, GPU functions ({ANCHORED}) are {told[RENTED]}"
    return first, f"{second} {told[CPU]}"


def _verdict(low: float, high: float) -> str:
    return CHEAPER if high < 1 else DEARER if low > 1 else ALIKE


def doubts(found: Mapping[str, Sequence[Way]], paper: Paper) -> Iterator[str]:
    """Yield how far the paper's own epochs on T4 instances are outside the ranges of the modelled ones, if they are."""
    outside = {}
    for model, each in found.items():
        point = _least(each, "epoch_seconds", RENTED, INSTANCES).point
        _, high = point.range("epoch_seconds")
        measured_s = float(_published(paper, model)["GPU"]["epoch_seconds"])
        if measured_s > high:
            outside[NAMES[model]] = measured_s / point.epoch_seconds
    if outside:
        factors = listed([f"{factor:.1f} times ({name})" for name, factor in outside.items()])
        yield (
            f"The model of an epoch on T4 instances fails its check: it is {factors} faster than the paper's own "
            "measurement, which is outside its 80 % range. So ranges that rest on the T4's anchor are too narrow."
        )


def _answers(model: str, found: Sequence[Way]) -> Iterator[str]:
    anchor = f"the {load_profile(ANCHORED).gpu_containers.gpu}'s anchor"
    for figure, (better, worse) in EPOCH.items():
        mine, *others = (_least(found, figure, kind) for kind in (FUNCTIONS, CPU, RENTED))
        against = " and ".join(_against(mine.point.times(way.point, figure), way.kind, better, worse) for way in others)
        best = min(others, key=lambda way: float(getattr(way.point, figure)))
        flip = _flip(mine, best, figure, _least(found, figure, FLOOR, mine.where))
        what = "cost" if figure == "epoch_usd" else "time"
        yield f"{NAMES[model]}, {what} of an epoch by {anchor}: GPU functions {against}. {flip}"
    mine, rented = (_least(found, "usd", kind) for kind in (FUNCTIONS, RENTED))
    yield (
        f"{NAMES[model]}, a job of one epoch: with starts and idle time it costs "
        f"{span(*mine.point.times(rented.point, 'usd'))} times as much on {mine.where} as on {rented.where}."
    )


def _published(paper: Paper, model: str) -> dict[str, Mapping[str, Decimal]]:
    """Return what the paper's table says of a model, by architecture."""
    table = paper.table(TABLE)
    return {row.name: row.published for row in table.rows if table.inputs_of(row)["model"] == model}


def _papers_costs(paper: Paper, model: str) -> dict[str, float]:
    """Return the USD of an epoch by kind: the paper's own, and what its seconds on T4 instances would cost on the
    platform's T4."""
    published = _published(paper, model)
    instance = published.pop("GPU")
    usd = instance["epoch_seconds"] * experiments.WORKERS * _second_usd(load_profile(ANCHORED).gpu_containers)
    cheapest = min(row["total_cost"] for row in published.values())
    return {FUNCTIONS: float(usd), RENTED: float(instance["total_cost"]), CPU: float(cheapest)}


def _by_the_papers_seconds(paper: Paper, model: str) -> str:
    """Return what the paper's own epoch on T4 instances would cost on the platform's T4, by its prices."""
    published, costs = _published(paper, model), _papers_costs(paper, model)
    epoch_s = published.pop("GPU")["epoch_seconds"]
    cheapest = min(published, key=lambda name: published[name]["total_cost"])
    computing_s = load_gpus().gpus[load_profile(ANCHORED).gpu_containers.gpu].steps[model].value
    return (
        f"{NAMES[model]}, by the paper's own {epoch_s:.0f} s of an epoch on T4s: {costs[FUNCTIONS]:.3f} USD on "
        f"{ANCHORED}, against {costs[RENTED]:.3f} on instances and {costs[CPU]:.3f} with {cheapest}, its cheapest "
        f"functions. A step of that epoch takes {epoch_s / experiments.BATCHES:.1f} s. The anchor's computing is "
        f"{computing_s:.2g} s of it."
    )


def _second_usd(containers: Containers) -> Decimal:
    """Return the price of a second of a container with its GPU."""
    prices = load_book(containers.prices).prices
    sizes = container_sizes(containers).items()
    return sum((prices[meter].price / prices[meter].per * size for meter, size in sizes), Decimal(0))


def _against(ends: tuple[float, float], kind: str, better: str, worse: str) -> str:
    low, high = ends
    if low <= 1 <= high:
        return f"can't be told apart from {kind} ({span(low, high)} times as much)"
    ratio, word = ((low, high), worse) if low > 1 else ((1 / high, 1 / low), better)
    return f"are {span(*ratio)} times {word} than {kind}"


def _flip(mine: Way, best: Way, figure: str, floor: Way) -> str:
    """Return what would have to be different for the comparison with the best other way to flip."""
    low, high = mine.point.times(best.point, figure)
    least = getattr(floor.point, figure) / getattr(best.point, figure)
    gpu = f"with a GPU that takes no time it would be {significant(least, 2)} times as much"
    if low <= 1 <= high:
        doubt = mine.doubt(best, figure)
        settled = SETTLED.get(doubt, f"a step on this machine and on Lambda ({doubt})")
        return f"Measuring {settled.format(size=megabytes(mine.point.parameters))} would settle it; {gpu}."
    if figure == "epoch_usd":
        second_usd = float(_second_usd(load_profile(mine.where).gpu_containers))
        cost, other = mine.point.epoch_usd, best.point.epoch_usd
        # The price of requests to S3 doesn't change with the container's.
        requests = cost - experiments.WORKERS * mine.point.epoch_seconds * second_usd
        ends = [second_usd * (other - requests) / (ratio * other - requests) for ratio in (high, low)]
        return f"That flips at {span(*ends)} USD for a container's second, which costs {second_usd:.2g}; {gpu}."
    return f"That flips with {'a faster' if low > 1 else 'a slower'} exchange over S3; {gpu}."


def _least(found: Sequence[Way], figure: str, kind: str, where: str = "") -> Way:
    among = [way for way in found if way.kind == kind and where in ("", way.where)]
    return min(among, key=lambda way: float(getattr(way.point, figure)))


def _shown(way: Way, figure: str) -> str:
    low, high = way.point.range(figure)
    return f"≥ {significant(low, 2)}" if way.kind == FLOOR else f"≈{span(low, high)}"


def _matrix(name: str, found: Sequence[Way]) -> dict[str, Any]:
    """Return the table of a model's ways."""
    rows = [
        [way.kind, way.where, f"{way.point.system.name.partition(' on ')[0]}, {way.point.memory_mb:,} MB"]
        + [_shown(way, figure) for figure, *_ in COLUMNS]
        for way in found
    ]
    headings = ["", "on", "system", *(f"{title}, {unit}" for _, title, unit, _ in COLUMNS)]
    return {"title": f"{name}: 4 workers, 24 minibatches of 512 each", "headings": headings, "rows": rows}


def _row(model: str, way: Way) -> ReproducedRow:
    point = way.point
    cells = {figure: Cell(modelled=Estimate(getattr(point, figure), *point.range(figure), 1)) for figure, *_ in COLUMNS}
    return ReproducedRow(f"{way.kind}, {way.where}, {point.system.name}", model, f"{point.memory_mb} MB", cells)


def _notes() -> list[str]:
    steps = load_gpus().gpus["T4"].steps
    anchors = "; ".join(
        f"{NAMES[model]} {figure.value:g} s ({figure.low:g} to {figure.high:g}), {figure.status}"
        for model, figure in steps.items()
    )
    book = load_profile(ANCHORED).gpu_containers.prices
    return [
        f"No GPU was used. A step of 512 images on a T4 takes, by public figures: {anchors}. Nothing public says it "
        f"for an L4 or an A10: the rows `{FLOOR}` show, after ≥, the lower end of the 80 % range.",
        f"GPU functions are billed by the prices of their platforms, such as {book}. They exchange gradients over S3 "
        "by AllReduce and ScatterReduce, which need no service inside AWS's network. CPU functions are the paper's "
        "four architectures at the best of six memory sizes. Ranges are 80 %. An epoch is a further one, without "
        "starts. A container's processors are assumed to be as fast as Lambda's, and its image to be cached.",
    ]
