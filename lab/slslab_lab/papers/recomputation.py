"""Recompute published figures from published inputs, in every way that the paper's data defines, and compare them with
the printed digits.

This is exact arithmetic, without measurements or models.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from itertools import product
from math import floor

from slslab.report.formats import percent
from slslab_lab.papers.expressions import DIGITS, Expression, as_decimal
from slslab_lab.papers.paper import Paper, Row

AGREES, ROUNDING, DIFFERS, CANNOT = "agrees", "rounding", "differs", "cannot"


@dataclass(frozen=True)
class Recomputed:
    """A row's column, recomputed in one way: `expression` as written and `filled` with numbers; both are empty without
    a formula.

    `value` is exact, or has 50 significant digits if its decimal doesn't end. `verdict` compares it with the published
    value, and is empty without one:

    - agrees: it rounds to the printed digits, half up or half to even
    - rounding: it is less than one unit of the last printed digit away; or another way gives the printed digits, and
      rounding that way's operands could also give this value
    - differs: neither
    - cannot: it has no value, and `reason` says why
    """

    column: str
    way: str
    expression: str
    filled: str
    value: Decimal | None
    published: Decimal | None
    verdict: str
    reason: str


def recompute(paper: Paper, table: str) -> tuple[tuple[Recomputed, ...], ...]:
    """Recompute each row of the table in order: every published or computable column, in every way that applies to the
    row. RequestError for a table that doesn't exist."""
    return tuple(recompute_row(paper, table, row) for row in paper.table(table).rows)


def rank(paper: Paper, table: str, column: str, ways: Sequence[str] = ()) -> dict[str, tuple[tuple[str, Decimal], ...]]:
    """Return the rows of each group with a column's values, smallest first: the published values, or those from the
    first of `ways` that a row has. Skip rows without a value; equal rows keep the table's order."""
    ranked: dict[str, list[tuple[str, Decimal]]] = {}
    for row, cells in zip(paper.table(table).rows, recompute(paper, table), strict=True):
        by_way = {cell.way: cell.value for cell in cells if cell.column == column}
        candidates = [by_way.get(way) for way in ways] if ways else [row.published.get(column)]
        value = next((candidate for candidate in candidates if candidate is not None), None)
        if value is not None:
            ranked.setdefault(row.group, []).append((row.name, value))
    return {group: tuple(sorted(rows, key=lambda row: row[1])) for group, rows in ranked.items()}


def round_off(value: Decimal, places: int) -> Decimal:
    """Return the value with `places` digits after the point, rounded half up."""
    with localcontext() as context:
        context.prec = max(2 * DIGITS, value.adjusted() + places + 2)
        return value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)


def recompute_row(paper: Paper, table: str, row: Row) -> tuple[Recomputed, ...]:
    """Recompute one row of the table, as `recompute` does."""
    columns = paper.table(table)
    values = paper.values(table, row)
    # Printed results in other columns, which may have been rounded before they were used.
    rounded = {column: _unit(row.published[column]) for column in columns.formulas if column in row.published}
    cells: list[Recomputed] = []
    for column in columns.units:
        ways = columns.formulas.get(column, {})
        applicable = {way: formula for way, formula in ways.items() if values.keys() >= set(formula.names)}
        published = row.published.get(column)
        if applicable:
            cells += _compare(column, applicable, values, published, rounded)
        elif published is not None:
            missing = dict.fromkeys(name for formula in ways.values() for name in formula.names if name not in values)
            reason = columns.unexplained.get(column, f"{columns.source} doesn't say how to calculate it")
            reason = f"the row lacks {' and '.join(missing)}" if missing else reason
            cells.append(Recomputed(column, "", "", "", None, published, CANNOT, reason))
    return tuple(cells)


def _compare(
    column: str,
    ways: Mapping[str, Expression],
    values: Mapping[str, Decimal],
    published: Decimal | None,
    rounded: Mapping[str, Fraction],
) -> Iterator[Recomputed]:
    exact: dict[str, Fraction | None] = {way: _evaluate(formula, values) for way, formula in ways.items()}
    same = [way for way, value in exact.items() if value is not None and _rounds_to(value, published)]
    for way, formula in ways.items():
        value = exact[way]
        if value is None:
            verdict, reason = CANNOT, "it divides by zero"
        elif published is None:
            verdict, reason = "", ""
        elif way in same:
            verdict, reason = AGREES, ""
        else:
            by = [other for other in same if _stands_for(ways[other], values, rounded, value)]
            verdict, reason = _difference(value, published, by)
        number = None if value is None else as_decimal(value)
        written = (formula.text, formula.fill(values))
        yield Recomputed(column, way, *written, number, published, verdict, reason)


def _difference(value: Fraction, published: Decimal, by: Sequence[str]) -> tuple[str, str]:
    if abs(value - Fraction(published)) < _unit(published):
        cut = abs(Fraction(published)) < abs(value)
        return ROUNDING, "cut off after the last printed digit" if cut else "rounded up to the last printed digit"
    if by:
        return ROUNDING, f"{by[0]} gives the printed digits, and rounding on the way explains the difference"
    if not value:
        return DIFFERS, ""
    difference = Fraction(published) / value - 1
    share = percent(float(abs(difference)), ".1" if abs(difference) >= Fraction(1, 100) else ".2")
    return DIFFERS, f"the printed value is {share} {'smaller' if difference < 0 else 'larger'}"


def _evaluate(expression: Expression, values: Mapping[str, Decimal]) -> Fraction | None:
    try:
        return expression.evaluate(values)
    except ZeroDivisionError:
        return None


def _unit(published: Decimal) -> Fraction:
    return Fraction(10) ** int(published.as_tuple().exponent)


def _rounds_to(value: Fraction, published: Decimal | None) -> bool:
    if published is None:
        return False
    unit, sign = _unit(published), -1 if value < 0 else 1
    steps = abs(value) / unit
    return Fraction(published) / unit in (sign * floor(steps + Fraction(1, 2)), sign * round(steps))


def _stands_for(
    expression: Expression, values: Mapping[str, Decimal], rounded: Mapping[str, Fraction], value: Fraction
) -> bool:
    """Return whether the expression may have this value if each printed operand is off by at most one unit."""
    exact = {name: Fraction(values[name]) for name in expression.names}
    names = [name for name in expression.names if name in rounded]
    ends = product(*((exact[name] - rounded[name], exact[name] + rounded[name]) for name in names))
    try:
        reached = [expression.evaluate({**exact, **dict(zip(names, end, strict=True))}) for end in ends]
    except ZeroDivisionError:
        return False
    return min(reached) <= value <= max(reached)
