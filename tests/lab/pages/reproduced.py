"""A small document of a reproduction, made by hand."""

from typing import Any


def reproduction() -> dict[str, Any]:
    """Two rows in one group, with everything that a reproduction may have."""

    def cell(published: str, verdict: str, measured: float, modelled: float) -> dict[str, Any]:
        return {
            "published": published,
            "recomputed": [
                {
                    "way": "decimal", "expression": "function_seconds * memory_mb / 1000", "value": published,
                    "verdict": verdict, "reason": "the paper rounds",
                },
                {"way": "", "expression": "", "value": None, "verdict": "cannot", "reason": "it was measured"},
            ],
            "measured": {"value": measured, "low": 0.9 * measured, "high": 1.1 * measured, "samples": 8},
            "modelled": {"value": modelled, "low": None, "high": None},
            "difference": modelled / float(published) - 1,
            "verdict": "agrees",
            "reason": "",
        }  # fmt: skip

    def row(name: str, seconds: str, cost: str, verdict: str) -> dict[str, Any]:
        cells = {
            "function_seconds": cell(seconds, verdict, 6.0, 15.5),
            "total_cost": cell(cost, verdict, 0.02, 0.05),
        }
        more = {
            "winner": {"published": "scatterreduce", "modelled": None},
            "latency_bandwidth_size": 0.149,
            "intervals": [
                {"begin": None, "end": 0.5, "winner": "scatterreduce"}, {"begin": 0.5, "end": None, "winner": None},
            ],
        }  # fmt: skip
        return {"name": name, "group": "MobileNet", "variant": "canonical", "note": "", "cells": cells, **more}

    line = {"unit": "GB-second", "quantity": "3,968"}
    published = [["AllReduce", 0.0427], ["SPIRT", 0.066]]
    return {
        "schema": 1,
        "reproduces": "table2",
        "fidelity": "replayed",
        "paper": {"name": "barrak-2025", "title": "Cost-Performance Analysis", "published": "2025"},
        "table": {"title": "Time, memory and cost per epoch", "source": "Table 2", "notes": ["Printed × 24."]},
        "columns": [
            {"name": "function_seconds", "title": "Time of a function, the mean of its minibatches", "unit": "s"},
            {"name": "total_cost", "title": "Cost of an epoch", "unit": "USD"},
        ],
        "rows": [row("SPIRT", "15.44", "0.0660", "rounding"), row("AllReduce", "14.382", "0.0427", "differs")],
        "rankings": [
            {
                "title": "cost per epoch, MobileNet", "unit": "USD", "published": published, "recomputed": published,
                "modelled, canonical": published[::-1], "verdict": "differs", "reason": "the queue's host",
            }
        ],
        "bills": [
            {
                "name": "SPIRT", "group": "MobileNet", "variant": "canonical",
                "lines": [
                    {"item": "Lambda duration", "amount": "0.066", "in_paper": True, **line},
                    {"item": "Lambda init", "amount": "0.004", "in_paper": False, **line},
                ],
            }
        ],
        "curves": [
            {
                "title": "Accuracy over time", "x": {"title": "modelled time", "unit": "min"},
                "y": {"title": "test accuracy", "unit": "%"},
                "lines": [{"name": "SPIRT", "x": [0, 1.5, 3], "y": [0.1, 0.3, 0.4]}],
            }
        ],
        "notes": ["Modelled on aws-us-east-1."],
    }  # fmt: skip
