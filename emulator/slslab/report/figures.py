"""Key figures of a run or service, as a page's tiles and as a terminal's table, and caveats on them."""

from collections.abc import Iterator

from slslab.errors import counted
from slslab.report import formats, summaries
from slslab.report.page import Document, Figure, Note, Table


def figures(document: Document) -> Iterator[Figure]:
    """Yield what was measured, and for time and cost what they are on Lambda, if the document has that."""
    found: Document = summaries.replayed(document) or summaries.predicted(document) or {}

    def both(title: str, figure: str, here: str, named: str = "") -> Figure:
        if figure not in found:
            return Figure(named or title, here, "measured")
        there = f"{summaries.figure_text(found, figure)}{'' if figure == 'cost' else ' s'}"
        note = "80 % range" if summaries.has_range(found) else ""
        return Figure(title, there, "modelled", note, (f"{here} {named}".strip(), "measured"))

    def measured(title: str, value: str, note: str = "") -> Figure:
        return Figure(title, value, "measured", note)

    if spent := document.get("seconds"):
        name = "first to last" if "span" in spent else "wall time"
        yield both(name, "seconds", formats.seconds(spent.get("span", spent["measured"])))
    if cost := document.get("cost"):
        named = f"{summaries.HOST_PRICED}, {cost['currency']}" if {"lambda", "predicted"} & document.keys() else ""
        yield both(f"bill, {cost['currency']}", "cost", formats.money(cost["total"]), named)
    if "billed_seconds" in document:
        yield both("billed time", "billed_seconds", formats.seconds(document["billed_seconds"]))
    if document.get("orchestration_seconds") is not None:
        yield measured("orchestration", formats.seconds(document["orchestration_seconds"]))
    if document.get("peak_memory_mb"):
        limit_mb = summaries.peak_limit_mb(document)
        limit = "" if limit_mb is None else f"of {formats.megabytes(limit_mb)}"
        yield measured("peak memory", formats.megabytes(document["peak_memory_mb"]), limit)
    if (peak_mb := document.get("gpu", {}).get("peak_memory_mb")) is not None:
        gpu_mb = document["gpu"]["memory_mb"]
        yield measured("peak GPU memory", f"{peak_mb:,}{f' of {gpu_mb:,}' if gpu_mb else ''} MB")
    if accuracy := [value for value in document.get("accuracy", ()) if value is not None]:
        note = f"after {counted(len(document['accuracy']), 'epoch')}"
        yield measured("test accuracy", formats.share(accuracy[-1]), note)
    if loss := document.get("loss"):
        yield measured("training loss", formats.significant(loss[-1]))
    if document.get("replicas_equal") is not None:
        yield measured("replicas equal", "yes" if document["replicas_equal"] else "no")
    if moved := document.get("bytes"):
        yield Figure("bytes sent", formats.size(moved["in"]), "exact", f"{formats.size(moved['out'])} received")
    if document.get("invocations"):
        note = f"{document['cold_starts']:,} cold"
        yield Figure("invocations", formats.integer(document["invocations"]), "exact", note)
    elif launched := document.get("instances"):
        yield Figure("instances", str(len(launched)), "exact", f"on {document['device']}")


def figures_table(document: Document) -> Table:
    """Return the figures for a terminal: on AWS, if they are modelled, and on this machine."""
    rows = [
        (each.title, each.value, each.other[0])
        if each.other
        else (each.title, "", f"{each.value} ({each.note})" if each.note else each.value)
        for each in figures(document)
    ]
    if any(there for _, there, _ in rows):
        return Table(
            ("", f"on {summaries.platform_of(document) or 'AWS'}, modelled", "this machine"), rows, dispensable=()
        )
    return Table(("", "this machine"), [(title, here) for title, _, here in rows], dispensable=())


def failure(error: Document) -> Note:
    """Return what failed, where, what was going on, and what to do."""
    known = [f"{key} {error[key]}" for key in ("worker", "step") if error.get(key) is not None]
    where = f" ({', '.join(known)})" if known else ""
    hint = f"Hint: {error['hint']}" if error.get("hint") else ""
    lines = (f"{error['type']}: {error['message']}{where}", error.get("last_activity"), hint)
    return Note("\n".join(filter(None, lines)), "bad")


def warnings(document: Document) -> Iterator[Note]:
    """Yield caveats on the figures."""
    launched = document.get("instances")
    notes = document.get("cost", {}).get("notes", ())
    said = (
        summaries.buffers_note(document),
        summaries.uncertain_note(document),
        *summaries.limit_notes(document),
        *summaries.imports_notes(document),
        "This host could not enforce Lambda's CPU share." if summaries.cpu_share_enforced(document) is False else "",
        f"The vCPUs and memory of {launched[0]['type']} weren't enforced." if launched else "",
        "The trace breaks off in the middle of its last line; later events are missing here."
        if document.get("trace_torn")
        else "",
        *(f"{formats.capitalised(note)}." for note in notes),
    )
    yield from map(Note, filter(None, said))
