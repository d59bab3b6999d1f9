"""The lines that the released AllReduce adds to a worker's log in a step: five of rank 0, six of any other."""

from types import MappingProxyType

from slslab_workers.training.released_log import LogLines, computed

LOG_LINES: LogLines = MappingProxyType(
    {
        "compute": computed,
        "put_gradient": lambda worker, *_: ("gradient put", "waiting for the merged gradient")[: 1 + (worker.rank > 0)],
        "merge": lambda worker, *_: (f"{worker.plan.workers} gradients merged",),
        "publish_merged": lambda *_: ("merged gradient put, expired ones deleted",),
        "get_merged": lambda *_: ("merged gradient gotten",),
        "update": lambda worker, *_: ("model updated", "step ended")[: 1 + (worker.rank > 0)],
    }
)
