"""Messages and waits of KubeML, round by round (`function.py`, `job.py`)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from slslab_workers.channels.queues import scoped
from slslab_workers.kubeml.settings import PARALLELISM, STATIC
from slslab_workers.kubeml.shares import Epoch, K
from slslab_workers.patterns import (
    BUILD,
    CONNECT,
    OWN,
    PHASE,
    UPDATE,
    Activity,
    Kept,
    Part,
    Pattern,
    Role,
    Signal,
    Workload,
)
from slslab_workers.plan import PlanError

INITIAL = Signal("initial", each="run")
# Stands for the name of an entry of the model's state_dict, which only a recording knows.
LAYER = "LAYER"
# Rounds are the steps of an epoch.
REFERENCE = Signal("reference model", key=f"{{run}}:{LAYER}")
MODEL = Signal("model", of=OWN, key=f"{REFERENCE.key}/{{maker}}")
REPORT = Signal("report", of=OWN, key=scoped("{run}", "job"))
ANSWER = Signal("answer", key=scoped("{run}", "f{taker}"))
# An epoch ends with this model.
LAST = replace(REFERENCE, each="epoch")
MERGED_ALL, VALIDATED = Signal("merged all", each="epoch"), Signal("validated", each="epoch")


def pattern(workload: Workload) -> Pattern:
    """Return the pattern. In each epoch every function trains, stores its model and reports, interval by interval. The
    job reads a round's models in rank order, stores their mean, and answers the functions that wait.

    Environments are assumed to stay warm, so the model is built only in the first epoch. PlanError if the number of
    functions depends on how long epochs take, or the model's entries aren't known.
    """
    if workload.options[PARALLELISM.name] != STATIC:
        raise PlanError(
            "The number of functions in this run depended on how long epochs took.",
            f"replay a run with --parallelism {STATIC}.",
        )
    samples = workload.workers * workload.batches * workload.batch_size
    return pattern_of(workload, Epoch(workload.workers, samples, workload.batch_size, int(workload.options[K.name])))


def pattern_of(workload: Workload, epoch: Epoch) -> Pattern:
    """Return the pattern for epochs of any number of samples, whatever the workload's minibatches are."""
    # Each round needs a step of its own.
    workload = replace(workload, batches=max(workload.batches, len(epoch.rounds)))
    model = _Model(workload.tensors, 4 * (workload.parameters + workload.buffers))
    end = VALIDATED if workload.evaluation else MERGED_ALL
    roles = [
        Role(range(1), "init", makes=(INITIAL,), start=(BUILD, model.set("other", replace(LAST, ahead=-1)))),
        *_training(epoch, model, (INITIAL, replace(end, ahead=-1))),
        _job(epoch, model, workload.workers),
    ]
    if workload.evaluation:
        roles.append(_validation(range(epoch.functions), model))
    # The reference model, and each function's, which stays.
    size = (1 + workload.workers) * model.size
    return Pattern(workload, tuple(roles), tensors=Kept(size, size))


@dataclass(frozen=True)
class _Model:
    """Requests for a model with a known number of entries and bytes, in the shared database."""

    tensors: int
    size: int

    def get(self, phase: str, taken: Signal) -> Activity:
        return Activity("tensor.get", phase, self.tensors, self.size, takes=(taken,), at=0, protocol=True)

    def set(self, phase: str, made: Signal) -> Activity:
        return Activity("tensor.set", phase, self.tensors, self.size, makes=(made,), at=0, protocol=True)


def _training(epoch: Epoch, model: _Model, needs: tuple[Signal, ...]) -> Iterator[Role]:
    """Yield roles for training; functions with equally many documents and steps in all intervals share one."""

    def shape(function: int) -> list[tuple[int, int]]:
        return [(len(documents), epoch.steps(documents)) for documents in epoch.intervals(function)]

    for intervals, group in groupby(range(epoch.functions), shape):
        ranks = list(group)
        parts: list[Part] = [CONNECT, replace(BUILD, until=1)]
        for number, (documents, steps) in enumerate(intervals):
            parts += [
                model.get("fetch", replace(REFERENCE, step=number - 1) if number else replace(LAST, ahead=-1)),
                Activity("object.get", "fetch", times=documents, bytes=None),
                Activity("prepare", "fetch", times=steps),
                Activity("compute", "compute", times=steps),
                replace(UPDATE, times=steps),
                model.set(PHASE, replace(MODEL, step=number)),
                Activity("queue.publish", PHASE, bytes=None, makes=(replace(REPORT, step=number),), protocol=True),
            ]
            if number < len(intervals) - 1:
                answer = replace(ANSWER, step=number)
                parts.append(Activity("queue.deliver", PHASE, bytes=None, needs=(answer,), protocol=True))
        yield Role(range(ranks[0], ranks[-1] + 1), each="epoch", needs=needs, start=tuple(parts))


def _job(epoch: Epoch, model: _Model, rank: int) -> Role:
    """Return the job's role: one invocation for the whole run, ended by the driver."""
    parts: list[Part] = []
    rounds = [*epoch.rounds, []]
    for number, reporting in enumerate(rounds[:-1]):
        for function in reporting:
            report, trained = (replace(signal, of=function, step=number) for signal in (REPORT, MODEL))
            parts.append(Activity("queue.deliver", PHASE, bytes=None, needs=(report,), protocol=True))
            parts += [model.get(PHASE, trained), Activity("reduce", PHASE, work=model.size)]
        merged = replace(REFERENCE if rounds[number + 1] else LAST, step=number)
        parts += [Activity("reduce", PHASE, work=model.size), model.set(PHASE, merged)]
        if waiting := len(rounds[number + 1]):
            makes = (replace(ANSWER, step=number),)
            parts.append(Activity("queue.publish", PHASE, times=waiting, bytes=None, makes=makes, protocol=True))
    parts.append(Activity("queue.publish", "other", bytes=None, makes=(MERGED_ALL,)))
    return Role(
        range(rank, rank + 1),
        "job",
        start=(CONNECT,),
        epoch=tuple(parts),
        end=(Activity("queue.deliver", PHASE, bytes=None),),
    )


def _validation(functions: range, model: _Model) -> Role:
    """Return the role of functions that validate; only a recording knows the number of test documents."""
    documents = Activity("object.get", "other", bytes=None)
    return Role(
        functions,
        each="epoch",
        needs=(MERGED_ALL,),
        makes=(VALIDATED,),
        start=(model.get("other", LAST), CONNECT, documents, Activity("validate", "other")),
    )
