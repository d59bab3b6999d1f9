"""Published figures calculated anew from published inputs, in every way that their paper's data names, and what is
then to be said of the printed digits.

Nothing is measured or modelled here: arithmetic alone, and exact."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from itertools import product
from math import floor

from slslab.expressions import DIGITS, Expression, as_decimal, as_text
from slslab.papers import Paper, Row, Working

AGREES, ROUNDING, DIFFERS, CANNOT = "agrees", "rounding", "differs", "cannot"


@dataclass(frozen=True)
class Recomputed:
    """A column of a row in one way, `expression` as written and `filled` with its numbers; both empty if there is none.

    `value` is exact, or has 50 significant digits if it never ends. `verdict` compares it with what is published, and
    is empty if nothing is:

    - agrees: it rounds to the printed digits, half up or half to even
    - rounding: it is less than one unit of the last printed digit away; or another way gives the printed digits, and
      this value is among those that the other one's rounded operands may have stood for
    - differs: neither
    - cannot: there is no value, and `reason` says why

    `difference` is published ÷ value − 1.
    """

    column: str
    way: str
    expression: str
    filled: str
    value: Decimal | None
    published: Decimal | None
    verdict: str
    reason: str
    difference: Decimal | None = None


@dataclass(frozen=True)
class Worked:
    """A line of arithmetic with its numbers put in; `shown` is its value, rounded for reading."""

    what: str
    expression: str
    filled: str
    value: Decimal
    shown: str
    unit: str
    printed: Decimal | None


def recompute(paper: Paper, table: str) -> tuple[tuple[Recomputed, ...], ...]:
    """Of each row of the table, in its order: every column that is published or can be calculated, in every way that
    holds for the row. PaperError for a table that is not there."""
    return tuple(_recompute_row(paper, table, row) for row in paper.table(table).rows)


def rank(paper: Paper, table: str, column: str, ways: Sequence[str] = ()) -> dict[str, tuple[tuple[str, Decimal], ...]]:
    """The rows of each group with a column's values, the least first: published ones, or those of the first of `ways`
    that a row has. Rows without a value are left out; equal ones keep the table's order."""
    ranked: dict[str, list[tuple[str, Decimal]]] = {}
    for row, found in zip(paper.table(table).rows, recompute(paper, table), strict=True):
        values = {one.way: one.value for one in found if one.column == column}
        able = [row.published.get(column)] if not ways else [values.get(way) for way in ways]
        value = next((one for one in able if one is not None), None)
        if value is not None:
            ranked.setdefault(row.group, []).append((row.name, value))
    return {group: tuple(sorted(rows, key=lambda row: row[1])) for group, rows in ranked.items()}


def work_out(paper: Paper, working: Working) -> Worked:
    """The value of a line of arithmetic of this paper."""
    expression, operands = paper.operands(working)
    value = as_decimal(expression.evaluate(operands))
    printed, unit = working.printed, working.unit
    if working.column:
        printed = paper.row(working.table, working.row, working.group).published.get(working.column)
        unit = unit or paper.table(working.table).units[working.column]
    return Worked(
        working.what,
        expression.text,
        expression.fill(operands),
        value,
        as_text(round_off(value, working.places)),
        unit,
        printed,
    )


def round_off(value: Decimal, places: int) -> Decimal:
    """The value with so many digits after the point, half up."""
    with localcontext() as context:
        context.prec = 2 * DIGITS
        return value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)


def percent(difference: Decimal) -> str:
    """A share as per cent with its sign: one digit after the point, two below 1 %."""
    share = 100 * difference
    places = 1 if abs(share) >= 1 else 2
    return f"{round_off(share, places):+f} %"


