"""A paper with runs from the tests in its Table 2: LeNet, one minibatch per epoch, two workers."""

from decimal import Decimal

from slslab_lab.papers.paper import Paper

PUBLISHED = {"allreduce": "0.5", "scatterreduce": "0.6", "mlless": "0.9", "spirt": "0.7"}


def paper() -> Paper:
    """Seconds of functions of 640 MB for 1 USD a GB-second, and an instance of 3,600 USD an hour."""
    functions = [
        {
            "name": name,
            "group": "LeNet",
            "inputs": {"architecture": name, "model": "lenet"},
            "published": {
                "function_seconds": Decimal(seconds),
                "epoch_seconds": Decimal(seconds) * 24,
                "memory_mb": Decimal(640),
                "function_cost": Decimal(seconds) * Decimal("0.64"),
                "worker_cost": Decimal(seconds) * Decimal("15.36"),
                "total_cost": Decimal(seconds) * Decimal("30.72"),
            },
        }
        for name, seconds in PUBLISHED.items()
    ]
    instance = {
        "name": "gpu",
        "group": "LeNet",
        "inputs": {"architecture": "gpu", "model": "lenet", "instance_hour": 3600},
        "published": {"epoch_seconds": Decimal(4), "worker_cost": Decimal(4), "total_cost": Decimal(8)},
    }
    units = {
        "function_seconds": "s", "epoch_seconds": "s", "memory_mb": "MB", "function_cost": "USD",
        "worker_cost": "USD", "total_cost": "USD",
    }  # fmt: skip
    formulas = {
        "epoch_seconds": {"product": "function_seconds * batches"},
        "function_cost": {"decimal": "function_seconds * memory_mb / 1000 * gb_second"},
        "worker_cost": {
            "decimal": "batches * function_seconds * memory_mb / 1000 * gb_second",
            "instance": "epoch_seconds / 3600 * instance_hour",
        },
        "total_cost": {
            "decimal": "workers * batches * function_seconds * memory_mb / 1000 * gb_second",
            "instance": "workers * epoch_seconds / 3600 * instance_hour",
        },
    }
    table = {
        "title": "An epoch",
        "source": "Table 2",
        "units": units,
        "inputs": {"workers": 2, "batches": 24, "gb_second": 1},
        "formulas": formulas,
        "rows": [*functions, instance],
    }
    return Paper.model_validate(
        {
            "name": "a-paper",
            "title": "A Paper",
            "authors": "A. Author",
            "published": "2026",
            "tables": {"table2": table},
        }
    )
