"""The command `slslab` with a Table 2 of few, tiny rows: `tiny_table2.py ROWS BATCHES ARGUMENT …`.

What the rows are is decided where the command is; nodes make the runs that they are sent.
"""

import sys
from typing import Any

from slslab.cli.main import main
from slslab_lab.studies import experiments
from slslab_lab.studies.experiments import Experiment

ALL = [
    Experiment(architecture, "mobilenet", released)
    for released in (False, True)
    for architecture in ("allreduce", "scatterreduce")
]
RUN = {"dataset": "digits", "workers": 2, "batch_size": 16, "memory_mb": 1024, "evaluation": False}


def values(_experiment: Experiment, _batches: int, _dataset: str) -> dict[str, Any]:
    """Return the plan of a run that trains LeNet for a moment."""
    return {**RUN, "batches": BATCHES}


if __name__ == "__main__":
    ROWS, BATCHES = map(int, sys.argv[1:3])
    vars(experiments)["experiments"] = lambda _models: ALL[:ROWS]
    setattr(Experiment, "values", values)  # noqa: B010 - a method may not be assigned to
    main(sys.argv[3:])
