"""The lines that the released ScatterReduce adds to a worker's log: six in a step, and one more in every tenth step."""

import statistics
from types import MappingProxyType
from typing import Any

from slslab_workers.scatterreduce.pattern import SUMMARY_STEPS
from slslab_workers.training.released_log import LogLines, computed
from slslab_workers.training.state import WorkerState


def _updated(worker: Any, _result: None, state: WorkerState, *_arguments: Any) -> tuple[str, ...]:
    if worker.tracer.step % SUMMARY_STEPS:
        return ("model updated",)
    return "model updated", f"mean loss so far {statistics.fmean(state.losses):.4f}"


LOG_LINES: LogLines = MappingProxyType(
    {
        "compute": computed,
        "put_chunks": lambda worker, *_: (f"{worker.plan.workers - 1} chunks put",),
        "merge_own": lambda *_: ("own chunk merged",),
        "publish_own": lambda *_: ("merged chunk put",),
        "gather": lambda worker, *_: (f"{worker.plan.workers - 1} merged chunks gotten",),
        "update": _updated,
    }
)
