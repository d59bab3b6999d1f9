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
from slslab.predict.profiles.profile import Containers, Profile, load_profile
from slslab.predict.uncertainty import GPU, PROFILE, STARTS, STORES, ratio_range
from slslab.report.formats import listed, significant, span
from slslab.run.bill import load_book
from slslab_lab.papers.paper import Paper
from slslab_lab.replay.gpus import container_sizes
from slslab_lab.studies import MODELS, NAMES, committed, experiments
from slslab_lab.studies.atlas.costs import measure
from slslab_lab.studies.atlas.jobs import COMPUTES
from slslab_lab.studies.atlas.points import Job, Point, megabytes, points
from slslab_lab.studies.atlas.recordings import Recordings, read_all
from slslab_lab.studies.atlas.systems import S3, SYSTEMS, System, on_gpus
from slslab_lab.studies.documents import Cell, ReproducedRow, describe_prices, describe_profile, make_document
from slslab_lab.studies.minibatches import Estimate
from slslab_lab.studies.study import Setup
from slslab_workers.models import spec

TABLE = "table2"
# The platform with an anchor, the others, and rented instances that run functions.
ANCHORED, OTHERS, MANAGED = "modal-t4", ("modal-l4", "modal-a10", "cloud-run-l4", "runpod-l4"), "lambda-managed"
CPU, FUNCTIONS, RENTED, FLOOR = "CPU functions", "GPU functions", "GPU instances", "GPU functions, at least"
STOPPED = "GPU functions, stopped at once"
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
}


@dataclass(frozen=True)
class Way:
    """A way to train: its kind, where it runs, and its best point by a figure."""

    kind: str
    place: str
    point: Point

    def times(self, other: "Way", figure: str) -> tuple[float, float]:
        """Return the 80 % range of a figure ÷ another way's."""
        first, second = (way.point.uncertainties[figure].of_one_recording() for way in (self, other))
        return ratio_range((getattr(self.point, figure), getattr(other.point, figure)), (first, second))

    def doubt(self, other: "Way", figure: str) -> str:
        """Return the source of the largest error of that ratio."""
        first, second = (way.point.uncertainties[figure].of_one_recording().shared for way in (self, other))
        return max({**first, **second}, key=lambda name: abs(first.get(name, 0.0) - second.get(name, 0.0)))


def read(_: Setup) -> Recordings:
    """Return the atlas's recordings."""
    return read_all(committed("atlas"))


def build(setup: Setup, recordings: Recordings) -> dict[str, Any]:
    """Return the document: an answer for each model, and the figures of each way."""
    found = {model: ways(recordings, model, setup) for model in MODELS}
    sentences = [answer(found)]
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
        profile=describe_profile(load_profile(DEFAULT_PROFILE)),
        prices=describe_prices(setup.book),
        ranged=True,
        findings=sentences,
        matrices=[_matrix(NAMES[model], each) for model, each in found.items()],
    )


def further(setup: Setup) -> dict[str, Any]:
    """Return what this study adds to Table 2: the answer, and a group of rows for each model."""
    recordings = read(setup)
    found = {model: ways(recordings, model, setup) for model in MODELS}
    groups = {model: [way for way in each if way.kind in (FUNCTIONS, STOPPED)] for model, each in found.items()}
    tables = [_matrix(f"GPU functions, {NAMES[model]}", each) for model, each in groups.items()]
    asked = f"Would functions with GPUs, paid by use, change this? {answer(found)}"
    return {"findings": [asked], "further": tables}


def ways(recordings: Recordings, model: str, setup: Setup) -> list[Way]:
    """Return the cheapest and the fastest point of each way, and of platforms without an anchor the cheapest."""
    # The step of all systems is AllReduce's (`slslab_lab.studies.atlas.costs`), and so is the processor.
    processor = recordings.architectures[COMPUTES][-1].processor
    aws = Job(1, load_profile(DEFAULT_PROFILE), setup.book, platform=load_profile(ANCHORED), processor=processor)
    managed = replace(aws, profile=load_profile(MANAGED), book=load_book(MANAGED))
    instances = [system for system in SYSTEMS if system.architecture == experiments.GPU]
    sides: list[tuple[str, str, Sequence[System], Job]] = [
        (CPU, "AWS Lambda", [system for system in SYSTEMS if _is_of_paper(system)], aws),
        (FUNCTIONS, ANCHORED, on_gpus(ANCHORED), aws),
        (STOPPED, ANCHORED, on_gpus(ANCHORED), replace(aws, platform=_without_idle(load_profile(ANCHORED)))),
        (RENTED, "g4dn.xlarge", instances, aws),
        (RENTED, MANAGED, instances, managed),
    ]
    for name in (ANCHORED, *OTHERS):
        sides.append((FLOOR, name, on_gpus(name), replace(aws, platform=load_profile(name), instant=True)))
    return [
        Way(kind, place, point)
        for kind, place, systems, job in sides
        for point in _best(recordings, model, systems, job, ["usd"] if kind in (FLOOR, STOPPED) else list(EPOCH))
    ]


