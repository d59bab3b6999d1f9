"""Answers in sentences: which of several runs is best, and how well a reproduction agrees."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, median

from slslab.errors import counted
from slslab.predict.uncertainty import Uncertainty, ratio_range, read_uncertainty
from slslab.report.formats import listed, percent, significant, span
from slslab.report.page import Document
from slslab.report.summaries import amount, modelled_figures, platform_of, region, replayed
from slslab.run.bill import total_alone
from slslab.run.metrics import grouped

# Verdicts of a recomputation that gives the printed figures.
FOLLOWS = frozenset({"agrees", "rounding"})


@dataclass(frozen=True)
class _Entry:
    """A run's figure, its uncertainty if it is modelled with one, and the figure in words."""

    name: str
    value: float
    uncertainty: Uncertainty | None
    text: str

    def times(self, other: "_Entry") -> tuple[float, float]:
        """Return the 80 % range of this figure ÷ another one; both ends are equal if an uncertainty is unknown."""
        if self.uncertainty is None or other.uncertainty is None:
            return self.value / other.value, self.value / other.value
        return ratio_range((self.value, other.value), (self.uncertainty, other.uncertainty))

    def like(self, other: "_Entry") -> bool:
        low, high = self.times(other)
        return low <= 1 <= high if low < high else self.text == other.text


def with_article(name: str) -> str:
    """Return a run's name for a sentence, with an article before an abbreviation and a noun: the FaaS run."""
    return f"the {name}" if re.fullmatch(r"[A-Z]{2,} [a-z]+", name) else name


def capitalised(sentence: str) -> str:
    """Return a sentence with its first letter in upper case."""
    return sentence[:1].upper() + sentence[1:]


def basis_of(documents: Sequence[Document]) -> str:
    """Return the basis of these runs' verdicts."""
    found = [(platform_of(document), one) for document in documents if (one := replayed(document)) is not None]
    if not found:
        return "As this host measured and priced it, since no run is modelled on AWS"
    unknown = any("uncertainty" not in one for _, one in found)
    places = listed(list(dict.fromkeys(platform or f"AWS ({region(one)})" for platform, one in found)))
    return f"Modelled on {places}{', without ranges: close runs may not differ' * unknown}"


@dataclass(frozen=True)
class _Figures:
    """What runs are compared by: times and bills where they are modelled, or on this host if none is, and accuracies.

    `where` names that place; it is empty for several."""

    where: str
    runs: Mapping[str, Document]
    seconds: Sequence[_Entry]
    costs: Sequence[_Entry]
    accuracies: Sequence[tuple[str, float]]


def _figures(documents: Sequence[Document], names: Sequence[str]) -> _Figures:
    found = [replayed(document) for document in documents]
    modelled = any(one is not None for one in found)
    used = found if modelled else list(documents)
    names = [with_article(name) for name in names]
    pairs = [(name, one) for name, one in zip(names, used, strict=True) if one is not None]
    seconds, costs = [], []
    for name, one in pairs:
        taken, bill = (one["seconds"] if modelled else one["seconds"]["measured"]), float(one["cost"]["total"])
        texts = modelled_figures(one) if modelled else (f"{significant(taken, 3)} s", amount(one["cost"], 3))
        seconds.append(_Entry(name, taken, _uncertainty(one, "seconds"), texts[0]))
        costs.append(_Entry(name, bill, _uncertainty(one, "cost"), texts[1]))
    learnt = [
        (name, document["accuracy"][-1])
        for name, document in zip(names, documents, strict=True)
        if document.get("accuracy")
    ]
    places = {platform_of(document) or "AWS" for document in documents if replayed(document)} or {"this host"}
    where = f" on {places.pop()}" if len(places) == 1 else ""
    return _Figures(where, dict(pairs), seconds, costs, learnt)


