"""What the answer to "which memory size?" shows, made from its document (`slslab.tune.document`)."""

from collections.abc import Iterator

from slslab.errors import counted
from slslab.report.formats import MISSING, listed, megabytes, significant, span
from slslab.report.page import Card, Cell, Chart, Data, Document, Key, Note, Page, Part, Row, Table
from slslab.report.summaries import PREDICTED_RANGES, cost_text, region

TITLES = {"cheapest": "Cheapest", "fastest": "Fastest", "balanced": "Least cost × time"}
# What sizes can't be told apart by.
BY = {"cheapest": "cost", "fastest": "time", "balanced": "cost × time"}
RULE = "the smaller cost (or cost × time) wins, and of equal costs the larger memory size"


def tuning(document: Document) -> Iterator[Part]:
    """Yield what a terminal shows: the answers, and each size."""
    yield Note("\n".join(answers(document)), "answer")
    yield _table(document)
    yield Note("\n".join(_notes(document)), "muted")


def tuning_page(document: Document) -> Page:
    """Return the page: the same with a chart of cost and time."""
    first, *others = answers(document)
    return Page(
        title=f"Which memory size for {document['function']}?",
        subtitle=f"a tuning of {document['function']}",
        answers=(first,),
        answers_note=" ".join(others),
        cards=(
            Card("card-chart", "Cost and time on Lambda", (_chart(document),), wide=True),
            Card("card-sizes", "Memory sizes", (), (_table(document),), notes=tuple(_notes(document)), wide=True),
        ),
    )


def answers(document: Document) -> Iterator[str]:
    """Yield the answer, then what else is known, in sentences."""
    found, deadline_s = document["answers"], document["deadline_s"]
    if deadline_s is not None and found["deadline"] is None:
        yield f"No memory size is surely done in {deadline_s:g} s on Lambda."
    elif deadline_s is not None:
        sentence = _sentence(document, found["deadline"], document["goal"])
        yield f"{TITLES[document['goal']]} of those done in {deadline_s:g} s on Lambda: {sentence}"
    goals = sorted(TITLES, key=lambda goal: goal != document["goal"])
    for goal in goals:
        if found[goal] is None:
            largest = document["sizes"][-1]
            yield f"No memory size works. At {megabytes(largest['memory_mb'])}, {largest['reason']}."
            return
        yield f"{TITLES[goal]} on Lambda: {_sentence(document, found[goal], goal)}"
    yield from _own(document)
    if any(best["alike"] for best in found.values() if best):
        yield f"Of sizes that can't be told apart {RULE}."


def _sentence(document: Document, best: Document, goal: str) -> str:
    row = _of_size(document, best["memory_mb"])
    figures = f"{_span(row, 'duration_ms')} ms and {_span(row, 'cost')} USD a million invocations"
    sentence = f"{megabytes(best['memory_mb'])}, {figures}."
    if best["alike"]:
        sizes = listed([f"{size:,}" for size in best["alike"]])
        sentence += f" {sizes} MB can't be told apart from it by {BY[goal]}."
    return sentence


def _own(document: Document) -> Iterator[str]:
    own, best = document["memory_mb"], document["answers"]["cheapest"]
    row = _of_size(document, own)
    if own == best["memory_mb"] or own in best["alike"]:
        yield f"{document['function']} has {megabytes(own)}: no other size is surely cheaper."
    elif "cost" in row:
        times = span(row["excess"]["low"], row["excess"]["high"])
        yield f"{document['function']} has {megabytes(own)}, which costs {times} times as much as the cheapest."
    else:
        yield f"{document['function']} has {megabytes(own)}, which is left out: {row['reason']}."


def _table(document: Document) -> Table:
    rows = [_row(row) for row in document["sizes"]]
    columns = ("size", "ms", "USD a million", "× cheapest", "cold: ms", "cold: USD", "here: ms", "peak MB", "known by")
    dispensable = ("peak MB", "cold: USD", "cold: ms", "here: ms", "× cheapest")
    out = [f"{megabytes(row['memory_mb'])} is left out: {row['reason']}." for row in document["sizes"] if row["reason"]]
    caption, note = "An invocation on Lambda, and here", "\n".join(out)
    return Table(columns, rows, caption=caption, words=(0, 8), dispensable=dispensable, note=note)


