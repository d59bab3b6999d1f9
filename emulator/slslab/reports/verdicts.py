"""Which of several runs is fastest, cheapest and most accurate, and by how much."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from slslab.reports.formats import significant
from slslab.reports.summaries import Document, plus_minus, region, replayed

# Names and their figure; equal figures share a place.
Place = tuple[str, float]


def basis_of(documents: Sequence[Document]) -> str:
    """Return on what the verdicts of these runs stand."""
    found = [one for one in map(replayed, documents) if one is not None]
    if not found:
        return "As this host measured and priced it, because no run is modelled on AWS"
    stated = [one["error"]["seconds"] for one in found if one["error"]]
    return (
        f"On AWS ({region(found[0])}, modelled{plus_minus(max(stated, key=lambda each: each['mean'], default=None))})"
    )


def verdicts(documents: Sequence[Document], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield questions and their answers, for those that the runs have figures for.

    Time and cost are those on AWS; they are this host's where no run is modelled.
    """
    found = [replayed(document) for document in documents]
    modelled = any(one is not None for one in found)
    seconds: list[float | None] = []
    costs: list[float | None] = []
    for document, one in zip(documents, found, strict=True):
        used = one if modelled else document
        seconds.append(None if used is None else used["seconds"] if modelled else used["seconds"]["measured"])
        costs.append(None if used is None else float(used["cost"]["total"]))
    errors = [one["error"] for one in found if one is not None and one["error"]]
    if places := _places(seconds, names, _three):
        error = max((each["seconds"]["mean"] for each in errors), default=0.0)
        yield "Fastest", _least(places, "{} s", "takes", "as long", error)
    if places := _places(costs, names, _three):
        error = max((each["billed_seconds"]["mean"] for each in errors), default=0.0)
        yield "Cheapest", _least(places, "${}", "costs", "as much", error)
    accuracies = [document["accuracy"][-1] if document.get("accuracy") else None for document in documents]
    if places := _places(accuracies, names, lambda value: f"{value:.1%}"):
        yield "Most accurate", "; ".join(f"{name}, {value:.1%}" for name, value in reversed(places))


def _places(values: Sequence[float | None], names: Sequence[str], shown: Callable[[float], str]) -> list[Place]:
    """Return the runs from the least value to the greatest; those whose values are shown alike share a place."""
    known = sorted((value, name) for value, name in zip(values, names, strict=True) if value is not None)
    groups = [list(group) for _, group in groupby(known, lambda each: shown(each[0]))]
    return [(listed([name for _, name in group]), group[0][0]) for group in groups]


def _least(places: Sequence[Place], unit: str, verb: str, measure: str, error: float) -> str:
    """Return the first place, and how far behind it the next and the last are."""
    (best, least), *others = places
    answer = f"{best}, {unit.format(_three(least))}"
    if not others or not least:
        return answer
    (after, value), (last, most) = others[0], others[-1]
    ratio = value / least
    answer += f"; {after} {verb} {significant(ratio, 2 if ratio >= 1.1 else 3)} times {measure}"
    if value < least * (1 + error):
        answer += f" (± {100 * error:.0f} % does not tell them apart)"
    return answer if after == last else f"{answer}, {last} {significant(most / least, 2)} times"


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence has them: A, B and C."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def _three(value: float) -> str:
    return significant(value, 3)