def verdicts(documents: Sequence[Document], names: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each question that the runs' figures answer: which is fastest, cheapest, most accurate.

    Time and cost are on AWS or on another platform, or on this host if no run is modelled.
    """
    compared = _figures(documents, names)
    fastest, cheapest = f"fastest{compared.where}", f"cheapest{compared.where}"
    yield capitalised(_least(compared.seconds, fastest, "{} times faster than {}", "takes {} times as long"))
    yield capitalised(_least(compared.costs, cheapest, "{} times cheaper than {}", "costs {} times as much"))
    yield from _cheapest_alone(compared)
    if places := _places(compared.accuracies):
        best, accuracy = places[0]
        yield capitalised(f"{best} {'are' if ' and ' in best else 'is'} most accurate: {percent(accuracy, '.1')}")


def verdicts_in_short(documents: Sequence[Document], names: Sequence[str]) -> Iterator[str]:
    """Yield the same answers without figures: only names, several where the best can't be told apart."""
    compared = _figures(documents, names)
    best = {
        f"fastest{compared.where}": _leading(compared.seconds),
        "cheapest": _leading(compared.costs),
        "most accurate": [name for name, _ in _places(compared.accuracies)[:1]],
    }
    yield ". ".join(f"{capitalised(what)}: {listed(of, 'or')}" for what, of in best.items() if of)
    yield from _cheapest_alone(compared)


def _order(entry: _Entry) -> tuple[float, str]:
    return entry.value, entry.name


def _leading(entries: Sequence[_Entry]) -> list[str]:
    best, *others = sorted(entries, key=_order)
    return [best.name, *(entry.name for entry in others if not best.value or entry.like(best))]


def _cheapest_alone(compared: _Figures) -> Iterator[str]:
    """Yield which run is cheapest with hosts of its own, if that is surely another one."""
    cheapest = min(compared.costs, key=_order).name
    alone = [_entry_alone(name, one) for name, one in compared.runs.items()]
    least = min(alone, key=lambda entry: entry.value)
    own = next(entry for entry in alone if entry.name == cheapest)
    if least.value < own.value and not least.like(own):
        yield (
            "With hosts of its own, a run pays for each hour of its cache that begins: then "
            f"{least.name} is cheapest with {least.text}, and {cheapest} costs {own.text}"
        )


def _entry_alone(name: str, one: Document) -> _Entry:
    value, known = float(total_alone(one["cost"])), _uncertainty(one, "cost")
    error = known and known.of_sum(float(one["cost"]["total"]) / value if value else 1.0)
    return _Entry(name, value, error, f"${significant(value, 3)}")


def _uncertainty(one: Document, figure: str) -> Uncertainty | None:
    return read_uncertainty(one["uncertainty"][figure]) if "uncertainty" in one else None


def agreement(document: Document) -> Iterator[str]:
    """Yield a reproduction's findings, and how well it agrees with published orders, numbers, rankings and
    arithmetic."""
    yield from document.get("findings", ())
    for title, orders in grouped((order["order"], order) for order in document.get("orders", ())).items():
        by_verdict = grouped((order["verdict"], order["of"]) for order in orders)
        yield f"{title}: {'; '.join(f'{verdict} ({listed(of)})' for verdict, of in by_verdict.items())}."
    cells = [cell for row in document["rows"] for cell in row["cells"].values()]
    if compared := [cell for cell in cells if cell.get("verdict")]:
        within = sorted({cell["tolerance"] for cell in compared if "tolerance" in cell})
        limits = f" within {' or '.join(f'{percent(each)}' for each in within)}" if within else ""
        agree = sum(cell["verdict"] == "agrees" for cell in compared)
        sentence = f"{agree} of {len(compared)} published numbers agree with ours{limits}"
        if differences := [abs(cell["difference"]) for cell in compared if cell.get("difference") is not None]:
            sentence += f"; the median difference is {percent(median(differences))}"
        yield f"{sentence}."
    yield from model_errors(document)
    for ranking in document.get("rankings", ()):
        if ranking["verdict"]:
            yield f"Ranking of {ranking['title']}: {ranking['verdict']}."
    ways = [{way["verdict"] for way in cell.get("recomputed") or ()} & {*FOLLOWS, "differs"} for cell in cells]
    if total := sum(map(bool, ways)):
        follow = sum(not each.isdisjoint(FOLLOWS) for each in ways)
        yield f"{follow} of {total} printed numbers follow from the paper's own inputs."


def model_errors(document: Document) -> Iterator[str]:
    """Yield the errors of a reproduction's modelled figures, which have no 80 % range, and what is fitted to them.

    Skip rounds that were predicted blind, since their intervals are such ranges.
    """
    cells = [cell for row in document["rows"] for cell in row["cells"].values() if cell.get("modelled")]
    if cells and "comparison" not in document and not document.get("ranged"):
        where = " in the paper's rows" if "further" in document else ""
        without = f"Modelled figures{where} (≈) have no 80 % range"
        if errors := [abs(cell["difference"]) for cell in cells if cell.get("difference") is not None]:
            sentence = (
                f"{without}: their error is only known from this table. It is {percent(fmean(errors))} on average "
                f"and {percent(max(errors))} at most, over {counted(len(errors), 'figure')}."
            )
        else:
            sentence = f"{without}: the paper has no figures to compare them with."
        intervals = any(cell["modelled"].get("low") is not None for cell in cells)
        parts = [sentence, "Their intervals cover recordings but not this error." * intervals]
        yield " ".join(filter(None, [*parts, "Figures of GPU functions have one." * bool(where)]))
    if fitted := document.get("fitted"):
        yield fitted


def _places(values: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return names and shares from largest to smallest; shares that look equal have one place."""
    ascending = sorted((value, name) for name, value in values)
    groups = [list(group) for _, group in groupby(ascending, lambda each: percent(each[0], ".1"))]
    return [(listed([name for _, name in group]), group[0][0]) for group in reversed(groups)]


def _least(entries: Sequence[_Entry], superlative: str, better: str, worse: str) -> str:
    """Return which run has the lowest figure (or which can't be told apart), and how far the others are behind."""
    best, *others = sorted(entries, key=_order)
    leading = _leading(entries)
    alike = [entry for entry in others if entry.name in leading]
    behind = [entry for entry in others if entry.name not in leading]
    nearest_and_furthest = behind if len(behind) < 3 else (behind[0], behind[-1])
    ranges = [(entry.name, *entry.times(best)) for entry in nearest_and_furthest]
    compared = [
        (name, span(low, high) if low < high else significant(low, 2 if low >= 1.1 else 3))
        for name, low, high in ranges
    ]
    if not alike:
        ahead = " and ".join(better.format(times, name) for name, times in compared)
        return ", ".join(filter(None, (f"{best.name} is {superlative}: {best.text}", ahead)))
    texts = listed([f"{entry.name} ({entry.text})" for entry in alike])
    answer = f"{best.name} ({best.text}) can't be told apart from {texts} as the {superlative}"
    nearest = (f"; {name} {worse.format(times)} as {best.name}" for name, times in compared[:1])
    furthest = (f", and {name} {times} times" for name, times in compared[1:])
    return "".join((answer, *nearest, *furthest))
