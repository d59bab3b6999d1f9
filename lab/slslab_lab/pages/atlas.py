"""The content of the atlas's page: answers, the best system by size, the papers' crossings, and the points."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

from slslab.report import formats
from slslab.report.formats import percent
from slslab.report.page import Card, Cell, Chart, Data, Document, Key, Note, Page, Part, Table
from slslab.report.run import MODELS
from slslab.report.summaries import ranges_made_of
from slslab_lab.pages.scales import DATA, SERIES, colour_scale, specification, tooltips

if TYPE_CHECKING:
    import altair as alt
else:
    from slslab_lab.pages.scales import alt

BEST = {"seconds": "fastest", "usd": "cheapest"}
GROUPS = {"equal": "Systems that learn the same", "all": "All systems"}
FIGURES = {
    "seconds": "seconds of the job, starts included",
    "epoch_seconds": "seconds of an epoch",
    "epoch_usd": "USD of an epoch",
}
# The figure of a point that decides which chart a published crossing belongs to.
CHARTED = {"seconds": "epoch_seconds", "usd": "epoch_usd"}
MOODS = {"agrees": "good", "differs": "warn"}
# Data of the chart of regions, and the height of a band, px.
LINES, MARKS = "lines", "marks"
BAND = 34


def answers(document: Document, group: str) -> Iterator[str]:
    """Yield, for each recorded model, the fastest and the cheapest point of a group."""
    for answer in document["answers"]:
        if answer["group"] == group:
            name = MODELS.get(answer["model"], answer["model"])
            yield (
                f"For a model of {size(answer['megabytes'])} ({name}) the fastest is "
                f"{point(answer['fastest'])}; the cheapest is {point(answer['cheapest'])}."
            )


def point(found: Document) -> str:
    """Return a best point with its figures, and the next system."""
    beyond = ", extrapolated" if found["extrapolated"] else ""
    seconds, usd = (formats.span(found[f"{name}_low"], found[f"{name}_high"]) for name in BEST)
    memory = "" if found["memory_mb"] is None else f" of {formats.megabytes(found['memory_mb'])}"
    where = f"{found['system']} with {found['workers']} workers{memory}"
    return f"{where}: {seconds} s and {usd} USD{beyond}{following(found)}"


def following(found: Document) -> str:
    """Return the next system in brackets: how far behind it is, or that it can't be told apart."""
    if not found["next"]:
        return ""
    ends = found["next_range"]
    if ends["low"] <= 1 <= ends["high"]:
        return f" (can't be told apart from {found['next']})"
    return f" ({found['next']}: {formats.span(ends['low'], ends['high'])} times as much)"


def size(megabytes: float) -> str:
    """Return the size of a model."""
    return f"{formats.significant(megabytes, 3)} MB"


def job(document: Document) -> str:
    """Return the training job, its prices, and how exact the figures are."""
    work = document["job"]
    return (
        f"{work['epochs']} epochs of {work['images']:,} images, minibatches of {work['batch_size']}, starts included, "
        f"modelled on {document['profile']['name']} by the prices of {document['prices']['name']}. "
        f"{ranges_made_of([document['uncertainty']])}"
    )


def strips(document: Document, group: str, objective: str) -> Table:
    """Return, by number of workers, the best systems by rising size of the model, each with its upper limit."""
    rows = []
    for workers in document["axes"]["workers"]:
        won = winners(document, group, objective, workers)
        cuts = _there(document["crossings"], group, objective, workers)
        parts = [f"{cut['first']} up to {size(cut['megabytes'])}{_unknown(cut)}" for cut in cuts]
        rows.append((f"{workers}", ", ".join([*parts, f"{'then ' if parts else ''}{won[-1]['system']}"])))
    return Table(("workers", f"{BEST[objective]}, by size of the model"), rows, words=(1,))


