"""What drivers of architectures on instances share: their options, what they refuse, and a run from launch to end."""

import json
from typing import ClassVar

from slslab_workers.architecture import (
    Architecture,
    Cloud,
    Fleet,
    InstanceLauncher,
    Instances,
    Outcome,
    Progress,
    Requirements,
)
from slslab_workers.channels.polling import poll_policy
from slslab_workers.driver.job import Job, failures
from slslab_workers.option import Option
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training.keys import GO_ON, STOP, model_key, result_key, verdict_key

DEVICE = Option(
    "device",
    str,
    "auto",
    "What instances compute on; auto takes CUDA where torch sees it, else the CPU, whose times differ from a "
    "GPU's. Several instances may share a GPU.",
    ("auto", "cuda", "cpu"),
)
INSTANCE_TYPE = Option(
    "instance-type", str, "g4dn.xlarge", "EC2 instance type, by which the price book bills the instances."
)


class InstanceArchitecture(Architecture):
    """An architecture of instances, each of which runs `module`; `released` says why nothing runs as released."""

    module: ClassVar[str]
    released: ClassVar[str]

    def requirements(self, plan: Plan) -> Requirements:
        """Return the instances; raise PlanError for what an instance cannot do."""
        if plan.mode != "long-running":
            raise PlanError("Instances are not functions: nothing invokes them once per batch.", "omit --mode.")
        if plan.invoke != "sync":
            raise PlanError("Instances are not functions: they are launched and not invoked.", "omit --invoke.")
        if plan.as_released:
            raise PlanError(self.released, "omit --as-released.")
        return Requirements(instances=Fleet(str(plan.options["instance-type"]), str(plan.options["device"])))

    def drive(self, plan: Plan, cloud: Cloud, progress: Progress) -> Outcome:
        """Store minibatches, launch an instance for each rank, wait, evaluate."""
        self.requirements(plan)
        if cloud.launcher is None:
            raise PlanError("There is nothing here that starts instances.", "choose an architecture of functions.")
        job = _InstanceJob(plan, cloud, progress)
        with failures():
            try:
                job.create_bucket()
                return job.train(self.module, cloud.launcher)
            finally:
                job.remove_bucket()


class _InstanceJob(Job):
    def train(self, module: str, launcher: InstanceLauncher) -> Outcome:
        plan = self.plan
        # Instances are billed while they wait: what they need first is stored before they start.
        self.upload([0] if plan.gradual else range(plan.epochs))
        document = plan.to_document()
        events = [{"plan": document, "bucket": self.bucket, "rank": rank} for rank in range(plan.workers)]
        # Threads that wait for each other sleep instead of spinning, as in the functions of the other architectures.
        with launcher.launch(module, events, {"OMP_WAIT_POLICY": "PASSIVE"}) as instances:
            if plan.gradual:
                self._attend(instances)
            instances.join()
        if not plan.gradual:
            for epoch in range(plan.epochs):
                self.evaluate(epoch)
        results = [self._objects.get(result_key(plan, rank), "other").body for rank in range(plan.workers)]
        return self.outcome([json.loads(result) for result in results])

    def _attend(self, instances: Instances) -> None:
        last = self.plan.epochs - 1
        for epoch in range(last):
            # While they train, so that they need not wait for it; not needed if training ends before.
            self.upload([epoch + 1])
            self._await_model(epoch, instances)
            enough = self.evaluate(epoch)
            self._objects.put(verdict_key(self.plan, epoch), STOP if enough else GO_ON, "other")
            if enough:
                return
        self._await_model(last, instances)
        self.evaluate(last)

    def _await_model(self, epoch: int, instances: Instances) -> None:
        key = model_key(self.plan, epoch)
        delays = poll_policy(self.plan).lists.delays()
        while key not in self._objects.list(key, "other"):
            instances.check()
            self._objects.pause(next(delays))