def _without_idle(profile: Profile) -> Profile:
    containers = _containers(profile)
    idle_s = containers.idle_s.model_copy(update={"value": 0.0})
    return profile.model_copy(update={"containers": containers.model_copy(update={"idle_s": idle_s})})


def _is_of_paper(system: System) -> bool:
    known = system.architecture in experiments.ARCHITECTURES and not system.instances
    return known and system.channel in ("", S3) and system.algorithm in ("", "ga")


def _best(
    recordings: Recordings, model: str, systems: Sequence[System], job: Job, figures: Sequence[str]
) -> Iterator[Point]:
    costs = {system: measure(system, recordings, experiments.BATCH_SIZE) for system in systems}
    parameters = spec(model).parameters or 0

    def play(system: System, sizes: Sequence[int] = ()) -> list[Point]:
        return list(points(costs[system], parameters, experiments.WORKERS, job, sizes))

    every = [point for system in systems for point in play(system)]
    for point in dict.fromkeys(min(every, key=attrgetter(figure)) for figure in figures):
        yield from play(point.system, [point.memory_mb])


def answer(found: Mapping[str, Sequence[Way]]) -> str:
    """Return the answer to the question for all models, by the cost of an epoch."""
    said = []
    for kind in (RENTED, CPU):
        by_verdict: dict[str, list[str]] = {"cheaper than": [], "dearer than": [], "not to be told apart from": []}
        for model, each in found.items():
            mine, other = (_least(each, "epoch_usd", of) for of in (FUNCTIONS, kind))
            low, high = mine.times(other, "epoch_usd")
            verdict = "cheaper than" if high < 1 else "dearer than" if low > 1 else "not to be told apart from"
            by_verdict[verdict].append(NAMES[model])
        said += [f"{verdict} {kind} for {listed(names)}" for verdict, names in by_verdict.items() if names]
    changed = "Yes" if said[0].startswith("cheaper") else "No" if said[0].startswith("dearer") else "It can't be said"
    return f"{changed}: by the cost of an epoch, GPU functions ({ANCHORED}) are {', '.join(said)}."


def _answers(model: str, found: Sequence[Way]) -> Iterator[str]:
    for figure, (better, worse) in EPOCH.items():
        mine, *others = (_least(found, figure, kind) for kind in (FUNCTIONS, CPU, RENTED))
        against = " and ".join(_against(mine.times(way, figure), way.kind, better, worse) for way in others)
        best = min(others, key=lambda way: float(getattr(way.point, figure)))
        flip = _flip(mine, best, figure, _least(found, figure, FLOOR, mine.place))
        what = "cost" if figure == "epoch_usd" else "time"
        yield f"{NAMES[model]}, {what} of an epoch: GPU functions {against}. {flip}"
    mine, stopped, rented = (_least(found, "usd", kind) for kind in (FUNCTIONS, STOPPED, RENTED))
    once, at_once = (span(*way.times(rented, "usd")) for way in (mine, stopped))
    yield (
        f"{NAMES[model]}, a job of one epoch: with starts it costs {once} times as much on {mine.place} as on "
        f"{rented.place}, and {at_once} times as much if containers stop at once instead of waiting to be reused."
        f"{_crossing(stopped, rented)}"
    )


