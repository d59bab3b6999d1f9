"""The output of replays and of questions, made from their documents.

A sign precedes a figure that isn't measured: ≈ modelled, = exact."""

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from slslab.errors import counted
from slslab.report.cards import rank
from slslab.report.formats import MISSING, listed, percent, span
from slslab.report.page import Cell, Document, Note, Part, Row, Table
from slslab.report.summaries import alone_note, build_note, not_anchored, ranges_made_of
from slslab.run.metrics import grouped

SIGNS = {"measured": "", "modelled": "≈", "exact": "="}
# The columns of `slslab ask model`.
FOUR = ("model", "closed_form", "replay", "measured")
# Name this many workers for each part of the critical path.
NAMED = 3
NOT_APART = "can't tell"
NOT_IN_TIME = "All memory sizes exceed the functions' time-out."


def _amount(value: float | Decimal) -> str:
    return f"{value:,.2f}" if value < 10_000 else f"{value:,.0f}"


COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("seconds", "seconds", _amount),
    ("billed s", "billed_seconds", _amount),
    ("GB-s", "gb_seconds", lambda value: _amount(Decimal(value))),
    ("USD", "cost", lambda value: f"{Decimal(value):.6f}"),
    ("waiting", "waiting_share", lambda value: percent(value)),
    ("invocations", "invocations", lambda value: f"{value:,}"),
    ("cold", "cold_starts", lambda value: f"{value:,}"),
    ("over time-out", "over_timeout", lambda value: f"{value:,}"),
)


def replay(document: Document) -> Iterator[Part]:
    """Yield the output of `slslab replay`: a row per variant, and notes."""
    yield from _variants(document)
    if late := [row for row in document["rows"] if row.get("late")]:
        yield _late(late, document["timeout_s"])


def _variants(document: Document) -> Iterator[Part]:
    rows: list[Row] = [
        (Cell(row["label"], mood="muted"), Cell(MISSING, mood="muted"))
        if row["trouble"]
        else (row["label"], *(_signed(row[key], show) for _, key, show in COLUMNS))
        for row in document["rows"]
    ]
    recordings = document.get("recordings", [])
    several = f"{len(recordings)} recordings: " if len(recordings) > 1 else ""
    title = f"Replay of {several}{', '.join(recordings) or document['run']}"
    yield Table(("variant", *(heading for heading, _, _ in COLUMNS)), rows, caption=title)
    yield _footnote(document)


def _signed(figure: Document, show: Callable[[Any], str]) -> str:
    return SIGNS[figure["basis"]] + (_range(figure) if "high" in figure else show(figure["value"]))


def _range(figure: Document) -> str:
    return span(figure["low"], figure["high"])


def cheapest(document: Document) -> Iterator[Part]:
    """Yield the answer to `slslab ask cheapest`, and the memory sizes it chose from."""
    deadline, likely, answer = document["deadline_s"], document["likely"], NOT_IN_TIME
    if (size := document["cheapest"]) is not None:
        answer = f"{size:,} MB is the cheapest size that finishes in {deadline:g} s: {_briefly(document, size)}."
        if document["alike"]:
            answer += f" {_megabytes(document['alike'])} can't be told apart from it by cost."
        if likely["memory_mb"] not in (size, *document["alike"]):
            answer += f" {likely['memory_mb']:,} MB would be cheaper and finishes in time with {_likely(likely)}."
    elif likely is not None:
        answer = (
            f"It can't be told whether a size finishes in {deadline:g} s. {likely['memory_mb']:,} MB does with "
            f"{_likely(likely)}: {_briefly(document, likely['memory_mb'])}."
        )
    elif (size := document["fastest"]) is not None:
        answer = f"No size finishes in {deadline:g} s; the fastest is {size:,} MB: {_briefly(document, size)}."
    yield Note(answer + _alone(document), "answer")
    yield from _variants(document)


def _alone(document: Document) -> str:
    size = document.get("cheapest_alone")
    return "" if size is None else f"\nWith a cache of its own, billed by the hour, {size:,} MB is cheapest."


def _likely(likely: Document) -> str:
    return f"a likelihood of {percent(likely['likelihood'])}"


def _megabytes(sizes: Sequence[int]) -> str:
    return f"{listed([f'{size:,}' for size in sizes])} MB"


