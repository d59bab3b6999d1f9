"""SPIRT: its options, and what a plan of it needs."""

from collections.abc import Mapping
from dataclasses import replace

from slslab_workers.architecture import (
    NO_OPTIONS,
    QUEUE_HOST,
    TENSOR_HOST,
    Cloud,
    Progress,
    Requirements,
    ResidentPhase,
)
from slslab_workers.channels.queues import QUEUE
from slslab_workers.driver.deployment import FunctionArchitecture, refuse_modes
from slslab_workers.driver.job import failures, gradient_mb
from slslab_workers.option import Option
from slslab_workers.patterns import Counts, Workload, count
from slslab_workers.patterns.messages import Recorded
from slslab_workers.plan import Plan, PlanError, Value
from slslab_workers.spirt.averaging import average_alone
from slslab_workers.spirt.deployment import TEXT, WRITTEN_TEXT, SpirtDeployment, has_texts, light_mb
from slslab_workers.spirt.pattern import COVERED, pattern
from slslab_workers.spirt.roster import JOIN, Roster
from slslab_workers.training import attacks, robust

LONGEST_BARRIER_S = 86_400


class Spirt(FunctionArchitecture):
    """SPIRT with Step Functions, a queue and a tensor database per peer."""

    name = "spirt"
    title = "SPIRT"
    paper = "Barrak et al. 2025"
    summary = (
        "SPIRT: every peer has a tensor database and a state machine; a minibatch is an invocation, gradients are "
        "averaged and the model is updated in the database, once an epoch.\n\n"
        "One update per epoch is little: see the column `updates` beside the accuracy."
    )
    options = (
        Option(
            "gradients",
            str,
            "tensor",
            "How gradients are kept: as tensors, or as JSON in a list as in the released code, whose Lua script then "
            "averages them in the database and whose mean makes a round trip.",
            ("tensor", "json"),
            released="json",
        ),
        Option(
            "averaging",
            str,
            "in-database",
            "Where a peer's gradients are averaged: in-database; round-trip, where the mean goes to the function and "
            "back as in the released code; naive, where the function fetches all of them.",
            ("in-database", "round-trip", "naive"),
            released="round-trip",
        ),
        Option("update", str, "in-database", "Where the model is updated.", ("in-database", "naive")),
        Option(
            "update-rule",
            str,
            "sgd",
            "sgd is plain, as in the paper; sgd-momentum takes the plan's momentum and weight decay.",
            ("sgd", "sgd-momentum"),
        ),
        robust.option(
            "What becomes of all peers' averages: mean; the others withstand Byzantine peers, in the database "
            "(docs/byzantine.md)."
        ),
        robust.BYZANTINE,
        attacks.ATTACK,
        Option("accumulate", int, 1, "Parts of a minibatch, whose gradients are added up: less memory, more time."),
        Option("barrier-timeout", float, 500.0, "A peer that is silent at the barrier for this long, s, is left out."),
        JOIN,
        Option(
            "light-memory",
            int,
            0,
            "Memory size, MB, of the functions that need no torch: membership, average, aggregation, update, next "
            "epoch; 0 for 256 MB and four gradients, or twenty where a mean comes as JSON.",
            memory=True,
        ),
        QUEUE,
        TENSOR_HOST,
        QUEUE_HOST,
    )
    messages = staticmethod(pattern)
    exchange = "slslab_workers.spirt.protocol:protocol"
    learns = "slslab_workers.spirt.replicas:SpirtReplicas"

    def complete(self, options: Mapping[str, Value]) -> dict[str, Value]:
        """Return these options and the defaults of all others; JSON gradients are averaged by a round trip."""
        implied: dict[str, Value] = {"averaging": "round-trip"} if options.get("gradients") == "json" else {}
        return super().complete({**implied, **options})

    def requirements(self, plan: Plan) -> Requirements:
        """Return a tensor database per peer, a queue and state machines; PlanError for a plan that SPIRT cannot run."""
        refuse_modes(plan, "SPIRT's functions are invoked by its state machines.")
        options = plan.options
        if not 1 <= int(options["accumulate"]) <= plan.batch_size:
            raise PlanError(
                f"accumulate is {options['accumulate']}.",
                f"give the number of parts of a minibatch, 1 or more, at most its {plan.batch_size} images.",
            )
        if not 0 < float(options["barrier-timeout"]) <= LONGEST_BARRIER_S:
            raise PlanError(
                f"barrier-timeout is {float(options['barrier-timeout'])}.",
                f"give seconds, more than 0, at most {LONGEST_BARRIER_S}.",
            )
        Roster.of(plan.workers, options).check(plan.epochs)
        attacks.check(plan)
        robust.check(plan)
        attacks.refuse_omniscient(
            options,
            "SPIRT's peers announce their averages before they read others'",
            "choose gpu, or --attack sign-flip.",
        )
        light_mb = int(options["light-memory"])
        if light_mb > plan.memory_mb:
            raise PlanError(
                f"Functions without torch cannot have {light_mb} MB.",
                f"choose at most {plan.memory_mb} MB (--memory), or 0 for the default.",
            )
        if has_texts(plan) and options["averaging"] != "round-trip":
            raise PlanError("JSON gradients are averaged by a round trip.", "leave out --averaging.")
        return Requirements.with_queue(options, plan.workers, state_machines=True)

    def resident_set(self, plan: Plan) -> tuple[ResidentPhase, ...]:
        """Return the memory of the small functions that wait at the barrier, and of databases with all gradients."""
        gradients = TEXT * plan.batches + WRITTEN_TEXT if has_texts(plan) else plan.batches
        # Four more vectors: parameters, momentum, average and aggregate.
        database_mb = (gradients + 4) * gradient_mb(plan)
        return (ResidentPhase(self.name, 1, plan.workers * (light_mb(plan) + database_mb)),)

    def counts(
        self, workers: int, batches: int, epochs: int, parameters: int, options: Mapping[str, Value] = NO_OPTIONS
    ) -> Counts:
        """Return what all peers send, fetch and have computed in their databases, and their state transitions, epoch by
        epoch: of the peers that take part in it."""
        roster = Roster.of(workers, options)
        present = [len(roster.active(epoch)) for epoch in range(epochs)]
        options = self.complete({**options, **COVERED})
        return count(*(pattern(Workload(active, batches, 1, parameters, options)) for active in present))

    def counts_in(self, run: Recorded, epochs: int) -> Counts:
        """Return the `counts` of a recorded run, by the epochs in which peers joined, which may be later than the plan
        says; PlanError if a peer or a message was lost."""
        if run.failing is not None:
            raise PlanError("a peer or a message was lost", "check a run without faults.")
        assert run.parameters is not None
        joins = {} if run.document is None else run.document["details"].get("joins") or ()
        joined = ((each["worker"], epochs if each["epoch"] is None else each["epoch"]) for each in joins)
        join = ",".join(f"{rank}:{epoch}" for rank, epoch in joined)
        options = {**run.plan.options, JOIN.name: join} if joins else run.plan.options
        return self.counts_of(replace(run.plan, options=options), epochs, run.parameters)

    def alone(self, plan: Plan) -> Plan:
        """Return the plan of one peer with a minibatch in each epoch: an epoch's minibatches are computed at once."""
        alone = super().alone(plan)
        return replace(alone, batches=1, epochs=alone.batches, options={**plan.options, "join": JOIN.default})

    def deployment(self, plan: Plan, cloud: Cloud, progress: Progress) -> SpirtDeployment:
        """Return the functions of all states, the state machine, and the queues between peers."""
        return SpirtDeployment(plan, cloud, progress)

    def run_scripts_alone(self, plan: Plan, cloud: Cloud, parameters: int) -> None:
        """Average as many gradients (P,) as a peer has in an epoch."""
        with failures():
            average_alone(plan, cloud, parameters)
