"""Tuning a function of an emulator in this process, for tests."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slslab.predict.invocation import Request
from slslab.report.tuning import answers
from slslab.run.bill import DEFAULT_BOOK, load_book
from slslab.tune.document import tune_and_describe
from slslab.tune.estimates import Estimator
from slslab.tune.function import TunedFunction
from slslab.tune.tuning import SIZES, Sizes, choose_sizes, weighted

if TYPE_CHECKING:
    from slslab.lambda_.emulator import Emulator


def tune_in_test(
    emulator: "Emulator",
    client: Any,
    requests: Callable[[], Mapping[str, Sequence[Request]]],
    name: str,
    event: Any = None,
    *,
    events: Sequence[tuple[float, Any]] = (),
    sizes: Sequence[int] = (),
    kind: str | None = None,
    prices: str = DEFAULT_BOOK,
    **asked: Any,
) -> dict[str, Any]:
    """Tune a function; `asked` are `deadline_s` and `goal`. Return the document.

    `events` are weights and events, instead of one event; `sizes` are memory sizes, MB, by default the usual ones.
    `requests` returns each function's requests to S3 and SQS until now.
    """
    with emulator.recording() as records:
        function = TunedFunction(client, name, lambda: ([record.as_document() for record in records], requests()))
        payloads = weighted(events or [(1.0, event)])
        weights = [payload.weight for payload in payloads]
        cores = int(emulator.host()["cores"])
        estimator = Estimator(emulator.predictor(kind), load_book(prices), weights, cores)
        text = ",".join(map(str, sizes)) or None
        chosen = choose_sizes(text, SIZES, function.memory_mb, emulator.limits.memory_mb)
        known = Sizes(estimator, function.memory_mb, function.timeout_s, chosen)
        return tune_and_describe(function, known, payloads, **asked)


def find_fault(document: Mapping[str, Any], at_most: float) -> str | None:
    """Return why a function's memory size is wrong, None if it may cost at most this share more than the best."""
    own = next(size for size in document["sizes"] if size["memory_mb"] == document["memory_mb"])
    if "excess" in own and own["excess"]["low"] <= 1 + at_most:
        return None
    return "\n".join(answers(document))