def sweep(document: Document) -> Iterator[Part]:
    """Yield the answer to `slslab ask memory`."""
    answer = NOT_IN_TIME
    if document["cheapest"] is not None:
        titles = {"cheapest": "Cheapest", "fastest": "Fastest", "balanced": "Least cost × time"}
        answer = "\n".join(f"{title}: {_best_size(document, name)}." for name, title in titles.items())
        answer += _alone(document)
    yield Note(answer, "answer")
    yield from _variants(document)


def _best_size(document: Document, name: str) -> str:
    others = document["alike"][name]
    alike = f"; {_megabytes(others)} can't be told apart from it" if others else ""
    return f"{document[name]:,} MB, {_briefly(document, document[name])}{alike}"


def _briefly(document: Document, memory_mb: int) -> str:
    row = next(row for row in document["rows"] if row["variant"].get("memory_mb") == memory_mb)
    return f"≈{_range(row['seconds'])} s, ≈{_range(row['cost'])} USD"


def path(document: Document) -> Iterator[Part]:
    """Yield the critical path by operation: seconds, share of the run, and the workers with the largest parts."""
    rows = []
    for part in document["rows"]:
        seconds, workers = part["seconds"]["value"], part["workers"]
        shares = [
            f"{'no worker' if each['worker'] < 0 else rank(each)} ({percent(each['seconds'] / seconds)})"
            for each in workers[:NAMED]
        ]
        if len(workers) > NAMED:
            shares.append(f"{len(workers) - NAMED:,} more")
        figures = f"≈{seconds:,.3f}", f"≈{percent(part['share'], '.1')}", f"{part['stretches']:,}"
        rows.append((part["op"], part["phase"], *figures, ", ".join(shares)))
    network = f" with the network of {document['network']}" if document["network"] else ""
    title = f"Critical path, modelled on {document['profile']['name']}{network}"
    columns = ("operation", "phase", "seconds", "share", "stretches", "of")
    middle = f"≈{document['seconds']['value']:,.3f} s, the middle of the range"
    yield Table(columns, rows, caption=f"{title}: {middle}")
    yield f"{document['summary']} Its 80 % range is ≈{_range(document['seconds'])} s."
    yield _footnote(document)


def timeline(document: Document) -> str:
    """Return the timeline's length, and its files."""
    seconds = f"{counted(document['steps'], 'step')} in ≈{_range(document['seconds'])} s (80 % range)"
    middle = f"drawn with the middle of the range, ≈{document['seconds']['value']:,.2f} s"
    notes = {"perfetto": " (open it at https://ui.perfetto.dev)", "plot": ""}
    files = " and ".join(f"{document[name]}{note}" for name, note in notes.items() if document[name] is not None)
    return "\n".join((f"{seconds}, {middle}: {files}", *_range_notes(document)))


def patterns(document: Document) -> Iterator[Part]:
    """Yield the answer to `slslab ask patterns`."""
    names = list(document["rows"][0]["step_seconds"])
    rows = [
        (
            str(row["workers"]),
            *(_signed(row["step_seconds"][name], lambda value: f"{value:,.4f}") for name in names),
            row["winner"] or NOT_APART,
            f"≈{row['latency_bandwidth_size']['value']:.3g}",
            "\n".join(f"{i['begin']:.3g} to {i['end']:.3g}: {i['winner'] or NOT_APART}" for i in row["intervals"]),
        )
        for row in document["rows"]
    ]
    headings = (*(f"{name} s/step" for name in names), "faster", "here", "latency × bandwidth ÷ size")
    title = f"Patterns, gradients of {document['gradient_bytes']:,} bytes"
    yield Table(("workers", *headings), rows, caption=title)
    yield _footnote(document)


def gpu(document: Document) -> Iterator[Part]:
    """Yield the answer to `slslab ask gpu`."""
    headings = ("functions s", "instances s", "faster", "functions USD", "instances USD", "cheaper")
    rows = []
    for row in document["rows"]:
        cells = [str(row["workers"]), f"{row['epochs']:,}"]
        for figure, less in (("seconds", "faster"), ("cost", "cheaper")):
            cells += [f"≈{_range(row[way][figure])}" for way in ("functions", "instances")]
            cells.append(row[less] or NOT_APART)
        rows.append(cells)
    yield Table(("workers", "epochs", *headings), rows, caption="Functions and GPU instances")
    answers = [
        f"{counted(crossing['workers'], 'worker')}: which is {word} {_where(crossing[f'{figure}_range'])}."
        for crossing in document["crossings"]
        for figure, word in (("seconds", "faster"), ("cost", "cheaper"))
    ]
    yield Note("\n".join(answers), "answer")
    yield Note(
        "The speeds of instances, and of GPUs without an anchor, are assumed, and the ranges allow for it.", "muted"
    )
    yield _footnote(document)


