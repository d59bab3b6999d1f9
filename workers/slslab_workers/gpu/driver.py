"""The GPU baseline's trigger script: n instances, each with its rank."""

import json
from typing import TYPE_CHECKING, Any

from slslab_workers.architecture import (
    Architecture,
    Cloud,
    Fleet,
    InstanceLauncher,
    Instances,
    Option,
    Outcome,
    Progress,
    Requirements,
)
from slslab_workers.gpu.counts import counts
from slslab_workers.gpu.pattern import pattern
from slslab_workers.job import PARTITION, REPLICAS, Job, aws_failures
from slslab_workers.keys import model_key, result_key, verdict_key
from slslab_workers.plan import Plan, PlanError
from slslab_workers.polling import poll_policy

if TYPE_CHECKING:
    from slslab_workers.replicas import Replicas

MODULE = "slslab_workers.gpu.instance"
GO_ON, STOP = b"go on", b"stop"


class Gpu(Architecture):
    """Instances with GPUs that exchange gradients over S3."""

    name = "gpu"
    summary = (
        "The GPU baseline over S3: n long-running instances, each of which puts its gradient and gets all others.\n\n"
        "Instances are billed from launch to end, and no limit of Lambda's is theirs: --timeout means nothing here, "
        "--memory what the host keeps free for a worker and, as for a function, how many threads it computes with. "
        "--mode per-batch, --invoke event and --as-released are refused: the authors' script is a single process that "
        "plays all workers one after another."
    )
    options = (
        Option(
            "device",
            str,
            "auto",
            "What instances compute on; auto takes CUDA where torch sees it, else the CPU, whose times are no GPU's. "
            "Several instances may share a GPU.",
            ("auto", "cuda", "cpu"),
        ),
        Option("instance-type", str, "g4dn.xlarge", "EC2 instance type, by which the price book bills the instances."),
        REPLICAS,
        PARTITION,
    )

    def requirements(self, plan: Plan) -> Requirements:
        """Instances; PlanError for what an instance cannot do."""
        if plan.mode != "long-running":
            raise PlanError("Instances are no functions: nothing invokes them once per batch.", "omit --mode.")
        if plan.invoke != "sync":
            raise PlanError("Instances are no functions: they are launched and not invoked.", "omit --invoke.")
        if plan.as_released:
            raise PlanError(
                "The authors' GPU script is a single process that plays all workers one after another, and has no "
                "exchange that could be run as released.",
                "omit --as-released.",
            )
        fleet = Fleet(str(plan.options.get("instance-type", "g4dn.xlarge")), str(plan.options.get("device", "auto")))
        return Requirements(instances=fleet)

    counts = staticmethod(counts)
    pattern = staticmethod(pattern)

    def replicas(self) -> "type[Replicas]":
        """The mean in every step."""
        from slslab_workers.replicas import Replicas

        return Replicas

    def drive(self, plan: Plan, cloud: Cloud, progress: Progress) -> Outcome:
        """Store minibatches, launch, wait, evaluate."""
        self.requirements(plan)
        if cloud.launcher is None:
            raise PlanError("There is nothing here that starts instances.", "choose an architecture of functions.")
        job = _GpuJob(plan, cloud, progress)
        with aws_failures():
            try:
                job.create_bucket()
                return job.train(cloud.launcher)
            finally:
                job.remove_bucket()


class _GpuJob(Job):
    """The driver's view of its instances."""

    def train(self, launcher: InstanceLauncher) -> Outcome:
        """All epochs, or until the plan's accuracy or patience says stop."""
        plan = self.plan
        # Instances are billed while they wait: what they need first is there before them.
        self.upload([0] if plan.gradual else range(plan.epochs))
        document = plan.to_document()
        events = [{"plan": document, "bucket": self.bucket, "rank": rank} for rank in range(plan.workers)]
        # Threads that wait for each other sleep instead of spinning, as in the functions of the other architectures.
        with launcher.launch(MODULE, events, {"OMP_WAIT_POLICY": "PASSIVE"}) as instances:
            if plan.gradual:
                self._attend(instances)
            instances.join()
        if not plan.gradual:
            for epoch in range(plan.epochs):
                self.evaluate(epoch)
        return self.outcome([self._result(rank) for rank in range(plan.workers)])

    def _attend(self, instances: Instances) -> None:
        """After each epoch, evaluate and tell the instances whether there is another."""
        last = self.plan.epochs - 1
        for epoch in range(last):
            # While they train, so that they need not wait for it; in vain if there is no other epoch.
            self.upload([epoch + 1])
            self._await_model(epoch, instances)
            enough = self.evaluate(epoch)
            self._objects.put(verdict_key(self.plan, epoch), STOP if enough else GO_ON, "other")
            if enough:
                return
        self._await_model(last, instances)
        self.evaluate(last)

    def _await_model(self, epoch: int, instances: Instances) -> None:
        wanted = model_key(self.plan, epoch)
        delays = poll_policy(self.plan).lists.delays()
        while wanted not in self._objects.list(wanted, "other"):
            instances.check()
            self._objects.pause(next(delays))

    def _result(self, rank: int) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self._objects.get(result_key(self.plan, rank), "other").body)
        return result
