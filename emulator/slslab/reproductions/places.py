"""Orders of rows in which some are equal, or of which it is only known what they are more than: rankings of accuracies
and of times, some of whose rows never came as far."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slslab.reproductions.documents import Ranking

# Figures this close (relative) are equal: sums of the same numbers in another order.
EQUAL = 1e-9
UNDECIDED = "cannot be told"


@dataclass(frozen=True)
class Standing:
    """A row's figure; without one, what it is `more_than` if that is known, and why it has none."""

    value: float | None
    more_than: float | None = None
    missing: str = ""


def rank_rows(
    title: str,
    unit: str,
    published: Mapping[str, float],
    found: Mapping[str, Mapping[str, Standing]],
    compare: str,
    *,
    highest_first: bool = False,
    reasons: Sequence[str] = (),
) -> dict[str, Any]:
    """A ranking for a document: the published order and, by basis, that of the rows that have a figure.

    The verdict is `as published` only if every pair of rows is in its published order; a row without a figure is behind
    all that it is known to be more than. `compare` says of a swapped pair what is so, such as `{first} takes {ratio}
    times as long as {second}`; `reasons` are added."""
    sign = -1 if highest_first else 1
    order = sorted(published.items(), key=lambda one: sign * one[1])
    names = [name for name, _ in order]
    orders: dict[str, Sequence[tuple[str, float]]] = {"published": order}
    sentences, verdicts = [], set()
    for basis, standings in found.items():
        values = {name: one.value for name in names if (one := standings.get(name)) and one.value is not None}
        # Equal ones keep the published order.
        orders[basis] = sorted(values.items(), key=lambda one: sign * one[1])
        swapped, equal = [], []
        for first, second in itertools.combinations(names, 2):
            verdict = _pair(standings.get(first), standings.get(second), sign)
            verdicts.add(verdict)
            if verdict == "equal":
                equal.append((first, second))
            elif verdict == "swapped":
                swapped.append(_sentence(compare, first, second, standings))
        alike = _groups(equal)
        missing = [f"{name}: {one.missing}" for name in names if (one := standings.get(name)) and one.missing]
        told = [*swapped, *(f"{', '.join(group)} are equal" for group in alike), *missing]
        if told:
            sentences.append(f"{basis}: {'; '.join(told)}")
    document = Ranking(title, unit, orders, ". ".join([*sentences, *reasons])).as_document()
    if verdicts & {"swapped", "equal"}:
        verdict = "differs"
    elif "unknown" in verdicts or not found:
        verdict = UNDECIDED
    else:
        verdict = "as published"
    return {**document, "verdict": verdict}


def _pair(first: Standing | None, second: Standing | None, sign: int) -> str:
    """How two rows stand that were published in this order: so, swapped, equal, or unknown."""
    if first is None or second is None or (first.value is None and second.value is None):
        return "unknown"
    if first.value is None:
        behind = first.more_than is not None and second.value is not None and first.more_than >= second.value
        return "swapped" if behind and sign > 0 else "unknown"
    if second.value is None:
        behind = second.more_than is not None and second.more_than >= first.value
        return "so" if behind and sign > 0 else "unknown"
    if abs(first.value - second.value) <= EQUAL * max(abs(first.value), abs(second.value)):
        return "equal"
    return "so" if sign * first.value < sign * second.value else "swapped"


def _sentence(compare: str, first: str, second: str, standings: Mapping[str, Standing]) -> str:
    """What is so of a swapped pair."""
    one, other = standings[first], standings[second]
    least = one.value if one.value is not None else one.more_than
    assert least is not None
    assert other.value is not None
    ratio = least / other.value if other.value else float("inf")
    more = "" if one.value is not None else "more than "
    return compare.format(first=first, second=second, ratio=f"{more}{ratio:.2f}")


def _groups(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, ...]]:
    """Rows that are equal to each other, in their published order."""
    groups: list[list[str]] = []
    for first, second in pairs:
        own = next((group for group in groups if first in group or second in group), None)
        if own is None:
            groups.append([first, second])
        else:
            own += [name for name in (first, second) if name not in own]
    return [tuple(group) for group in groups]