def _where(ends: Sequence[int | None]) -> str:
    """Return at how many epochs the other way becomes better, by the ends of the range; None means never."""
    first, last = ends
    if first is None:
        return "never changes"
    if last is None:
        return f"changes at {counted(first, 'epoch')} or later, or never"
    return f"changes at {counted(first, 'epoch')}" if first == last else f"changes at {first:,} to {last:,} epochs"


def model(document: Document) -> Iterator[Part]:
    """Yield the answer to `slslab ask model`."""
    yield Note(_model_answer(document), "answer")
    for title, figure in (("Seconds of the run", "seconds"), ("Of these, exchanging messages", "communication")):
        rows = [
            (
                str(row["workers"]),
                *(MISSING if row[name] is None else _signed(row[name][figure], _amount) for name in FOUR),
                MISSING if (off := row["model_error"]) is None else f"≈{percent(off[figure]['value'], '+.0')}",
            )
            for row in document["rows"]
        ]
        headings = (*(name.replace("_", " ") for name in FOUR), "model's error")
        yield Table(("workers", *headings), rows, caption=title)
    yield _model_notes(document)
    yield _footnote(document)


def _model_answer(document: Document) -> str:
    limit, first = document["error"], document["errs_from"]
    known = [row for row in document["rows"] if row["replay"] is not None]
    if not known:
        return "No number of workers can be replayed, so the model's error is unknown."
    row = next((row for row in known if row["workers"] == document["workers"]), known[-1])
    run, exchanges = (
        f"≈{percent(abs(off['value']))} {'above' if off['value'] > 0 else 'below'}"
        for off in row["model_error"].values()
    )
    where = f"The run's seconds are off by more than {percent(limit)} from {counted(first or 0, 'worker')} on."
    if first is None:
        where = f"The run's seconds are within {percent(limit)} with the most workers."
    model_s, closed_s, replay_s = (float(row[name]["seconds"]["value"]) for name in FOUR[:3])
    return (
        f"With {counted(row['workers'], 'worker')} the analytic model is {run} the replay, and {exchanges} it in "
        f"exchanging messages. {where} Of the difference, ≈{closed_s - model_s:,.2f} s are requests that the model "
        f"leaves out, and ≈{replay_s - closed_s:,.2f} s are included only in the replay."
    )


def _model_notes(document: Document) -> str:
    known = document["constants"]
    size, count, note = ("m ÷ w", "3w - 2", "")
    if document["transfers"] == "derived":
        size, count = "m", "2" if known["put"]["op"] == "parameter.push" else "w + 3"
        more = "" if count == "2" else " (3 for one worker)"
        note = f" The paper's is for parts of vectors; {count}{more} is derived here."
    channel = "; ".join(
        f"{known[name]['op']} {known[name]['latency_ms']['value']:.5g} ms"
        + (f" and {known[name]['bandwidth_mb_s']['value']:.5g} MB/s" if known[name]["bandwidth_mb_s"] else "")
        for name in ("put", "get")
    )
    titles = {
        "closed_form": "It leaves out, unlike the closed form",
        "replay": "It and the closed form leave out, unlike the replay",
        "neither": "All three leave out",
    }
    lines = [
        f"Model (LambdaML, Section 5.3): start + data ÷ B + rounds × ({count}) × ({size} ÷ B + L) + compute.{note}",
        f"L and B are the profile's: {channel}; the paper doesn't print its own. The run's, on this profile: start "
        f"≈{known['start_s']['value']:.2f} s, data {known['data_bytes']['value']:,.0f} bytes, "
        f"{counted(known['rounds']['value'], 'round')}, m {known['message_bytes']['value']:,} bytes, compute "
        f"≈{known['compute_s']['value']:.2f} s. Each worker has the recorded number of minibatches.",
        *("\n- ".join((f"{titles[name]}:", *parts)) for name, parts in document["left_out"].items()),
    ]
    lines.append(
        "The replay has its 80 % range. The model and the closed form use the same profile and CPU seconds; their "
        "errors are relative to the middle of the replay's range."
    )
    if document["network"] is None:
        lines.append("The measured run used this host's stores; --network this-host models the other three with them.")
    return "\n".join(lines)