def _recompute_row(paper: Paper, table: str, row: Row) -> tuple[Recomputed, ...]:
    here = paper.table(table)
    values = paper.values(table, row)
    # Printed results of other columns: what may have been rounded before it was calculated with.
    rounded = {column: _unit(row.published[column]) for column in here.formulas if column in row.published}
    cells: list[Recomputed] = []
    for column in here.units:
        ways = here.formulas.get(column, {})
        held = {way: one for way, one in ways.items() if values.keys() >= set(one.names)}
        published = row.published.get(column)
        if held:
            cells += _compare(column, held, values, published, rounded)
        elif published is not None:
            lacking = dict.fromkeys(name for one in ways.values() for name in one.names if name not in values)
            reason = here.unexplained.get(column, f"{here.source} gives no way to calculate it")
            reason = f"the row has no {' and no '.join(lacking)}" if lacking else reason
            cells.append(Recomputed(column, "", "", "", None, published, CANNOT, reason))
    return tuple(cells)


def _compare(
    column: str,
    ways: Mapping[str, Expression],
    values: Mapping[str, Decimal],
    published: Decimal | None,
    rounded: Mapping[str, Fraction],
) -> list[Recomputed]:
    exact: dict[str, Fraction | None] = {way: _evaluate(one, values) for way, one in ways.items()}
    same = [way for way, value in exact.items() if value is not None and _rounds_to(value, published)]
    found = []
    for way, one in ways.items():
        value = exact[way]
        difference = as_decimal(Fraction(published) / value - 1) if published is not None and value else None
        if value is None:
            verdict, reason = CANNOT, "it divides by zero"
        elif published is None:
            verdict, reason = "", ""
        elif way in same:
            verdict, reason = AGREES, ""
        else:
            by = [other for other in same if _stands_for(ways[other], values, rounded, value)]
            verdict, reason = _difference(value, published, by, difference)
        number = None if value is None else as_decimal(value)
        found.append(
            Recomputed(column, way, one.text, one.fill(values), number, published, verdict, reason, difference)
        )
    return found


def _difference(value: Fraction, published: Decimal, by: Sequence[str], difference: Decimal | None) -> tuple[str, str]:
    """Verdict and reason for a value that does not round to what was printed."""
    if abs(value - Fraction(published)) < _unit(published):
        cut = abs(Fraction(published)) < abs(value)
        return ROUNDING, "cut off after the last printed digit" if cut else "rounded up to the last printed digit"
    if by:
        return ROUNDING, f"{by[0]} gives the printed digits, and rounding on the way explains the difference"
    return DIFFERS, "" if difference is None else f"what is printed is {_amount(difference)}"


def _amount(difference: Decimal) -> str:
    sign, amount = percent(difference)[0], percent(difference)[1:]
    return f"{amount} {'less' if sign == '-' else 'more'}"


def _evaluate(expression: Expression, values: Mapping[str, Decimal] | Mapping[str, Fraction]) -> Fraction | None:
    try:
        return expression.evaluate(values)
    except ZeroDivisionError:
        return None


def _unit(published: Decimal) -> Fraction:
    """One unit of the last printed digit."""
    exponent = published.as_tuple().exponent
    assert isinstance(exponent, int)
    return Fraction(10) ** exponent


def _rounds_to(value: Fraction, published: Decimal | None) -> bool:
    if published is None:
        return False
    unit = _unit(published)
    steps = abs(value) / unit
    sign = -1 if value < 0 else 1
    return Fraction(published) / unit in (sign * floor(steps + Fraction(1, 2)), sign * round(steps))


def _stands_for(
    expression: Expression, values: Mapping[str, Decimal], rounded: Mapping[str, Fraction], value: Fraction
) -> bool:
    """Whether the expression may have this value if its printed results are up to one unit off, in either direction."""
    exact = {name: Fraction(values[name]) for name in expression.names}
    names = [name for name in expression.names if name in rounded]
    ends = product(*((exact[name] - rounded[name], exact[name] + rounded[name]) for name in names))
    reached = [_evaluate(expression, {**exact, **dict(zip(names, end, strict=True))}) for end in ends]
    able = [one for one in reached if one is not None]
    return len(able) == len(reached) and min(able) <= value <= max(able)