def _unknown(cut: Document) -> str:
    side = cut.get("unknown")
    return f" ({cut['first' if side == 'beyond' else 'second']}: unknown {side} it)" if side else ""


def winners(document: Document, group: str, objective: str, workers: int) -> list[Document]:
    """Return the best points with this number of workers, by rising size of the model."""
    return sorted(_there(document["winners"], group, objective, workers), key=lambda each: float(each["megabytes"]))


def _there(entries: Iterable[Document], group: str, objective: str, workers: int) -> list[Document]:
    wanted = group, objective, workers
    return [each for each in entries if (each["group"], each["objective"], each["workers"]) == wanted]


def crossing(each: Document) -> tuple[str, str, str]:
    """Return a published crossing, the atlas's own, and the verdict, in words."""
    low, high = each["low"], each["high"]
    if low is None:
        told = f"{each['second']} from {size(high)} on"
    elif high is None:
        told = f"{each['first']} up to {size(low)}"
    else:
        told = f"{each['first']} at {size(low)}, {each['second']} at {size(high)}"
    ours = ", ".join(size(megabytes) for megabytes in each["modelled_megabytes"])
    modelled = f"crossing at {ours}" if ours else f"{each['better']} everywhere"
    return told, modelled, each["verdict"]


def shown(document: Document) -> Iterator[Part]:
    """Yield the output of `slslab atlas`: the answers, the best system by size, the papers' crossings."""
    for group, title in document["groups"].items():
        yield Note(formats.capitalised(title), "answer")
        yield "\n".join(answers(document, group))
        yield from (strips(document, group, objective) for objective in BEST)
    yield from gpu_functions(document)
    yield crossings(document)
    yield Note("\n".join((job(document), *document["notes"])), "muted")


def gpu_functions(document: Document) -> Iterator[Table]:
    """Yield how functions with GPUs compare with other ways, if a platform was given."""
    compared = document.get("gpu_functions", ())
    for objective, word in {"seconds": "time", "usd": "cost"}.items():
        rows = [
            (
                f"{each['workers']}",
                each["against"],
                ", ".join(
                    f"{formats.span(one['low'], one['high'])} at {size(one['megabytes'])}" for one in each["ratios"]
                ),
                ", ".join(map(size, each["cross"])) or "no crossing",
            )
            for each in compared
            if each["objective"] == objective
        ]
        if rows:
            caption = f"Functions with GPUs: {word} ÷ the best other way's"
            yield Table(
                ("workers", "against", "ratio, by size of the model", "equal at"),
                rows,
                caption=caption,
                words=(1, 2, 3),
            )


def crossings(document: Document) -> Table:
    """Return where another system becomes best, in papers and in the atlas."""
    rows = []
    for each in document["published"]:
        told, ours, verdict = crossing(each)
        workers = Cell(
            f"{each['workers']}", "" if each["at_workers"] == each["workers"] else f"here {each['at_workers']}"
        )
        source = f"{each['source']}: {FIGURES[each['figure']]}"
        rows.append((workers, source, told, ours, Cell(verdict, mood=MOODS[verdict])))
    headings = ("workers", "published in", "as published", "here", "verdict")
    return Table(headings, rows, caption="The papers' own crossings", words=range(1, 5))


def checked(document: Document) -> Iterator[Part]:
    """Yield the atlas's errors compared with real runs of some points."""
    rows = [
        (each["point"], each["figure"], f"{each['run']:.3g}", f"{each['atlas']:.3g}", percent(each["error"], "+.1"))
        for each in document["rows"]
    ]
    yield Table(("point", "figure", "real run", "atlas", "error"), rows, words=(0, 1))
    yield Note("\n".join(document["notes"]), "muted")


