"""The tables that a reproduction's document is printed as."""

from typing import Any

from slslab.report.page import Cell
from slslab_lab.pages.reproduction import tables


def curve(title: str, x: str, *lines: tuple[str, list[int], list[Any]]) -> dict[str, Any]:
    return {
        "title": title,
        "x": {"title": x, "unit": ""},
        "y": {"title": "test accuracy", "unit": "%"},
        "lines": [{"name": name, "x": xs, "y": ys} for name, xs, ys in lines],
    }


def test_curves_by_epoch_are_columns_and_one_that_ended_has_no_more() -> None:
    long, short = ("long", [1, 2, 3], [10, 12.345, 20.0]), ("short", [1], [11.0])
    pictures = [
        curve("Accuracy, canonical", "epochs", long, short),
        curve("Accuracy, as released", "epochs", long, short),  # the same lines
        curve("Accuracy", "minutes", long),
    ]
    (found,) = tables({"columns": [], "rows": [], "rankings": [], "bills": [], "curves": pictures})
    assert found.caption == "Accuracy, canonical: test accuracy (%)"
    assert found.columns == ("epochs", "long", "short")
    assert found.rows == [("1", "10.00", "11.00"), ("2", "12.35", "–"), ("3", "20.00", "–")]


def test_bills_of_a_variant_stand_together_with_what_has_one_alone() -> None:
    def bill(name: str, variant: str, amount: str) -> dict[str, Any]:
        lines = [{"item": "Requests", "amount": amount, "in_paper": False}]
        return {"name": name, "group": "M", "variant": variant, "lines": lines}

    bills = [bill("A", "canonical", "1"), bill("A", "as released", "2"), bill("B", "canonical", "3")]
    found = list(tables({"columns": [], "rows": [], "rankings": [], "bills": bills, "curves": []}))
    assert [grid.columns for grid in found] == [("modelled", "A", "B"), ("modelled", "A", "B")]
    assert [grid.rows[0] for grid in found] == [
        ("Requests", Cell("≈1.00000"), Cell("≈3.00000")),
        ("Requests", Cell("≈2.00000"), Cell("≈3.00000")),
    ]
    assert ["as released" in grid.caption for grid in found] == [False, True]


def test_orders_and_curves_by_round_come_before_columns() -> None:
    order = {"order": "A ≤ B", "of": "M", "verdict": "holds", "figures": "A 1, B 2"}
    cell: dict[str, Any] = {
        "published": "1",
        "recomputed": [],
        "measured": None,
        "modelled": None,
        "difference": None,
        "verdict": "",
        "reason": "",
    }
    document: dict[str, Any] = {
        "orders": [order],
        "columns": [{"name": "rounds", "title": "Rounds", "unit": "rounds"}],
        "rows": [{"name": "A", "group": "M", "variant": "", "cells": {"rounds": cell}}],
        "rankings": [],
        "bills": [],
        "curves": [curve("M", "rounds of communication", ("A", [*range(31)], [*range(31)]), ("B", [0, 13], [1, 2]))],
    }
    orders, by_round, column = tables(document)
    assert (orders.columns, orders.rows) == (tuple(order), [("A ≤ B", "M", Cell("holds", mood="good"), "A 1, B 2")])
    assert column.caption == "Rounds (rounds)"
    # Of more than twelve places the ends of lines, and 0, 1, 2, 5, 10 and so on.
    assert [row[0] for row in by_round.rows] == ["0", "1", "2", "5", "10", "13", "20", "30"]
    assert by_round.rows[5] == ("13", "13.00", "2.00")


def test_a_loss_has_four_digits_and_one_that_is_not_finite_none() -> None:
    picture = {**curve("M", "epochs", ("A", [1, 2], [0.12345, None])), "y": {"title": "loss", "unit": ""}}
    (found,) = tables({"columns": [], "rows": [], "rankings": [], "bills": [], "curves": [picture]})
    assert (found.caption, found.rows) == ("M", [("1", "0.1235"), ("2", "–")])
