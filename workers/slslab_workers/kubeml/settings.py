"""Names that the job, the functions and their driver share: keys, queues, events. Imports no torch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slslab_workers.channels.queues import scoped
from slslab_workers.channels.tensors import TensorDatabase
from slslab_workers.kubeml.shares import Epoch, K
from slslab_workers.option import Option
from slslab_workers.plan import Plan
from slslab_workers.training.keys import Key

Vector = NDArray[np.float32]
# The state_dict's entries, each flat and in float32, by name and in order.
Tensors = Mapping[str, Vector]
STATIC = "static"
PARALLELISM = Option(
    "parallelism",
    str,
    STATIC,
    "How many functions train: always --workers (static), or one more or one fewer after each epoch, depending on how "
    "long it took, as the released scheduler decides (throughput).",
    (STATIC, "throughput"),
    released="throughput",
)
TRAIN, TEST = "train", "test"
# Kinds of reports to the job: the function waits for a merge, has ended well, or has failed.
NEXT, END, FAILED = "next", "end", "failed"
# The driver's message to the job when training is over.
STOP = "stop"
# A document of a collection, TRAIN or TEST.
document_key = Key("{run}/{collection}/{number}")
# An entry of the reference model, and one of a function's model.
reference_key = Key("{run}:{layer}")
copy_key = Key("{run}:{layer}/{function}")
# The queues for messages to the job, and from the job to the driver.
job_queue = Key(scoped("{run}", "job"))
client_queue = Key(scoped("{run}", "client"))
# The queue for the job's answers to a function that waits for a merge.
function_queue = Key(scoped("{run}", "f{function}"))


def epoch_of(plan: Plan, functions: int) -> Epoch:
    """Return the shares of an epoch with this many functions."""
    return Epoch(functions, plan.workers * plan.batches * plan.batch_size, plan.batch_size, int(plan.options[K.name]))


def most_functions(plan: Plan) -> int:
    """Return how many functions may train at once: at most one more each epoch, and one per document."""
    if plan.options[PARALLELISM.name] == STATIC:
        return plan.workers
    return min(plan.workers + plan.epochs - 1, epoch_of(plan, plan.workers).documents)


def job_rank(plan: Plan) -> int:
    """Return the job's rank in the trace, after all possible functions."""
    return most_functions(plan)


def get_reference(database: TensorDatabase, plan: Plan, layers: Sequence[str], phase: str) -> dict[str, Vector]:
    """Get all entries of the reference model."""
    return {layer: database.get(reference_key(plan, layer=layer), phase, overhead=False) for layer in layers}


def report(kind: str, epoch: int, functions: int, function: int, round_: int) -> dict[str, Any]:
    """Return a report to the job about a function in an epoch with this many functions."""
    return {"type": kind, "epoch": epoch, "functions": functions, "function": function, "round": round_}