def _by_the_papers_seconds(paper: Paper, model: str) -> str:
    """Return what the paper's own epoch on T4 instances would cost on the platform's T4, by its prices."""
    table = paper.table(TABLE)
    rows = {row.name: row for row in table.rows if table.inputs_of(row)["model"] == model}
    instance = rows.pop("GPU").published
    cheapest = min(rows.values(), key=lambda row: row.published["total_cost"])
    containers = _containers(load_profile(ANCHORED))
    epoch_s = instance["epoch_seconds"]
    usd = float(epoch_s * experiments.WORKERS * _second_usd(containers))
    computing_s = load_gpus().gpus[containers.gpu].steps[model].value
    return (
        f"{NAMES[model]}, by the paper's own {epoch_s:.0f} s of an epoch on T4s: {usd:.3f} USD on {ANCHORED}, against "
        f"{instance['total_cost']:.3f} on instances and {cheapest.published['total_cost']:.3f} with {cheapest.name}, "
        f"its cheapest functions. A step of that epoch takes {epoch_s / experiments.BATCHES:.1f} s. The anchor's "
        f"computing is {computing_s:.2g} s of it."
    )


def _containers(profile: Profile) -> Containers:
    assert profile.containers is not None
    return profile.containers


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
    low, high = mine.times(best, figure)
    least = getattr(floor.point, figure) / getattr(best.point, figure)
    gpu = f"with a GPU that takes no time it would be {significant(least, 2)} times as much"
    if low <= 1 <= high:
        doubt = mine.doubt(best, figure)
        settled = SETTLED.get(doubt, f"a step on this machine and on Lambda ({doubt})")
        return f"Measuring {settled.format(size=megabytes(mine.point.parameters))} would settle it; {gpu}."
    if figure == "epoch_usd":
        second_usd = float(_second_usd(_containers(load_profile(mine.place))))
        ends = (second_usd / high, second_usd / low)
        return f"That flips at {span(*ends)} USD for a container's second, which costs {second_usd:.2g}; {gpu}."
    return f"That flips with {'a faster' if low > 1 else 'a slower'} exchange over S3; {gpu}."


def _crossing(one: Way, other: Way) -> str:
    """Return from how many epochs on the other way is the cheaper one, if that isn't from the first on."""
    ahead = other.point.usd - one.point.usd
    behind = one.point.epoch_usd - other.point.epoch_usd
    if ahead <= 0 or behind <= 0:
        return ""
    return f" In the middle of the ranges the lines cross at {1 + ahead / behind:.1f} epochs."


def _least(found: Sequence[Way], figure: str, kind: str, place: str = "") -> Way:
    among = [way for way in found if way.kind == kind and place in ("", way.place)]
    return min(among, key=lambda way: float(getattr(way.point, figure)))


def _shown(way: Way, figure: str) -> str:
    value = getattr(way.point, figure)
    if way.kind == FLOOR:
        return f"≥ {significant(way.point.uncertainties[figure].around(value)[0], 2)}"
    return f"≈{span(*way.point.uncertainties[figure].around(value))}"


def _matrix(name: str, found: Sequence[Way]) -> dict[str, Any]:
    """Return the table of a model's ways."""
    rows = [
        [way.kind, way.place, f"{way.point.system.name.partition(' on ')[0]}, {way.point.memory_mb:,} MB"]
        + [_shown(way, figure) for figure, *_ in COLUMNS]
        for way in found
    ]
    headings = ["", "on", "system", *(f"{title}, {unit}" for _, title, unit, _ in COLUMNS)]
    return {"title": f"{name}: 4 workers, 24 minibatches of 512 each", "headings": headings, "rows": rows}


def _row(model: str, way: Way) -> ReproducedRow:
    point = way.point
    cells = {}
    for figure, *_ in COLUMNS:
        value = getattr(point, figure)
        cells[figure] = Cell(modelled=Estimate(value, *point.uncertainties[figure].around(value), 1))
    return ReproducedRow(f"{way.kind}, {way.place}, {point.system.name}", model, f"{point.memory_mb} MB", cells)


def _notes() -> list[str]:
    steps = load_gpus().gpus["T4"].steps
    anchors = "; ".join(
        f"{NAMES[model]} {figure.value:g} s ({figure.low:g} to {figure.high:g}), {figure.status}"
        for model, figure in steps.items()
    )
    return [
        f"No GPU was used. A step of 512 images on a T4 takes, by public figures: {anchors}. Nothing public says it "
        "for an L4 or an A10: the rows `at least` are the lower ends of what is left if the GPU takes no time.",
        "GPU functions exchange gradients over S3 by AllReduce and ScatterReduce, which need no service inside AWS's "
        "network. CPU functions are the paper's four architectures at the best of six memory sizes. Ranges are 80 %. "
        "An epoch is a further one, without starts. A container's processors are assumed to be as fast as Lambda's.",
    ]
