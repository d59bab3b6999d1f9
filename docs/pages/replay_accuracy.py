"""docs/accuracy-of-replay.md: every time that was measured elsewhere, or later, next to the replay's prediction."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from docs.pages.markdown import paragraph, render, table
from docs.pages.results import replayed

from slslab.report.formats import listed, significant, span
from slslab.report.page import Document
from slslab.run.metrics import grouped
from slslab_lab.pages.reproduction import notes, tables
from slslab_lab.studies import find_committed, gradssharding
from slslab_lab.studies.patterns import TABLES

TITLE = "# Accuracy of replay"
FITTED, LEFT_OUT, PREDICTED, BLIND = "fitted", "left out of the fit", "predicted", "predicted blind"
UNSEEN = "predicted from that host's runs"
ROWS_COMMAND = "python benchmarks/lambda_rows.py"
SAME_COMMAND = "python benchmarks/same_answer.py"
IDLE = "idle"
# The figures of benchmarks/replay_error.py.
UNSEEN_FIGURES = {"duration": "seconds of a worker's handlers", "billed": "billed seconds of all functions"}
UNSEEN_COMMAND = "python benchmarks/replay_error.py"
SECONDS = ("s", "min")


@dataclass(frozen=True)
class Truth:
    """Figures measured elsewhere, how the model was made, and its relative errors."""

    what: str
    kind: str
    errors: Sequence[float]
    command: str


def build() -> str:
    """Return the whole page."""
    rounds = replayed("gradssharding")
    plans, lambdas, same = (
        json.loads(find_committed(file, what, f"{command} --json").read_text())
        for file, what, command in (
            ("replay-error.json", "errors of plans that a host had not run", UNSEEN_COMMAND),
            ("lambda-rows.json", "rows of Lambda", ROWS_COMMAND),
            ("same-answer.json", "answers next to other work", SAME_COMMAND),
        )
    )
    truths = list(_truths(plans, rounds))
    parts = *_introduction(truths, rounds), *_lambdas_rows(lambdas), *_same_answer(same)
    sections = *parts, *_plans(plans), *_details(rounds)
    return "\n\n".join([TITLE, *sections]) + "\n"


def _introduction(truths: Sequence[Truth], rounds: Document) -> Iterator[str]:
    errors = grouped((truth.kind, abs(error)) for truth in truths for error in truth.errors)
    by_kind = {kind: fmean(sizes) for kind, sizes in errors.items()}
    comparison = rounds["comparison"]
    seconds, usd = (comparison["errors"][name]["mean"] for name in (gradssharding.SECONDS, gradssharding.USD))
    yield paragraph(
        f"On AWS Lambda, {comparison['of']} rounds of an aggregation were predicted before they were compared: the "
        f"predicted seconds are off by {seconds:.1%} on average, {comparison['covered']} of {comparison['of']} "
        f"intervals of {comparison['confidence']:.0%} contain the measured time, and costs are off by {usd:.1%}. "
        f"Rounds that were left out of a fit to the others are off by {by_kind[LEFT_OUT]:.0%}. For plans that a host "
        f"hasn't run yet, predictions from its other runs are off by {by_kind[UNSEEN]:.0%}; predictions of printed "
        f"seconds, with nothing fitted to them, by {by_kind[PREDICTED]:.0%}."
    )
    headings = ("measured elsewhere", "the model's figures are", "rows", "mean error", "greatest", "command")
    sized = [(truth, [abs(error) for error in truth.errors]) for truth in truths]
    rows = [
        (one.what, one.kind, str(len(sizes)), f"{fmean(sizes):.1%}", f"{max(sizes):.1%}", one.command)
        for one, sizes in sized
    ]
    yield table(headings, rows, (2, 3, 4))
    yield paragraph(
        "An error is modelled ÷ measured − 1, without its sign. *Fitted*: the model was made from these figures. "
        "*Left out of the fit*: each row by a fit to the others. *Predicted*: no row of its table went into the model "
        "(LambdaML's own latency and bandwidth of S3 did). *Predicted blind*: the predictions were committed before "
        "they were compared. `python -m docs.build` builds this page."
    )


def _same_answer(document: Document) -> Iterator[str]:
    rows = document["rows"]
    conditions = [name for name in dict.fromkeys(row["condition"] for row in rows) if name != IDLE]
    off = [abs(row["off"]) for row in rows if row["condition"] != IDLE]
    rounds = len(document["recorded"][0]["runs"])
    yield "## The same answer next to other work"
    yield paragraph(
        f"`{SAME_COMMAND} --rounds {rounds}`: LeNet on digits, 2 workers of 640 MB, 2 epochs, recorded while nothing "
        "else ran, next to two and eight busy loops, and next to four processes that copy memory. Modelled on AWS, "
        f"answers next to other work differ from the idle ones by {fmean(off):.1%} on average and {max(off):.1%} at "
        "most. *Idle spread*: the greatest idle answer minus the least, over the median; one round has none. *In "
        "ranges*: how many recordings next to other work have the idle answer in their 80 % range."
    )
    cells = []
    for architecture, figure in dict.fromkeys((row["architecture"], row["figure"]) for row in rows):
        own = {row["condition"]: row for row in rows if (row["architecture"], row["figure"]) == (architecture, figure)}
        idle, loaded = own[IDLE], [own[name] for name in conditions]
        inside, of = (sum(row[key] for row in loaded) for key in ("ranges_with_idle", "of"))
        shown = f"{idle['median']:.1f} s" if figure == "seconds" else f"{idle['median']:.6f} USD"
        offs = [f"{row['off']:+.1%}" for row in loaded]
        spread = f"{idle['floor']:.1%}" if rounds > 1 else "–"
        cells.append((architecture, shown, *offs, spread, f"{inside} of {of}"))
    headings = ("architecture", "idle", *(f"next to {name}" for name in conditions), "idle spread", "in ranges")
    yield table(headings, cells, range(1, len(headings)))


def _truths(plans: Document, rounds: Document) -> Iterator[Truth]:
    for figure, what in UNSEEN_FIGURES.items():
        errors = [row["error"] for row in plans["rows"] if row["figure"] == figure]
        yield Truth(f"plans that a host had not run: {what}", UNSEEN, errors, f"`{UNSEEN_COMMAND}`")
    command = "`slslab reproduce gradssharding`"
    blind = [row["errors"] for row in rounds["comparison"]["rows"]]
    for name, what in ((gradssharding.SECONDS, "seconds of a round"), (gradssharding.USD, "cost of a round")):
        errors = [row[name] for row in blind]
        yield Truth(f"GradsSharding, λ-FL and LIFL on AWS Lambda, RQ3: {what}", BLIND, errors, command)
    what = "GradsSharding on AWS Lambda, RQ2: a round by shards"
    errors = [row["cells"]["wall_seconds"]["difference"] for row in rounds["rows"] if row["variant"].startswith("RQ2")]
    yield Truth(what, FITTED, errors, command)
    yield Truth(what, LEFT_OUT, [row["error"] for row in rounds["fit"]["left_out"]], command)
    what = "KubeML, ResNet34: 30 epochs by merges, except with one merge an epoch"
    errors = replayed("kubeml-times")["fit"]["errors"]["fitted"]
    yield Truth(what, "fitted (one rate for all rows)", errors, "`slslab reproduce kubeml-times`")
    for name in TABLES:
        document = replayed(name)
        for variant in dict.fromkeys(row["variant"] for row in document["rows"]):
            what = f"{document['table']['source']} of {document['paper']['name']}, {variant}"
            yield Truth(what, PREDICTED, _differences(document, variant), f"`slslab reproduce {name}`")
    document = replayed("table2")
    for variant in dict.fromkeys(row["variant"] for row in document["rows"]):
        what = f"Table 2 of {document['paper']['name']}, {variant}: a function"
        errors, command = _differences(document, variant, "function_seconds"), "table2 --fidelity replayed"
        yield Truth(what, "fitted (one speed for all rows)", errors, f"`slslab reproduce {command}`")


def _differences(document: Document, variant: str, column: str = "") -> list[float]:
    columns = [each["name"] for each in document["columns"] if each["unit"] in SECONDS and column in ("", each["name"])]
    cells: list[Mapping[str, Any]] = [
        row["cells"][name] for row in document["rows"] if row["variant"] == variant for name in columns
    ]
    return [cell["difference"] for cell in cells if cell["difference"] is not None and cell["modelled"] is not None]


def _lambdas_rows(document: Document) -> Iterator[str]:
    yield "## Lambda's own rows"
    medians = listed([f"{median:.1%} ({model})" for model, median in document["medians"].items()])
    busy = "The machine was busy, so its CPU times may be too long. " if document["busy"] else ""
    yield paragraph(
        f"`{ROWS_COMMAND}`, {document['date']}, on {document['processor']}. {busy}Each workload ran once on this "
        f"machine, and the replay played it on {document['profile']} for each memory size. *Fitted*: the model was "
        "made from this figure. *Base*: Lambda's own; the other figures of its workload are ratios to it. "
        f"*Predicted*: neither. With one figure per workload, {len(document['workloads'])} workloads are off by "
        f"{document['mean']:.1%} on average; medians by kind: {medians}."
    )
    yield table(
        ("workload", "MB", "on Lambda", "modelled (80%)", "error", "inside", "standing"),
        [_lambdas_row(row) for row in document["rows"]],
        (1, 2, 4),
    )
    reasons = {row["workload"]: row["apart"] for row in document["rows"] if row["apart"]}
    yield "These rows don't count in any mean:"
    yield "\n".join(f"- {workload}: {reason}." for workload, reason in reasons.items())
    yield "Each anchor of `slslab calibrate --processor`, predicted from the others of its kind:"
    yield table(
        ("anchor", "year", "predicted from", "error"),
        [
            (one["anchor"], str(one["year"]), ", ".join(one["from"]), f"{one['error']:+.0%}")
            for one in document["anchors"]
        ],
        (1, 3),
    )
    yield paragraph(
        "How many predicted figures lie in their 80% range. *all* counts each memory size. Sizes of one workload "
        "aren't independent, so the last row counts each workload once."
    )
    yield table(
        ("figures", "inside", "of", "share", "median of high ÷ low"),
        [
            (
                *(one["group"], str(one["inside"]), str(one["of"])),
                *(f"{one['inside'] / one['of']:.0%}", f"{one['ratio']:.2f}"),
            )
            for one in document["counted"]
        ],
        range(1, 5),
    )
    widths = listed([f"{share:.0%} ({source})" for source, share in document["half_widths"].items()])
    yield paragraph(f"Median half-widths of the rows' ranges by source: {widths}.")


def _lambdas_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    modelled = f"{significant(row['ours'])} ({span(row['low'], row['high'])})"
    inside = "yes" if row["inside"] else "no"
    measured = f"{row['lambda']:,} {row['unit']}"
    return row["workload"], f"{row['memory_mb']:,}", measured, modelled, f"{row['error']:+.1%}", inside, row["standing"]


def _plans(document: Document) -> Iterator[str]:
    yield "## Plans that a host had not run"
    yield paragraph(
        f"`{UNSEEN_COMMAND}`, {document['date']}, two otherwise idle cores: MobileNet on synthetic images. `this-host` "
        "and the costs of steps are fitted to three runs with 2 workers, 768 MB and minibatches of 32. Every other "
        "plan was named beforehand and ran three times, taking turns with them. The spread is the greatest of its "
        "three measurements minus the least, over their mean. *: the host delayed functions for more than 2 % of "
        "their time. !: off by more than 12 % and by more than 1.5 times the spread."
    )
    rows = [row for row in document["rows"] if row["figure"] in UNSEEN_FIGURES]
    yield table(
        ("architecture", "plan", "figure", "measured s", "spread", "modelled s", "error"),
        [
            (
                *(row["architecture"], row["case"], row["figure"]),
                *(f"{row['measured']:.1f}{'*' * row['oversubscribed']}", f"{row['spread']:.0%}"),
                *(f"{row['foretold']:.1f}", f"{row['error']:+.0%}{'' if row['holds'] else ' !'}"),
            )
            for row in rows
        ],
        range(3, 7),
    )


def _details(document: Document) -> Iterator[str]:
    yield "## Rounds of GradsSharding, λ-FL and LIFL"
    yield "\n".join(f"- {sentence}" for sentence in (*document["findings"], *notes(document)[1:]))
    for grid in tables(document):
        yield f"### {grid.caption}"
        yield render(grid)
    fit = document["fit"]
    yield "### The fit"
    yield paragraph(
        f"One connection moves {fit['connection_mb_s']:.1f} MB/s; a function's network refills at "
        f"{fit['refill_mb_s']:.1f} MB/s and holds {fit['burst_mb']:.0f} MB; the logarithms of functions' times have a "
        f"standard deviation of {fit['spread']:.3f}. These four were named before the fit. Each row by a fit to the "
        "other four:"
    )
    yield table(
        ("shards left out", "predicted s", "error", "error of the slowest function"),
        [
            (str(row["shards"]), f"{row['wall_seconds']:.1f}", f"{row['error']:+.1%}", f"{row['slowest_error']:+.1%}")
            for row in fit["left_out"]
        ],
        range(4),
    )
