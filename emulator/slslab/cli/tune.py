"""`slslab tune`: which memory size a deployed function should have."""

import json
from pathlib import Path
from typing import Any

import click

from slslab.cli.show import kind_option
from slslab.cli.terminal import Bar, json_option, print_document
from slslab.errors import RequestError
from slslab_workers.plan import Plan

GOALS = ("cheapest", "fastest", "balanced")


@click.command()
@click.argument("function")
@click.option(
    "--payload",
    "payloads",
    multiple=True,
    default=("{}",),
    metavar="[WEIGHT:]JSON",
    help="An event for it, as JSON or @FILE, by default {}. Repeat it for several, each with its weight: 3:@big.json.",
)
@click.option(
    "--memory", metavar="LIST", help="Memory sizes, MB.  [default: 128,256,512,1024,1769,3008 and the function's own]"
)
@click.option(
    "--deadline",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="The longest that an invocation may take on Lambda, s.",
)
@click.option("--goal", type=click.Choice(GOALS), default=GOALS[0], show_default=True, help="Which size is best.")
@click.option("--apply", is_flag=True, help="Give the function the best size.")
@kind_option
@click.option("--prices", default=Plan.prices, show_default=True, metavar="BOOK", help="A price book, or a TOML file.")
@click.option("--html", "page", type=click.Path(path_type=Path), metavar="FILE", help="Write a page with a picture.")
@json_option
def tune(
    function: str,
    payloads: tuple[str, ...],
    memory: str | None,
    deadline: float | None,
    goal: str,
    apply: bool,
    kind: str | None,
    prices: str,
    page: Path | None,
    json_: bool,
) -> None:
    """Which memory size should a function have? Finds out for one that is deployed in `slslab up`.

    \b
    slslab tune hello
    slslab tune hello --payload 3:@small.json --payload 1:@big.json --deadline 0.5
    slslab tune hello --goal balanced --apply

    It invokes the function's own size and the smallest that fits, models the others from CPU time and waits, and
    invokes sizes that may still be best. The answer is what each size takes and costs on Lambda, as 80 % ranges, and
    which sizes can't be told apart. The function keeps its size unless --apply is given.

    Exit code 1 if no size is done within the deadline or the function's timeout.
    """
    from slslab.report.html.page import make_page, write_page
    from slslab.report.tuning import tuning, tuning_page
    from slslab.run.bill import load_book
    from slslab.tune.document import tune_and_describe
    from slslab.tune.estimates import Estimator
    from slslab.tune.tuning import SIZES, Sizes, choose_sizes, weighted
    from slslab.up.tuning import Ledger, Service

    events, book = weighted([_read(text) for text in payloads]), load_book(prices)
    service = Service()
    tuned = service.function(function)
    estimator = Estimator(
        service.predictor(tuned.name, kind), book, [event.weight for event in events], service.about["cores"]
    )
    sizes = choose_sizes(memory, SIZES, tuned.memory_mb, service.memory_limit)
    ledger = Ledger(service.directory.path, tuned, events)
    before = {size: measured for size, measured in ledger.measured().items() if size in sizes}
    known = Sizes(estimator, tuned.memory_mb, tuned.timeout_s, sizes, before)
    with Bar() as bar:

        def progress(size: int, done: int, most: int) -> None:
            bar.report(f"{size:,} MB", done, most)

        document = tune_and_describe(tuned, known, events, deadline, goal, progress, ledger.add)
    if page is not None:
        write_page(page, make_page(tuning_page(document)))
    if apply and document["memory"] is not None:
        tuned.renew(document["memory"])
    print_document({**document, "applied": apply and document["memory"] is not None}, lambda: tuning(document), json_)
    if document["memory"] is None:
        raise click.exceptions.Exit(1)


def _read(text: str) -> tuple[float, Any]:
    """Return a payload's weight and its event; RequestError if it isn't JSON, or can't be read."""
    before, colon, after = text.partition(":")
    try:
        return (float(before), _event(after)) if colon else (1.0, _event(text))
    except ValueError:  # a colon of the JSON
        return 1.0, _event(text)


def _event(text: str) -> Any:
    try:
        return json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
    except OSError as error:
        raise RequestError(
            f"{text[1:]} can't be read: {error.strerror}.", "name a file with the event: @FILE."
        ) from error
    except ValueError as error:
        raise RequestError(
            f"--payload {text[:60]} is not JSON: {error}.",
            "put JSON in quotes, such as '{\"key\": 1}', or name a file: @FILE.",
        ) from error