def waiting(document: Document) -> Iterator[Part]:
    """Yield the answer to `slslab ask waiting`."""
    share = document["waiting_share"]["value"]
    yield Note(
        f"≈{_range(document['waiting_seconds'])} of ≈{_range(document['billed_seconds'])} billed s ({percent(share)}) "
        f"are waiting, ≈{_range(document['waiting_cost'])} of ≈{_range(document['cost'])} USD. Measured, the pauses of "
        f"waiting were {percent(document['measured_share']['value'])}.",
        "answer",
    )
    rows = [
        (
            "none" if row["worker"] < 0 else str(row["worker"]),
            row["phase"],
            f"≈{row['seconds']:,.3f}",
            f"≈{percent(row['share'], '.1')}",
            f"≈{row['cost']:.8f}",
        )
        for row in document["rows"]
    ]
    yield Table(
        ("worker", "phase", "waiting s", "of its billed time", "USD"),
        rows,
        caption="Waiting, at the middle of the range",
    )
    yield _footnote(document)


def _footnote(document: Document) -> Note:
    profile, prices = document["profile"], document["prices"]
    network = f", the network of {document['network']}" if document["network"] else ""
    own = (row["bill"]["book"] for row in document["rows"] if "bill" in row)
    books = ", ".join(dict.fromkeys(f"{book['name']} of {book['date']}" for book in (*own,) or (prices,)))
    lines = [
        f"≈ modelled on {profile['name']} of {profile['date']}{network}; = exact; no sign: measured on the run's host. "
        f"Prices: {books}."
    ]
    if len(document.get("recordings", ())) > 1:
        lines.append("From several recordings: means, and 80 % ranges for another recording (Student's).")
    lines += _range_notes(document)
    if document["oversubscribed"]:
        lines.append("The host was oversubscribed: measured times are longer than they would be on an idle host.")
    if document["asynchronous"]:
        lines.append(
            "Times, bytes and cost of S-ASP are modelled. Learning isn't: it depends on which worker is first."
        )
    if alone := document.get("alone"):
        lines.append(alone_note(alone))
    if any((row.get("variant") or {}).get("memory_mb") for row in document["rows"]):
        peak = f"{document['peak_memory_mb']:,} MB measured here{build_note(document['torch'])}"
        lines.append(f"No size can be below the peak, {peak}.")
    refused = grouped((row["trouble"], row["label"]) for row in document["rows"] if row.get("trouble"))
    lines += [f"{'; '.join(labels)}: {trouble}" for trouble, labels in refused.items()]
    warned = grouped((text, row["label"]) for row in document["rows"] for text in row.get("warnings", ()))
    lines += [f"{'; '.join(labels)}: {text}" for text, labels in warned.items()]
    lines += document.get("warnings", ())
    return Note("\n".join(lines), "muted")


def _range_notes(document: Document) -> list[str]:
    uncertain = [one["uncertainty"] for one in (document, *document.get("rows", ())) if one.get("uncertainty")]
    if not uncertain:
        return []
    notes = [ranges_made_of([next(iter(each.values())) for each in uncertain])]
    processor = document["processor"]
    return notes if processor is None or processor["anchors"] else [*notes, not_anchored()]


def _late(rows: Sequence[Document], timeout_s: float) -> Table:
    late = grouped(
        ((row["label"], call["function"], SIGNS[row["over_timeout"]["basis"]]), call)
        for row in rows
        for call in row["late"]
    )
    lines = []
    for (label, function, sign), calls in late.items():
        workers = sorted({call["worker"] for call in calls})
        named = ", ".join(map(str, workers[:8])) + (" …" if len(workers) > 8 else "")
        lines.append((label, function, named, f"{sign}{max(call['seconds'] for call in calls):,.1f}"))
    title = f"Over the time-out of {timeout_s:g} s"
    return Table(("variant", "function", "workers", "longest s"), lines, caption=title)
