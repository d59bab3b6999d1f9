"""The tables that a reproduction's document is printed as."""

from typing import Any

from slslab.report.page import Cell
from slslab_lab.pages.reproduction import tables


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


def test_orders_come_before_columns() -> None:
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
        "curves": [],
    }
    orders, column = tables(document)
    assert (orders.columns, orders.rows) == (tuple(order), [("A ≤ B", "M", Cell("holds", mood="good"), "A 1, B 2")])
    assert column.caption == "Rounds (rounds)"
