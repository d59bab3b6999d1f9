"""Which row is cheapest: a model's rows ranked as published, recomputed, modelled, and with the whole modelled bill."""

from collections.abc import Iterator, Mapping, Sequence

from slslab.papers import Paper
from slslab.recomputing import rank
from slslab.reproductions.bills import BillLine
from slslab.reproductions.documents import Ranking, ReproducedRow, ranked


def rank_costs(
    paper: Paper,
    table: str,
    column: str,
    rows: Sequence[ReproducedRow],
    bills: Sequence[Sequence[BillLine]],
) -> Iterator[Ranking]:
    """One ranking for each group of rows. A row without variants of its own (instances) is in the order of each."""
    ways = next(one.ways for one in paper.table(table).rankings if one.column == column)
    published, recomputed = rank(paper, table, column), rank(paper, table, column, ways)
    for group in dict.fromkeys(row.group for row in rows):
        own = [(row, lines) for row, lines in zip(rows, bills, strict=True) if row.group == group]
        orders = {
            "published": [(name, float(value)) for name, value in published[group]],
            "recomputed": [(name, float(value)) for name, value in recomputed[group]],
        }
        for variant in dict.fromkeys(row.variant for row, _ in own):
            costs: dict[str, float] = {}
            whole: dict[str, float] = {}
            for row, lines in _of_variant(own, variant):
                modelled = row.cells[column].modelled
                if modelled is not None:
                    costs[row.name] = modelled.value
                if lines:
                    whole[row.name] = float(sum(line.amount for line in lines))
            for basis, figures in ((f"modelled, {variant}", costs), (f"whole bill, {variant}", whole)):
                # An order of some of the rows would be another one.
                if figures.keys() == dict(orders["published"]).keys():
                    orders[basis] = list(ranked(figures))
        yield Ranking(f"cost of an epoch, {group}", "USD", orders, _swapped(orders))


def _of_variant(
    rows: Sequence[tuple[ReproducedRow, Sequence[BillLine]]], variant: str
) -> Iterator[tuple[ReproducedRow, Sequence[BillLine]]]:
    """The rows of a variant, and those whose architecture has only one."""
    for row, lines in rows:
        alone = sum(other.name == row.name for other, _ in rows) == 1
        if row.variant == variant or alone:
            yield row, lines


def _swapped(orders: Mapping[str, Sequence[tuple[str, float]]]) -> str:
    """Which rows are the other way round than published, and by how much, basis by basis."""
    published = [name for name, _ in orders["published"]]
    sentences = []
    for basis, order in orders.items():
        values, place = dict(order), {name: number for number, (name, _) in enumerate(order)}
        swapped = [
            f"{first} costs {values[first] / values[second]:.2f} times as much as {second}"
            for number, first in enumerate(published)
            for second in published[number + 1 :]
            if place[first] > place[second]
        ]
        if swapped:
            sentences.append(f"{basis}: {', '.join(swapped)}")
    return "; ".join(sentences)
