"""docs/accuracy-of-replay.md: every time that was measured elsewhere, or later, next to the replay's prediction."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pkgutil import resolve_name
from statistics import fmean
from typing import Any, NamedTuple

from docs.pages.results import describe_study, replayed, with_headings

from slslab.report.page import Document, Part, Table
from slslab.run.metrics import grouped
from slslab_lab.studies import committed, gradssharding
from slslab_lab.studies.patterns import TABLES

FITTED, LEFT_OUT, PREDICTED, BLIND = "fitted", "left out of the fit", "predicted", "predicted blind"
UNSEEN = "predicted from that host's runs"
ROWS_COMMAND = "python benchmarks/lambda_rows.py"
SAME_COMMAND = "python benchmarks/same_answer.py"
# The figures of benchmarks/replay_error.py.
UNSEEN_FIGURES = {"duration": "seconds of a worker's handlers", "billed": "billed seconds of all functions"}
UNSEEN_COMMAND = "python benchmarks/replay_error.py"
SECONDS = ("s", "min")


class Truth(NamedTuple):
    """Figures measured elsewhere, how the model was made, its relative errors, and the command that prints them."""

    figures: str
    made: str
    errors: Sequence[float]
    command: str


def build() -> Iterator[Part]:
    """Yield the page; the sections on benchmarks are what these print."""
    rounds = replayed("gradssharding")
    plans, lambdas, same = (
        json.loads(committed(f"{name}.json").read_text()) for name in ("replay-error", "lambda-rows", "same-answer")
    )
    yield "# Accuracy of replay"
    yield from _introduction(list(_truths(plans, rounds)), rounds)
    yield "## Lambda's own rows"
    yield (
        f"`{ROWS_COMMAND}`, {lambdas['date']}, on {lambdas['processor']}. Each workload ran once on this machine, and "
        f"the replay played it on {lambdas['profile']} for each memory size. *Fitted*: the model was made from this "
        "figure. *Base*: Lambda's own; the other figures of its workload are ratios to it. *Predicted*: neither. In "
        "the figures that lie in their ranges *all* counts each memory size; sizes of one workload aren't independent, "
        "so the last row counts each workload once."
    )
    yield from resolve_name("benchmarks.lambda_rows:report")(lambdas)
    yield "## The same answer next to other work"
    yield (
        f"`{SAME_COMMAND} --rounds {len(same['recorded'][0]['runs'])}`: LeNet on digits, 2 workers of 640 MB, 2 "
        "epochs, recorded while nothing else ran, next to two and eight busy loops, and next to four processes that "
        "copy memory, all modelled on AWS. *Idle spread*: the greatest idle answer minus the least, over the median. "
        "*Idle value in ranges*: how many recordings next to other work have the idle answer in their 80 % range."
    )
    yield from resolve_name("benchmarks.same_answer:report")(same["rows"])
    yield "## Plans that a host had not run"
    yield (
        f"`{UNSEEN_COMMAND}`, {plans['date']}, two otherwise idle cores: MobileNet on synthetic images. `this-host` "
        "and the costs of steps are fitted to three runs with 2 workers, 768 MB and minibatches of 32. Every other "
        "plan was named beforehand and ran three times, taking turns with them. The spread is the greatest of its "
        "three measurements minus the least, over their mean."
    )
    yield from resolve_name("benchmarks.replay_error:report")(plans)
    yield "## Rounds of GradsSharding, λ-FL and LIFL"
    yield from with_headings(describe_study("gradssharding"))


def _introduction(truths: Sequence[Truth], rounds: Document) -> Iterator[Part]:
    errors = grouped((truth.made, abs(error)) for truth in truths for error in truth.errors)
    by_kind = {kind: fmean(sizes) for kind, sizes in errors.items()}
    comparison = rounds["comparison"]
    seconds, usd = (comparison["errors"][name]["mean"] for name in (gradssharding.SECONDS, gradssharding.USD))
    yield (
        f"On AWS Lambda, {comparison['of']} rounds of an aggregation were predicted before they were compared: the "
        f"predicted seconds are off by {seconds:.1%} on average, {comparison['covered']} of {comparison['of']} "
        f"intervals of {comparison['confidence']:.0%} contain the measured time, and costs are off by {usd:.1%}. "
        f"Rounds that were left out of a fit to the others are off by {by_kind[LEFT_OUT]:.0%}. For plans that a host "
        f"hasn't run yet, predictions from its other runs are off by {by_kind[UNSEEN]:.0%}; predictions of printed "
        f"seconds, with nothing fitted to them, by {by_kind[PREDICTED]:.0%}."
    )
    headings = ("measured elsewhere", "the model's figures are", "rows", "mean error", "greatest", "command")
    rows = [
        (
            *(truth.figures, truth.made, str(len(truth.errors))),
            f"{fmean(map(abs, truth.errors)):.1%}",
            f"{max(map(abs, truth.errors)):.1%}",
            f"`{truth.command}`",
        )
        for truth in truths
    ]
    yield Table(headings, rows, words=(0, 1, 5))
    yield (
        "An error is modelled ÷ measured − 1, without its sign. *Fitted*: the model was made from these figures. "
        "*Left out of the fit*: each row by a fit to the others. *Predicted*: no row of its table went into the model "
        "(LambdaML's own latency and bandwidth of S3 did). *Predicted blind*: the predictions were committed before "
        "they were compared. `python -m docs.build` builds this page."
    )


def _truths(plans: Document, rounds: Document) -> Iterator[Truth]:
    for figure, what in UNSEEN_FIGURES.items():
        errors = [row["error"] for row in plans["rows"] if row["figure"] == figure]
        yield Truth(f"plans that a host had not run: {what}", UNSEEN, errors, UNSEEN_COMMAND)
    command = "slslab reproduce gradssharding"
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
    yield Truth(what, "fitted (one rate for all rows)", errors, "slslab reproduce kubeml-times")
    for name in TABLES:
        document = replayed(name)
        for variant in dict.fromkeys(row["variant"] for row in document["rows"]):
            what = f"{document['table']['source']} of {document['paper']['name']}, {variant}"
            yield Truth(what, PREDICTED, _differences(document, variant), f"slslab reproduce {name}")
    document = replayed("table2")
    for variant in dict.fromkeys(row["variant"] for row in document["rows"]):
        what = f"Table 2 of {document['paper']['name']}, {variant}: a function"
        errors = _differences(document, variant, "function_seconds")
        yield Truth(what, "fitted (one speed for all rows)", errors, "slslab reproduce table2 --fidelity replayed")


def _differences(document: Document, variant: str, column: str = "") -> list[float]:
    columns = [each["name"] for each in document["columns"] if each["unit"] in SECONDS and column in ("", each["name"])]
    cells: list[Mapping[str, Any]] = [
        row["cells"][name] for row in document["rows"] if row["variant"] == variant for name in columns
    ]
    return [cell["difference"] for cell in cells if cell["difference"] is not None and cell["modelled"] is not None]
