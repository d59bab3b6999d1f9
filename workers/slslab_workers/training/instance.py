"""The shared part of programs that run on instances: the loop and the start.

`python -m MODULE` takes its event as JSON on standard input: the plan, the bucket and the worker's rank. S3's address
comes from AWS's environment variables.
"""

import json
import sys
from typing import Any

from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import Objects, s3_client
from slslab_workers.channels.polling import poll_policy
from slslab_workers.plan import Plan
from slslab_workers.training.devices import choose_device
from slslab_workers.training.keys import GO_ON, verdict_key
from slslab_workers.training.loop import Trainer


class InstanceWorker(Trainer):
    """One worker of a run on instances."""

    def run(self) -> dict[str, Any]:
        """Train to the plan's end, or until the driver stops the training; return the worker's result."""
        plan = self.plan
        state, last = self._fresh(), plan.epochs * plan.batches
        going = True
        while going:
            self.train_step(state)
            going = state.position < last
            if going and plan.gradual and state.position % plan.batches == 0:
                # Waiting for the driver's verdict is billed time.
                key = verdict_key(plan, epoch=state.position // plan.batches - 1)
                going = self.objects.wait_for(key, poll_policy(plan).gets, "other").body == GO_ON
        return self.publish(state)


def main(worker: type[InstanceWorker]) -> None:
    """Train the plan from the event on standard input."""
    event = json.load(sys.stdin)
    plan, rank = Plan.from_document(event["plan"]), int(event["rank"])
    tracer = Tracer(run=plan.run, worker=rank)
    with tracer.span("connect", "other"):
        objects = Objects(s3_client(), event["bucket"], tracer)
    worker(plan, rank, objects, choose_device(str(plan.options["device"]))).run()
