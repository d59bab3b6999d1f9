"""Runs of a few events, made by hand."""

from typing import Any

from tests.lab.replay.recordings import make_plan

from slslab.run.run import Run

Event = dict[str, Any]
PLAN = make_plan()


def event(op: str, worker: int = 0, place: tuple[int, int] = (0, 0), **more: Any) -> Event:
    """An event of the training protocol that takes no time, in invocation `a`, with no cause."""
    return {
        "op": op,
        "worker": worker,
        "epoch": place[0],
        "step": place[1],
        "start_ns": 0,
        "end_ns": 0,
        "causes": (),
        "invocation": "a",
        "resource": "bucket/key",
        "etag": "x",
        "bytes": 0,
        "requests": 1,
        "phase": "other",
        "overhead": False,
        "failed": False,
        **more,
    }


def of_events(*events: Event, **more: Any) -> Run:
    """A run of these events, which are numbered in their order; of AllReduce's plan with two workers, if no other is
    given."""
    numbered = [{"event": number, **each} for number, each in enumerate(events)]
    parts: dict[str, Any] = {"plan": PLAN, "events": numbered, "complete": True, **more}
    return Run(**parts)