def describe_atlas(document: Document) -> Page:
    """Return the page of the atlas's document."""
    keys = _keys(document)
    others = tuple(f"{each['crossing']}: not on these axes, but {each['why']}." for each in document["elsewhere"])
    published = replace(crossings(document), caption="")
    cards = [
        *(_map(document, group, keys) for group in document["groups"]),
        *(
            [Card("card-gpus", "Functions with GPUs", (), tuple(gpu_functions(document)), wide=True)]
            * ("gpu_functions" in document)
        ),
        Card("card-published", "The papers' own crossings", (), (published,), notes=others, wide=True),
        Card("card-notes", "What the figures rest on", notes=tuple(document["notes"]), wide=True),
    ]
    recorded, beyond = document["recorded"], sum(each["extrapolated"] for each in document["points"])
    return Page(
        title="Which system is fastest, and which is cheapest?",
        subtitle="atlas of serverless training",
        cards=tuple(cards),
        answers=tuple(answers(document, "equal")),
        answers_note=f"Of {document['groups']['equal']}. {job(document)}",
        chips=(
            f"{len(document['points']):,} points",
            f"{len(document['axes']['systems'])} systems",
            f"extrapolated: {beyond:,}",
            f"recorded: {', '.join(map(size, recorded['megabytes'].values()))}",
        ),
        warnings=tuple(
            [Note("Recorded while the host was busy: " + ", ".join(recorded["not_quiet"]))]
            if recorded["not_quiet"]
            else ()
        ),
    )


def _keys(document: Document) -> dict[str, Key]:
    """Return a colour for each system that is best anywhere: the same in all charts, and, as long as there are enough,
    different from the other systems in its charts."""
    charts = [
        {each["system"] for each in document["winners"] if (each["group"], each["objective"]) == chart}
        for chart in product(document["groups"], BEST)
    ]
    keys: dict[str, Key] = {}
    for name in dict.fromkeys(each["system"] for each in document["winners"]):
        beside = {other for chart in charts if name in chart for other in chart}
        taken = {keys[other].colour for other in beside if other in keys}
        free = (str(number) for number in range(1, SERIES + 1) if str(number) not in taken)
        keys[name] = Key(name, next(free, str(SERIES)))
    return keys


def _map(document: Document, group: str, keys: dict[str, Key]) -> Card:
    charts = tuple(_regions(document, group, objective, word, keys) for objective, word in BEST.items())
    notes = (f"{document['groups'][group].capitalize()}.", *answers(document, group)) if group == "all" else ()
    return Card(f"card-map-{group}", GROUPS[group], charts, notes=notes, wide=True)


def _regions(document: Document, group: str, objective: str, word: str, keys: dict[str, Key]) -> Chart:
    rows = [row for workers in document["axes"]["workers"] for row in _bands(document, group, objective, workers)]
    lines = [
        (each["workers"], each["megabytes"], f"{each['first']} and {each['second']}")
        for each in document["crossings"]
        if (each["group"], each["objective"]) == (group, objective)
    ]
    marks = [
        (
            each["at_workers"],
            max(document["axes"]["megabytes"][0], each["low"]),
            each["high"],
            f"{each['first']} → {each['second']}",
            f"{each['source']}, {each['workers']} workers: {told}",
            f"{verdict}: {ours}",
        )
        for each in document["published"]
        for told, ours, verdict in [crossing(each)]
        if each["figure"] == CHARTED[objective] and each["low"] is not None and each["high"] is not None
    ]
    best = [keys[name] for name in keys if name in {row[3] for row in rows}]
    caption = (
        "Pale: extrapolated beyond the recorded models or workers. Black: where the best system changes. Red: "
        "crossings that papers published, between the two sizes at which they saw one system ahead and then the other."
    )
    label = f"Regions: the {word} system over the size of the model and workers, {GROUPS[group].lower()}"
    data = {
        DATA: Data(("workers", "low", "high", "system", "best", "beyond"), rows),
        LINES: Data(("workers", "megabytes", "pair"), lines),
        MARKS: Data(("workers", "low", "high", "pair", "told", "verdict"), marks),
    }
    sizes = [size for _, *ends, _, _, _ in rows for size in ends]
    spec = _draw_regions(sorted({row[0] for row in rows}, reverse=True), sizes, best)
    return Chart(f"regions-{group}-{objective}", label, spec, data, tuple(best), caption, f"The {word}")


