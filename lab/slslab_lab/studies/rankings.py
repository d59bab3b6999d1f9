"""Rankings of rows by a figure, as published and as found here; and orders that figures show without numbers.

Rows may be equal. If a row didn't reach a target, only a lower bound may be known."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from slslab.run.metrics import grouped

# Figures this close (relative) count as equal: they are sums of the same numbers in another order.
EQUAL = 1e-9
UNDECIDED = "cannot be told"
HOLDS, FAILS = "holds", "does not hold"
Member = TypeVar("Member")


@dataclass(frozen=True)
class Standing:
    """A row's figure; or the lower bound `more_than`, if known, and why it has no figure."""

    value: float | None
    more_than: float | None = None
    missing: str = ""


def by_variant(members: Iterable[tuple[str, str, Member]]) -> dict[str, dict[str, Member]]:
    """Return each variant's members by name, from names, variants and members; a name with one variant is in all."""
    every = list(members)
    names = Counter(name for name, _, _ in every)
    return {
        variant: {name: member for name, of, member in every if of == variant or names[name] == 1}
        for variant in dict.fromkeys(of for _, of, _ in every)
    }


def rank_rows(
    title: str,
    unit: str,
    published: Mapping[str, float],
    standings_by_basis: Mapping[str, Mapping[str, Standing]],
    compare: str,
    *,
    highest_first: bool = False,
    reasons: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a ranking for a document: the published order and, by basis, the order of the rows with a figure.

    The verdict is `as published` only if every pair of rows is in its published order. A row without a figure comes
    after all rows with figures up to its lower bound. `compare` describes a swapped pair, such as `{first} takes
    {ratio} times as long as {second}`; `reasons` are added."""
    sign = -1 if highest_first else 1

    def ordered(figures: Mapping[str, float]) -> list[list[str | float]]:
        return [[name, value] for name, value in sorted(figures.items(), key=lambda item: sign * item[1])]

    orders = {"published": ordered(published)}
    names = [str(name) for name, _ in orders["published"]]
    sentences: list[str] = []
    verdicts: set[str] = set()
    for basis, known in standings_by_basis.items():
        standings = {name: known.get(name, Standing(None)) for name in names}
        # Equal rows keep the published order.
        orders[basis] = ordered({name: each.value for name, each in standings.items() if each.value is not None})
        pairs = grouped(
            (compare_pair(standings[first], standings[second], sign), (first, second))
            for first, second in itertools.combinations(names, 2)
        )
        verdicts |= pairs.keys()
        differing = [_sentence(compare, *pair, standings) for pair in pairs.get("swapped", ())]
        differing += [f"{', '.join(group)} are equal" for group in _groups(pairs.get("equal", ()))]
        differing += [f"{name}: {each.missing}" for name, each in standings.items() if each.missing]
        if differing:
            sentences.append(f"{basis}: {'; '.join(differing)}")
    verdict = "as published"
    if verdicts & {"swapped", "equal"}:
        verdict = "differs"
    elif "unknown" in verdicts or not standings_by_basis:
        verdict = UNDECIDED
    return {"title": title, "unit": unit, **orders, "verdict": verdict, "reason": ". ".join([*sentences, *reasons])}


def compare_pair(first: Standing, second: Standing, sign: int = 1) -> str:
    """Return how two rows stand that were published in this order: same, swapped, equal, or unknown."""
    if first.value is None or second.value is None:
        bounded, other, verdict = (first, second, "swapped") if first.value is None else (second, first, "same")
        if sign < 0 or bounded.more_than is None or other.value is None:
            return "unknown"
        return verdict if bounded.more_than >= other.value else "unknown"
    if abs(first.value - second.value) <= EQUAL * max(abs(first.value), abs(second.value)):
        return "equal"
    return "same" if sign * first.value < sign * second.value else "swapped"


def _sentence(compare: str, first: str, second: str, standings: Mapping[str, Standing]) -> str:
    figure, divisor = standings[first], standings[second].value
    least = figure.more_than if figure.value is None else figure.value
    assert least is not None
    assert divisor is not None
    ratio = least / divisor if divisor else float("inf")
    bound = "more than " if figure.value is None else ""
    return compare.format(first=first, second=second, ratio=f"{bound}{ratio:.2f}")


def _groups(pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
    groups: list[list[str]] = []
    for pair in pairs:
        group = next((group for group in groups if set(pair) & set(group)), None)
        if group is None:
            groups.append(list(pair))
        else:
            group += [name for name in pair if name not in group]
    return groups


@dataclass(frozen=True)
class Order:
    """An expected order, `of` what, its verdict and the figures behind it."""

    order: str
    of: str
    verdict: str
    figures: str


def judge(each: Iterable[bool | None]) -> str:
    """Return the verdict on an order that must hold each time; None means unknown."""
    found = list(each)
    if False in found:
        return FAILS
    return HOLDS if found and None not in found else UNDECIDED
