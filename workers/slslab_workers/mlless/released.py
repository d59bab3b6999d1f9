"""The lines that the released MLLess adds to a worker's log: seven in a step, whatever is sent."""

from types import MappingProxyType

from slslab_workers.training.released_log import LogLines, computed

LOG_LINES: LogLines = MappingProxyType(
    {
        "compute": computed,
        "filter_gradient": lambda _worker, update, *_: (f"{'no ' * (update is None)}significant update",),
        "send": lambda _worker, _result, _state, update: (
            "nothing announced" if update is None else "update stored and announced",
        ),
        "report": lambda *_: ("reported to the supervisor",),
        "await_updates": lambda _worker, decision, *_: (f"{len(decision['updates'])} updates announced by all",),
        "get_updates": lambda _worker, received, *_: (f"{len(received)} updates gotten",),
        "update": lambda _worker, _result, _state, aggregate: ("no update" if aggregate is None else "model updated",),
    }
)