def _row(row: Document) -> Row:
    here, cold, size = row["here"] or {}, row.get("cold", {}), megabytes(row["memory_mb"])
    if "cost" not in row:
        return (Cell(size, mood="muted"), *[MISSING] * 7, Cell("left out", mood="muted"))
    excess = row["excess"]
    known = f"{here['rounds']} warm, {here['cold_starts']} cold" if here else "modelled"
    if row["more_processors"]:
        known += ", has fewer vCPUs here"
    if row["may_time_out"]:
        known += ", may time out"
    return (
        size,
        *(_span(row, name) for name in _FIGURES),
        span(excess["low"], excess["high"]),
        *(_span(cold, name) if cold else MISSING for name in _FIGURES),
        significant(here["duration_ms"]) if here else MISSING,
        f"{here['max_memory_mb']:,}" if here else MISSING,
        known,
    )


def _notes(document: Document) -> Iterator[str]:
    found, used = document["predicted"], document["used_before"]
    made = f"{counted(document['invocations'], 'invocation')} ({document['cold_starts']:,} cold)"
    if document["invocations"]:
        yield (
            f"This needed {made} and {document['seconds']:.0f} s here. On AWS ({region(found)}) the same would cost "
            f"{cost_text(found)}."
        )
    if used:
        yield f"{counted(used, 'earlier invocation')} {'was' if used == 1 else 'were'} used, too."
    if any(row["more_processors"] and "cost" in row for row in document["sizes"]):
        yield f"This machine has {counted(document['cores'], 'processor')}; sizes with more vCPUs are modelled."
    yield PREDICTED_RANGES + " Each size also has the noise of its invocations and the error of Lambda's CPU shares."
    yield from found["notes"]


_FIGURES = ("duration_ms", "cost")


def _of_size(document: Document, memory_mb: int) -> Document:
    return next(row for row in document["sizes"] if row["memory_mb"] == memory_mb)


def _span(row: Document, name: str) -> str:
    return span(row[name]["low"], row[name]["high"])


def _chart(document: Document) -> Chart:
    """Return cost and time by memory size, as lines within their 80 % ranges, each with an axis of its own."""
    titles = {"cost": "USD a million invocations", "duration_ms": "ms"}
    rows = [
        (row["memory_mb"], titles[name], *(row[name][end] for end in ("value", "low", "high")), row["basis"])
        for name in titles
        for row in document["sizes"]
        if "cost" in row
    ]
    keys = tuple(Key(title, str(number)) for number, title in enumerate(titles.values(), 1))

    def layer(key: Key, orient: str) -> Document:
        colour = f"var(--c-{key.colour})"
        axis = {"orient": orient, "titleColor": colour, "tickCount": 5, "grid": orient == "left"}
        value = {"type": "quantitative", "scale": {"zero": True}}
        tooltip = [{"field": name, "title": name} for name in ("memory", "value", "low", "high", "known by")]
        low, high = {"field": "low", "title": key.label, "axis": axis, **value}, {"field": "high"}
        middle = {"field": "value", "title": key.label, "axis": axis, **value}
        return {
            "transform": [{"filter": f"datum.figure == '{key.label}'"}],
            "layer": [
                {"mark": {"type": "area", "opacity": 0.2, "color": colour}, "encoding": {"y": low, "y2": high}},
                {
                    "mark": {"type": "line", "point": {"color": colour}, "color": colour},
                    "encoding": {"y": middle, "tooltip": tooltip},
                },
            ],
        }

    memory = {"field": "memory", "type": "quantitative", "scale": {"type": "log", "base": 2, "nice": False}}
    memory |= {"title": "memory size, MB", "axis": {"values": sorted({row[0] for row in rows}), "format": ",d"}}
    spec = {
        "autosize": {"type": "fit-x", "contains": "padding"},
        "width": "container",
        "height": 300,
        "data": {"name": "data"},
        "encoding": {"x": memory},
        "layer": [layer(keys[0], "left"), layer(keys[1], "right")],
        "resolve": {"scale": {"y": "independent"}},
    }
    label = f"Cost and time of {document['function']} by memory size, on Lambda"
    data = Data(("memory", "figure", "value", "low", "high", "known by"), rows)
    return Chart("sizes", label, spec, {"data": data}, keys, "Areas are 80 % ranges.")