def _bands(
    document: Document, group: str, objective: str, workers: int
) -> Iterator[tuple[int, float, float, str, str, str]]:
    """Yield the parts of a band between neighbouring sizes: one, or two where another system becomes best."""
    won = winners(document, group, objective, workers)
    cuts = [each["megabytes"] for each in _there(document["crossings"], group, objective, workers)]
    for left, right in pairwise(won):
        low, high = left["megabytes"], right["megabytes"]
        within = next((cut for cut in cuts if low <= cut <= high and left["system"] != right["system"]), None)
        middle = math.sqrt(low * high) if within is None else within
        for begin, end, best in ((low, middle, left), (middle, high, right)):
            if end > begin:
                yield workers, begin, end, best["system"], point(best), "; ".join(best["reasons"])


def _draw_regions(workers: Sequence[int], sizes: Sequence[float], keys: Sequence[Key]) -> Mapping[str, Any]:
    """Draw bands of workers over sizes of the model, MB, coloured by the best system; return the specification.

    Its data are the bands, crossing LINES of two systems, and MARKS at crossings that papers published.
    """
    scale = alt.Scale(type="log", domain=[min(sizes), max(sizes)], nice=False)

    def across(field: str) -> "alt.X":
        axis = alt.Axis(format="~g", tickCount=5, grid=False)
        return alt.X(f"{field}:Q", title="size of the model, MB", scale=scale, axis=axis)

    upright = alt.Y("workers:O", sort=list(workers), title="workers", axis=alt.Axis(domain=False, ticks=False))
    areas = (
        alt.Chart(alt.NamedData(name=DATA))
        .mark_rect()
        .encode(
            x=across("low"),
            x2="high:Q",
            y=upright,
            color=alt.Color("system:N", scale=colour_scale(keys), legend=None),
            opacity=alt.condition("datum.beyond == ''", alt.value(0.95), alt.value(0.5)),
            tooltip=tooltips(
                ("system:N", "best"),
                ("workers:O", "workers"),
                ("low:Q", "from, MB", ".3~r"),
                ("high:Q", "to, MB", ".3~r"),
                ("best:N", "at its middle"),
                ("beyond:N", "extrapolated"),
            ),
        )
    )
    cuts = alt.Chart(alt.NamedData(name=LINES)).encode(x=across("megabytes"), y=upright)
    ticks = cuts.mark_tick(color="var(--card)", thickness=3, size=BAND, orient="vertical")
    joined = cuts.mark_line(color="var(--text)", strokeWidth=1.5, point={"size": 26, "color": "var(--text)"}).encode(
        detail="pair:N", order=alt.Order("workers:O"), tooltip=tooltips(("pair:N", "crossing of"))
    )
    papers = alt.Chart(alt.NamedData(name=MARKS)).encode(
        y=upright,
        tooltip=tooltips(("pair:N", "published crossing"), ("told:N", "as published"), ("verdict:N", "the atlas")),
    )
    spans = papers.mark_rule(color="var(--c-limit)", strokeWidth=3, strokeDash=[6, 3]).encode(
        x=across("low"), x2="high:Q"
    )
    ends = papers.mark_point(shape="diamond", filled=True, size=70, color="var(--c-limit)").encode(x=across("high"))
    # On a phone only the tooltip has the names: they are longer than the chart is wide.
    names = papers.mark_text(align="right", dy=-9, fontSize=11, opacity=alt.ExprRef("width < 400 ? 0 : 1"))
    names = names.encode(x=across("high"), text="pair:N")
    chart = alt.layer(areas, ticks, joined, spans, ends, names, width="container", height=BAND * len(workers))
    return specification(chart)
