"""A worker in an invocation of a function: train, hand over to the next invocation in time, resume."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import ObjectChannel, Unchanged, connected
from slslab_workers.plan import Assignment
from slslab_workers.training import released_log
from slslab_workers.training.devices import function_device
from slslab_workers.training.keys import state_key
from slslab_workers.training.lifetime import invoke_again, remaining_s, reserve_s
from slslab_workers.training.loop import Trainer
from slslab_workers.training.state import WorkerState

# The state that this environment kept from its last invocation, with the key and ETag of the stored copy.
_warm: tuple[str, str, WorkerState] | None = None


class Worker(Trainer):
    """One worker in one invocation of a function.

    `leaving` says whether any worker votes to continue in another invocation after this step. An architecture sets it
    in every step to the same value for all workers, so that all leave after the same step and no worker waits for one
    that has left. To that end, workers send their votes (`is_short_of_time`) with their vectors. `logged` are the
    methods after which the authors' code writes to a log; `logged_as` is the architecture's name in it.
    """

    leaving = False
    logged: tuple[str, ...] = ()
    logged_as = ""

    def __init__(self, assignment: Assignment, context: Any, objects: ObjectChannel | None = None) -> None:
        plan, rank = assignment.plan, assignment.rank
        if objects is None:
            tracer = Tracer(run=plan.run, worker=rank, invocation=context.aws_request_id)
            objects = connected(assignment.bucket, tracer)
        super().__init__(plan, rank, objects, function_device(plan))
        self.assignment = assignment
        self.context = context
        self.step_began = time.monotonic()
        self.longest_step_s = 0.0
        released_log.install(self)

    def run(self) -> dict[str, Any]:
        """Train from `first` to `until`; return the worker's result, or that another invocation continues."""
        assignment = self.assignment
        state = self._resume() if assignment.first else self._fresh()
        if state.position != assignment.first:
            # AWS may deliver an asynchronous event twice.
            raise ValueError(
                f"Worker {self.rank} was to continue at step {assignment.first}, but its state is at {state.position}: "
                "another invocation has trained in its place. Run the plan again."
            )
        while state.position < self.until(state) and self.ended is None:
            self.step_began = time.monotonic()
            self.train_step(state)
            self.longest_step_s = max(self.longest_step_s, time.monotonic() - self.step_began)
            if self.leaving and state.position < self.until(state) and self.ended is None:
                self._save(state)
                invoke_again(replace(assignment, first=state.position), self.context, self.tracer)
                return {"status": "continued", "rank": self.rank, "position": state.position}
        if assignment.keep:
            self._save(state)
        over = self.place(state)[0] == self.plan.epochs or self.ended is not None
        if self.plan.mode == "long-running" or over:
            return self.publish(state)
        return self._result(state)

    def lines_after(self, method: str) -> int:  # noqa: ARG002 - overriding methods use it
        """Return how many lines the released code writes to a worker's log after a method of `logged`."""
        return 1

    def until(self, state: WorkerState) -> int:  # noqa: ARG002 - needed if workers leave early
        """Return the position at which this assignment ends."""
        return self.assignment.until

    def is_short_of_time(self) -> bool:
        """Vote to leave if too little time will be left after this step for another one and its checkpoint.

        This is LambdaML's watchdog (docs/protocols.md, "Lifetime of a function"). It assumes that synchronising takes
        as long as fetching and computing, unless an earlier step took longer.
        """
        elapsed_s = time.monotonic() - self.step_began
        step_s = max(self.longest_step_s, 2 * elapsed_s)
        return remaining_s(self.context) - (step_s - elapsed_s) < reserve_s(self.plan.timeout, step_s)

    def _resume(self) -> WorkerState:
        global _warm
        key = state_key(self.plan, rank=self.rank)
        kept = _warm if _warm is not None and _warm[0] == key else None
        # Training changes this state. If the invocation then fails, the state no longer equals the stored one.
        _warm = None
        try:
            stored = self.objects.get(key, "fetch", known_etag=kept[1] if kept else None)
        except Unchanged:
            assert kept is not None
            return kept[2]
        with self.tracer.span("restore", "fetch", bytes=len(stored.body)):
            state = kept[2] if kept else WorkerState.fresh(self.plan, self.rank, self.device)
            state.restore(stored.body)
            return state

    def _save(self, state: WorkerState) -> None:
        global _warm
        key = state_key(self.plan, rank=self.rank)
        with self.tracer.span("serialise", "other") as span:
            body = state.to_bytes()
            span.bytes = len(body)
        _warm = (key, self.objects.put(key, body, "other"), state)


def handle(event: Mapping[str, Any], context: Any, worker: type[Worker]) -> dict[str, Any]:
    """Run the worker that the event describes; every architecture's Lambda handler calls this."""
    return worker(Assignment.from_event(event), context).run()
