"""The output of `slslab calibrate`, made from its documents."""

from collections.abc import Iterator

from slslab.errors import counted
from slslab.report.formats import percent
from slslab.report.page import Document, Note, Part, Table

# From the REPORT lines, and as modelled before and after the fit.
MEDIANS = ("real", "before", "after")
BUSY = "This machine was busy, so the work of several threads wasn't measured. Calibrate again when it is idle."


def calibration(document: Document) -> Iterator[Part]:
    """Yield the measured figures, their sources, and the profile's path."""
    if "lines" in document:
        yield _comparison(document)
        yield _lines(document)
    if document.get("busy"):
        yield Note(BUSY)
    sources = (figure["source"].partition(": ") for figure in document["figures"])
    rows = [
        (figure["entry"], f"{figure['value']:g}", how or where)
        for figure, (where, _, how) in zip(document["figures"], sources, strict=True)
    ]
    yield Table(("measured", "value", "how"), rows, words=(0, 2))
    yield f"The profile {document['name']} is in {document['path']}."


def processor_table(document: Document) -> Iterator[Part]:
    """Yield the value of this host's CPU second on Lambda by kind of work, and the anchors behind it."""
    processor = document["processor"]
    kinds = document["kinds"]
    first, *others = (
        f"{factor['value']:.2g} s ({factor['low']:.2g} to {factor['high']:.2g}){{}} for {kinds[kind]}"
        for kind, factor in reversed(processor["factors"].items())
    )
    answer = ", ".join([first.format(" of a Lambda vCPU"), *(other.format("") for other in others)])
    yield f"One CPU second of this machine is {answer}."
    yield processor["missing"]
    rows = [
        (
            anchor["anchor"],
            kinds[anchor["kind"]],
            f"{anchor['lambda_s']:.4g} ({anchor['year']})",
            f"{'' if anchor['measured'] else '≈ '}{anchor['host_s']:.4g}",
            f"{anchor['factor']:.2f}",
            "" if anchor["residual"] is None else percent(anchor["residual"], "+.0"),
            ", ".join(anchor["predicted_from"]),
        )
        for anchor in document["anchors"]
    ]
    headings = ("anchor", "kind of work", "Lambda, s", "here, CPU s", "ratio", "error if predicted", "from")
    yield Table(headings, rows)
    if short := document["short_forms"]:
        differences = [f"{name} {percent(value, '+.0')}" for name, value in short.items()]
        yield f"Short forms next to whole ones: {', '.join(differences)}."
    yield f"{processor['name']}; kept in {document['path']}."


def _comparison(document: Document) -> Table:
    rows = [
        (name, *("" if value is None else f"{value:,.2f}" for value in map(document[key].get, MEDIANS)))
        for name, key in (("duration", "duration_ms"), ("init", "init_ms"))
    ]
    columns = ("ms", "REPORT lines", f"modelled by {document['base']}", "modelled after the fit")
    return Table(columns, rows, caption=f"{document['function']} at {document['memory_mb']} MB, medians")


def _lines(document: Document) -> str:
    lines = document["lines"]
    return (
        f"{counted(lines['read'], 'REPORT line')}, {lines['failed']} of them from failed invocations; "
        f"{lines['unread']} more couldn't be read. Fitted to {lines['fitted']}, {lines['cold']} of them cold starts; "
        f"{lines['billed_as_here']} are billed as the emulator bills. Memory used: "
        f"{document['max_memory_mb']:,.0f} MB, in the run here {document['recorded_max_memory_mb']:,.0f} MB (medians)."
    )
