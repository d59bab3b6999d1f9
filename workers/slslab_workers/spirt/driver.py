"""SPIRT's options and requirements."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from slslab_workers.architecture import Cloud, Requirements, ResidentPhase
from slslab_workers.channels import endpoints
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.tensors import TensorDatabase
from slslab_workers.driver.deployment import QUEUE_OPTIONS, FunctionArchitecture, refuse_modes
from slslab_workers.driver.job import failures, gradient_mb
from slslab_workers.option import Option
from slslab_workers.patterns import Counts, Pattern, Workload
from slslab_workers.patterns.messages import Recorded
from slslab_workers.plan import Plan, PlanError, Value
from slslab_workers.spirt.deployment import LIGHT_MEMORY, TEXT, WRITTEN_TEXT, SpirtDeployment, has_texts
from slslab_workers.spirt.pattern import FORMER, pattern
from slslab_workers.spirt.roster import JOIN, Roster
from slslab_workers.spirt.settings import RESERVE_S, Keys
from slslab_workers.training import attacks, robust
from slslab_workers.training.options import PARTITION

LONGEST_BARRIER_S = 86_400
# How often a peer's gradients are averaged while nothing else runs.
SOLO_AVERAGES = 3


class Spirt(FunctionArchitecture):
    """SPIRT with Step Functions, and a queue and a tensor database per peer."""

    name = "spirt"
    title = "SPIRT"
    paper = "Barrak et al. 2025"
    colour = "4"
    summary = (
        "SPIRT: every peer has a tensor database and a state machine; a minibatch is an invocation, gradients are "
        "averaged and the model is updated in the database, once an epoch.\n\n"
        "It makes only one update per epoch: compare accuracies together with the column `updates`."
    )
    options = (
        Option(
            "gradients",
            str,
            "tensor",
            "How gradients are stored: as tensors, or as a list of JSON texts as in the released code. A Lua script "
            "then averages the list in the database, and the mean makes a round trip.",
            ("tensor", "json"),
            released="json",
        ),
        Option(
            "averaging",
            str,
            "in-database",
            "Where a peer's gradients are averaged: in-database; round-trip, which sends the mean to the function and "
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
            "How the peers' averages are combined: mean, or a rule that withstands Byzantine peers, in the database "
            "(docs/byzantine.md)."
        ),
        robust.BYZANTINE,
        attacks.ATTACK,
        Option("barrier-timeout", float, 500.0, "A peer that is silent at the barrier for this time, s, is left out."),
        JOIN,
        LIGHT_MEMORY,
        *QUEUE_OPTIONS,
        PARTITION,
    )
    former = FORMER
    # Each state of its state machines has one.
    handler = ""
    deploys = SpirtDeployment
    messages = staticmethod(pattern)
    exchange = "slslab_workers.spirt.protocol:protocol"
    learns = "slslab_workers.spirt.replicas:SpirtReplicas"

    def complete(self, options: Mapping[str, Value]) -> dict[str, Value]:
        """Fill in the defaults. JSON gradients are averaged by a round trip."""
        implied: dict[str, Value] = {"averaging": "round-trip"} if options.get("gradients") == "json" else {}
        return super().complete({**implied, **options})

    def requirements(self, plan: Plan) -> Requirements:
        """Return a tensor database per peer, a queue and state machines; PlanError if SPIRT can't run the plan."""
        refuse_modes(plan, "SPIRT's functions are invoked by its state machines.")
        options = plan.options
        if not 0 < float(options["barrier-timeout"]) <= LONGEST_BARRIER_S:
            raise PlanError(
                f"barrier-timeout is {float(options['barrier-timeout'])}.",
                f"give seconds, more than 0, at most {LONGEST_BARRIER_S}.",
            )
        if plan.timeout <= RESERVE_S:
            raise PlanError(
                f"With a time-out of {plan.timeout} s peers can't wait for others: they keep {RESERVE_S:g} s of it.",
                f"choose a --timeout of more than {RESERVE_S:g} s.",
            )
        Roster.of(plan.workers, options).check(plan.epochs)
        why = "SPIRT's peers announce their averages before they read the others'"
        robust.check(plan, why, "choose gpu, or --attack sign-flip.")
        light_mb = LIGHT_MEMORY.size_mb(plan)
        if light_mb > plan.memory_mb:
            raise PlanError(
                f"light-memory is {light_mb} MB, more than the {plan.memory_mb} MB of functions with torch.",
                "choose at most as much as --memory, or 0 for the default.",
            )
        if has_texts(plan) and options["averaging"] != "round-trip":
            raise PlanError("JSON gradients are averaged by a round trip.", "leave out --averaging.")
        return Requirements.with_queue(options, plan.workers, state_machines=True)

    def resident_set(self, plan: Plan) -> tuple[ResidentPhase, ...]:
        """Return the memory of the small functions that wait at the barrier, and of databases full of gradients."""
        gradients = TEXT * plan.batches + WRITTEN_TEXT if has_texts(plan) else plan.batches
        # Plus four vectors: parameters, momentum, average and aggregate.
        database_mb = (gradients + 4) * gradient_mb(plan)
        return (ResidentPhase(self.name, 1, plan.workers * (LIGHT_MEMORY.size_mb(plan) + database_mb)),)

    def concurrency(self, plan: Plan) -> int:
        """Return the functions of all peers' minibatches, or of the start, where one function of a peer calls another.

        State machines don't retry throttled functions.
        """
        return plan.workers * max(plan.batches, 2)

    def counted(self, workload: Workload) -> tuple[Pattern, ...]:
        """Return a pattern for each epoch, with the peers that take part in it."""
        roster = Roster.of(workload.workers, workload.options)
        options = self.complete({**workload.options, **FORMER, JOIN.name: JOIN.default})
        present = [len(roster.active(epoch)) for epoch in range(workload.epochs)]
        return tuple(pattern(replace(workload, workers=active, epochs=1, options=options)) for active in present)

    def counts_in(self, run: Recorded, epochs: int) -> Counts:
        """Return the `counts` of a recorded run, with peers counted from when they really joined, which may be later
        than planned. PlanError if a peer or a message was lost."""
        if run.failing is not None:
            raise PlanError("a peer or a message was lost", "check a run without faults.")
        assert run.parameters is not None
        joins = {} if run.document is None else run.document["details"].get("joins") or ()
        joined = ((each["worker"], epochs if each["epoch"] is None else each["epoch"]) for each in joins)
        join = ",".join(f"{rank}:{epoch}" for rank, epoch in joined)
        options = {**run.plan.options, JOIN.name: join} if joins else run.plan.options
        return self.counts_of(replace(run.plan, options=options), epochs, run.parameters)

    def solo(self, plan: Plan) -> Plan:
        """Return a plan of one peer with one minibatch per epoch, since an epoch's minibatches run at once."""
        solo = super().solo(plan)
        return replace(solo, batches=1, epochs=solo.batches, options={**solo.options, "join": JOIN.default})

    def run_solo_scripts(self, plan: Plan, cloud: Cloud, parameters: int) -> None:
        """Average the gradients (P,) of one peer and epoch in the first database, if the plan averages there."""
        if plan.options["averaging"] == "naive":
            return
        keys, phase = Keys(plan), "synchronise"
        gradient = np.random.default_rng(plan.seed).standard_normal(parameters, np.float32)
        names = [keys.gradient(epoch=0, batch=batch) for batch in range(plan.batches)]
        texts, average = keys.json_gradients(epoch=0), keys.average(epoch=0)
        url, tracer = endpoints.tensor_urls(cloud.environment)[0], Tracer(cloud.emit, plan.run)
        with failures(), TensorDatabase(url, tracer) as database:
            if has_texts(plan):
                for _ in names:
                    database.push_json(texts, gradient, phase)
                # Once is enough: it takes seconds.
                database.average_json(texts, len(names), phase)
            else:
                for name in names:
                    database.set(name, gradient, phase)
                for _ in range(SOLO_AVERAGES):
                    database.execute("average", names, [average], phase)
            database.command("DEL", *names, texts, average)
