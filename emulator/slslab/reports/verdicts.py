"""The sentences that a reader came for: which of several runs is best, and how far a reproduction agrees."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from statistics import median

from slslab.reports.formats import significant
from slslab.reports.summaries import Document, plus_minus, region, replayed
from slslab.trace.metrics import grouped

# Verdicts of a recomputation that gives what was printed.
FOLLOWS = frozenset({"agrees", "rounding"})
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


def agreement(document: Document) -> Iterator[str]:
    """Yield a reproduction's own findings, and how far it agrees with what was published: in its orders, its numbers,
    its rankings and its arithmetic."""
    yield from document.get("findings", ())
    for title, orders in grouped((order["order"], order) for order in document.get("orders", ())).items():
        by_verdict = grouped((order["verdict"], order["of"]) for order in orders)
        yield f"{title}: {'; '.join(f'{verdict} ({listed(of)})' for verdict, of in by_verdict.items())}."
    cells = [cell for row in document["rows"] for cell in row["cells"].values()]
    if compared := [cell for cell in cells if cell.get("verdict")]:
        within = sorted({cell["tolerance"] for cell in compared if "tolerance" in cell})
        limits = f" within {' or '.join(f'{100 * each:.0f} %' for each in within)}" if within else ""
        agree = sum(cell["verdict"] == "agrees" for cell in compared)
        sentence = f"{agree} of {len(compared)} published numbers agree with ours{limits}"
        if differences := [abs(cell["difference"]) for cell in compared if cell.get("difference") is not None]:
            sentence += f"; the median difference is {100 * median(differences):.0f} %"
        yield f"{sentence}."
    for ranking in document.get("rankings", ()):
        if ranking["verdict"]:
            yield f"Ranking of {ranking['title']}: {ranking['verdict']}."
    ways = [{way["verdict"] for way in cell.get("recomputed") or ()} & {*FOLLOWS, "differs"} for cell in cells]
    if total := sum(map(bool, ways)):
        follow = sum(not each.isdisjoint(FOLLOWS) for each in ways)
        yield f"{follow} of {total} printed numbers follow from the paper's own inputs."


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
