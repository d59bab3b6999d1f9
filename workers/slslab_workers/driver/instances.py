"""Shared code for drivers of instances: options, refusals, and a run from launch to end."""

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
from slslab_workers.driver.deployment import PASSIVE, refuse_modes
from slslab_workers.driver.job import Job
from slslab_workers.option import Option
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training.keys import GO_ON, STOP, model_key, result_key, verdict_key

DEVICE = Option(
    "device",
    str,
    "auto",
    "What instances compute on; auto uses CUDA if torch sees it, else the CPU, which takes other times than a GPU. "
    "Several instances may share a GPU.",
    ("auto", "cuda", "cpu"),
)
INSTANCE_TYPE = Option("instance-type", str, "g4dn.xlarge", "EC2 instance type that instances are billed as.")


class InstanceArchitecture(Architecture):
    """An architecture of instances that run `module`; `released` says why --as-released is refused."""

    module: ClassVar[str]
    released: ClassVar[str]

    def requirements(self, plan: Plan) -> Requirements:
        """Return the instances; PlanError if they can't run the plan."""
        refuse_modes(plan, "Instances aren't functions: they are launched, not invoked.")
        if plan.as_released:
            raise PlanError(self.released, "omit --as-released.")
        return Requirements(instances=Fleet(str(plan.options["instance-type"]), str(plan.options["device"])))

    def drive(self, plan: Plan, cloud: Cloud, progress: Progress) -> Outcome:
        """Store minibatches, launch an instance for each rank, wait, evaluate."""
        if cloud.launcher is None:
            raise PlanError("This stack can't start instances.", "choose an architecture of functions.")
        return _InstanceJob(plan, cloud, progress, self.module, cloud.launcher).run()


class _InstanceJob(Job):
    def __init__(self, plan: Plan, cloud: Cloud, progress: Progress, module: str, launcher: InstanceLauncher) -> None:
        super().__init__(plan, cloud, progress)
        self._module, self._launcher = module, launcher

    def train(self) -> Outcome:
        plan = self.plan
        # Instances are billed while they wait, so their data is stored before they start.
        self.upload([0] if plan.gradual else range(plan.epochs))
        document = plan.to_document()
        events = [{"plan": document, "bucket": self.bucket, "rank": rank} for rank in range(plan.workers)]
        with self._launcher.launch(self._module, events, PASSIVE) as instances:
            if plan.gradual:
                self._attend(instances)
            instances.join()
        if not plan.gradual:
            for epoch in range(plan.epochs):
                self.evaluate(epoch)
        results = [self._objects.get(result_key(plan, rank=rank), "other").body for rank in range(plan.workers)]
        return self.outcome([json.loads(result) for result in results])

    def _attend(self, instances: Instances) -> None:
        last = self.plan.epochs - 1
        for epoch in range(last):
            # Evaluate while they train, so that they don't wait; training may also end before.
            self.upload([epoch + 1])
            self._await_model(epoch, instances)
            enough = self.evaluate(epoch)
            self._objects.put(verdict_key(self.plan, epoch=epoch), STOP if enough else GO_ON, "other")
            if enough:
                return
        self._await_model(last, instances)
        self.evaluate(last)

    def _await_model(self, epoch: int, instances: Instances) -> None:
        key = model_key(self.plan, epoch=epoch)
        delays = poll_policy(self.plan).lists.delays()
        while key not in self._objects.list(key, "other"):
            instances.check()
            self._objects.pause(next(delays))
