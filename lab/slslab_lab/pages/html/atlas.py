"""What the page of the atlas shows: the answers, the regions of the best systems, the papers' crossings, the points."""

import math
from collections.abc import Iterator
from itertools import pairwise, product

from slslab.report import formats
from slslab.report.html.parts import Card, Caution, Cell, Chart, Key, Page, Table
from slslab_lab.pages import atlas
from slslab_lab.pages.atlas import Document
from slslab_lab.pages.html.regions import regions
from slslab_lab.pages.html.scales import SERIES

# By which of a point's figures a published crossing belongs to a chart.
FIGURES = {"seconds": ("epoch_seconds",), "usd": ("epoch_usd",)}
MOODS = {"agrees": "good", "differs": "warn"}


def describe_atlas(document: Document) -> Page:
    """Return the page of the atlas's document."""
    keys = _keys(document)
    cards = [
        *(_map(document, group, keys) for group in document["groups"]),
        _published(document),
        *(_best(document, group) for group in document["groups"]),
        Card("card-notes", "What the figures rest on", notes=tuple(document["notes"]), wide=True),
    ]
    recorded, beyond = document["recorded"], sum(point["extrapolated"] for point in document["points"])
    return Page(
        title="Which system is fastest, and which is cheapest?",
        subtitle="atlas of serverless training",
        cards=tuple(cards),
        answers=tuple(atlas.answers(document, "equal")),
        answers_note=f"Of {document['groups']['equal']}. {atlas.job(document)}",
        chips=(
            f"{len(document['points']):,} points",
            f"{len(document['axes']['systems'])} systems",
            f"extrapolated: {beyond:,}",
            f"recorded: {', '.join(atlas.size(size) for size in recorded['megabytes'].values())}",
        ),
        warnings=tuple(
            [Caution("Recorded while others loaded the host: " + ", ".join(recorded["not_quiet"]))]
            if recorded["not_quiet"]
            else ()
        ),
    )


def _keys(document: Document) -> dict[str, Key]:
    """Return a colour for each system that is best anywhere: the same in all charts, and another one than that of any
    system in the same chart, as long as there are enough."""
    charts = [
        {each["system"] for each in document["winners"] if (each["group"], each["objective"]) == chart}
        for chart in product(document["groups"], atlas.WORDS)
    ]
    keys: dict[str, Key] = {}
    for name in dict.fromkeys(each["system"] for each in document["winners"]):
        beside = {other for chart in charts if name in chart for other in chart}
        taken = {keys[other].colour for other in beside if other in keys}
        free = (str(number) for number in range(1, SERIES + 1) if str(number) not in taken)
        keys[name] = Key(name, next(free, str(SERIES)))
    return keys


def _map(document: Document, group: str, keys: dict[str, Key]) -> Card:
    charts = tuple(_regions(document, group, objective, word, keys) for objective, word in atlas.WORDS.items())
    notes = (f"{document['groups'][group].capitalize()}.", *atlas.answers(document, group)) if group == "all" else ()
    return Card(f"card-map-{group}", atlas.GROUPS[group], charts, notes=notes, wide=True)


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
        for told, ours, verdict in [atlas.crossing(each)]
        if each["figure"] in FIGURES[objective] and each["low"] is not None and each["high"] is not None
    ]
    best = [keys[name] for name in keys if name in {row[3] for row in rows}]
    caption = (
        "Pale: extrapolated beyond the recorded models or workers. Black: where the best system changes. Red: "
        "crossings that papers published, between the two sizes at which they saw one system ahead and then the other."
    )
    return regions(
        f"regions-{group}-{objective}",
        f"Regions: the {word} system over the size of the model and workers, {atlas.GROUPS[group].lower()}",
        f"The {word}",
        rows,
        lines,
        marks,
        best,
        caption,
    )


def _bands(document: Document, group: str, objective: str, workers: int) -> Iterator[tuple[str | int | float, ...]]:
    """Yield the parts of a band between neighbouring sizes: one, or two where another system becomes the best one."""
    won = atlas.winners(document, group, objective, workers)
    cuts = [
        each["megabytes"]
        for each in document["crossings"]
        if (each["group"], each["objective"], each["workers"]) == (group, objective, workers)
    ]
    for left, right in pairwise(won):
        low, high = left["megabytes"], right["megabytes"]
        within = next((cut for cut in cuts if low <= cut <= high and left["system"] != right["system"]), None)
        middle = math.sqrt(low * high) if within is None else within
        for begin, end, point in ((low, middle, left), (middle, high, right)):
            if end > begin:
                yield workers, begin, end, point["system"], atlas.point(point), "; ".join(point["reasons"])


def _published(document: Document) -> Card:
    rows = []
    for each in document["published"]:
        told, ours, verdict = atlas.crossing(each)
        names = Cell(f"{each['first']} and {each['second']}", f"{each['source']}: {atlas.FIGURES[each['figure']]}")
        rows.append(
            (names, told, ours, Cell(verdict, mood=MOODS[verdict]), f"{each['workers']}", f"{each['at_workers']}")
        )
    headings = ("systems", "as published", "here", "verdict", "workers, published", "workers, here")
    table = Table(headings, rows, words=frozenset(range(4)))
    others = tuple(f"{each['crossing']}: not on these axes, but {each['why']}." for each in document["elsewhere"])
    return Card("card-published", "The papers' own crossings", (), (table,), notes=others, wide=True)


def _best(document: Document, group: str) -> Card:
    """Return the best points by size and workers, both figures side by side."""
    tables = []
    for objective, word in atlas.WORDS.items():
        rows = [
            (
                atlas.size(each["megabytes"]),
                f"{each['workers']}",
                each["system"],
                formats.integer(each["memory_mb"]),
                atlas.figure(each, "seconds"),
                atlas.figure(each, "usd"),
                atlas.following(each).strip(" ()"),
                "; ".join(each["reasons"]) or "no",
            )
            for workers in document["axes"]["workers"]
            for each in atlas.winners(document, group, objective, workers)
        ]
        headings = ("model", "workers", "system", "memory, MB", "seconds", "USD", "next system", "extrapolated")
        tables.append(Table(headings, rows, caption=f"The {word} points", words=frozenset({0, 2, 6, 7}), folded=True))
    return Card(f"card-best-{group}", f"{atlas.GROUPS[group]}: the best points", (), tuple(tables), wide=True)
