"""What must fit together in a paper's file: columns, names, formulas, references and discrepancies."""

from collections import Counter
from collections.abc import Iterator

from slslab_lab.papers.paper import Paper, Table


def problems(paper: Paper) -> Iterator[str]:
    """Yield what is wrong, each with its entry."""
    for name, table in paper.tables.items():
        yield from (f"{name}: {problem}" for problem in (*_columns(table), *_names(paper, name, table)))
    for number, discrepancy in enumerate(paper.discrepancies):
        for place, working in enumerate(discrepancy.workings):
            where = f"discrepancies.{number}.workings.{place}"
            if (working.expression is None) != bool(working.column and working.way):
                yield f"{where} needs either an expression, or a column and a way"
                continue
            if bool(working.table) != bool(working.row):
                yield f"{where}: a row needs its table"
            try:
                expression, values = paper.operands(working)
                expression.evaluate(values)
            except (AssertionError, KeyError, ZeroDivisionError) as error:
                yield f"{where}: {error!r}"
    used = {way for table in paper.tables.values() for ways in table.formulas.values() for way in ways}
    yield from (f"ways has {way!r}, and no formula has that name" for way in sorted(set(paper.ways) - used))


def _columns(table: Table) -> Iterator[str]:
    named = (
        *((f"row {row.name!r}", column) for row in table.rows for column in row.published),
        *(("formulas", column) for column in table.formulas),
        *(("unexplained", column) for column in table.unexplained),
    )
    yield from (
        f"{where} has {column!r}, which is not a column in units"
        for where, column in named
        if column not in table.units
    )
    for column in table.unexplained.keys() & table.formulas.keys():
        yield f"unexplained has {column!r}, which has formulas"
    for ranking in table.rankings:
        for way in set(ranking.ways) - table.formulas.get(ranking.column, {}).keys():
            yield f"rankings has {ranking.column}.{way}, which is not a formula"


def _names(paper: Paper, name: str, table: Table) -> Iterator[str]:
    rows = Counter((row.name, row.group) for row in table.rows)
    yield from (f"two rows are {row!r} of group {group!r}" for (row, group), count in rows.items() if count > 1)
    for row in table.rows:
        names = Counter([*row.published, *table.inputs_of(row), *table.references_of(row)])
        yield from (f"row {row.name!r} has {each!r} twice" for each, count in names.items() if count > 1)
    try:
        of_rows = [paper.values(name, row).keys() for row in table.rows]
    except KeyError as error:
        yield f"a reference names {error}"
        return
    for column, ways in table.formulas.items():
        for way, formula in ways.items():
            if unknown := set(formula.names).difference(*of_rows):
                yield f"formulas.{column}.{way} names {min(unknown)!r}, which is neither a column nor an input"
            elif not any(of_row >= set(formula.names) for of_row in of_rows):
                yield f"formulas.{column}.{way} holds for no row"
