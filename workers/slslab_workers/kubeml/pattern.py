"""Messages and waits of KubeML, round by round (`function.py`, `job.py`)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from slslab_workers.kubeml.settings import PARALLELISM, STATIC
from slslab_workers.kubeml.shares import Epoch, K
from slslab_workers.patterns import BUILD, CONNECT, OWN, UPDATE, Activity, Part, Pattern, Role, Signal, Workload
from slslab_workers.plan import PlanError
from slslab_workers.training import robust

PHASE = "synchronise"
INITIAL = Signal("initial", each="run")
MERGED_ALL, VALIDATED = Signal("merged all", each="epoch"), Signal("validated", each="epoch")


def pattern(workload: Workload) -> Pattern:
    """Return the pattern: in each epoch every function trains, stores its model and reports, interval by interval; the
    job gets the models of a round in rank order, stores their mean, and answers those that wait.

    Environments are assumed to stay warm, so that the model is built in the first epoch only. PlanError for a number of
    functions that depends on how long epochs take, and for a model whose entries are not known.
    """
    if workload.options[PARALLELISM.name] != STATIC:
        raise PlanError(
            "How many functions train in an epoch of this run depended on how long epochs took.",
            f"replay a run with --parallelism {STATIC}.",
        )
    if not workload.tensors:
        raise PlanError("How many tensors this model has is not known before it is built.", "use another model.")
    samples = workload.workers * workload.batches * workload.batch_size
    return pattern_of(workload, Epoch(workload.workers, samples, workload.batch_size, int(workload.options[K.name])))


def pattern_of(workload: Workload, epoch: Epoch) -> Pattern:
    """Return the pattern of epochs of any number of samples, whatever the workload's minibatches hold."""
    model = _Model(workload.tensors, 4 * (workload.parameters + workload.buffers))
    end = VALIDATED if workload.evaluation else MERGED_ALL
    roles = [
        Role(range(1), "init", makes=(INITIAL,), start=(BUILD, model.set("other"))),
        *_training(epoch, model, (INITIAL, replace(end, ahead=-1))),
        _job(epoch, model, workload.workers, robust.name_of(workload.options) is not None),
    ]
    if workload.evaluation:
        roles.append(_validation(range(workload.workers), model))
    return Pattern(workload, tuple(roles))


@dataclass(frozen=True)
class _Model:
    """Requests for a model of so many entries and bytes, in the one database that all share."""

    tensors: int
    size: int

    def get(self, phase: str) -> Activity:
        return Activity("tensor.get", phase, times=self.tensors, bytes=self.size, at=0, protocol=True)

    def set(self, phase: str) -> Activity:
        return Activity("tensor.set", phase, times=self.tensors, bytes=self.size, at=0, protocol=True)


def _reported(round_: int, function: int) -> Signal:
    return Signal(f"round {round_} reported", each="epoch", of=function)


def _merged(round_: int) -> Signal:
    return Signal(f"round {round_} merged", each="epoch")


def _training(epoch: Epoch, model: _Model, needs: tuple[Signal, ...]) -> Iterator[Role]:
    """Yield the roles of the functions that train, alike if they have as many documents and steps in all intervals."""

    def shape(function: int) -> list[tuple[int, int]]:
        return [(len(documents), epoch.steps(documents)) for documents in epoch.intervals(function)]

    for intervals, group in groupby(range(epoch.functions), shape):
        ranks = list(group)
        parts: list[Part] = [CONNECT, replace(BUILD, until=1)]
        for number, (documents, steps) in enumerate(intervals):
            parts += [
                model.get("fetch"),
                Activity("object.get", "fetch", times=documents, bytes=None),
                Activity("prepare", "fetch", times=steps),
                Activity("compute", "compute", times=steps),
                replace(UPDATE, times=steps),
                model.set(PHASE),
                Activity("queue.publish", PHASE, bytes=None, makes=(_reported(number, OWN),), protocol=True),
            ]
            if number < len(intervals) - 1:
                parts.append(Activity("queue.deliver", PHASE, bytes=None, needs=(_merged(number),), protocol=True))
        yield Role(range(ranks[0], ranks[-1] + 1), each="epoch", needs=needs, start=tuple(parts))


def _job(epoch: Epoch, model: _Model, rank: int, compares: bool) -> Role:
    """Return the job's role: one invocation for the whole run, which the driver ends.

    If it compares models, by a robust rule, it only holds each, and all work is in the merge.
    """
    parts: list[Part] = []
    rounds = [*epoch.rounds, []]
    for number, reporting in enumerate(rounds[:-1]):
        for function in reporting:
            needs = (_reported(number, function),)
            parts.append(Activity("queue.deliver", PHASE, bytes=None, needs=needs, protocol=True))
            parts += [model.get(PHASE), Activity("reduce", PHASE, work=0 if compares else model.size)]
        work = len(reporting) * model.size if compares else model.size
        parts += [Activity("reduce", PHASE, work=work), model.set(PHASE)]
        if waiting := len(rounds[number + 1]):
            makes = (_merged(number),)
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
    """Return the role of the functions that validate, on test documents whose number only a recording knows."""
    return Role(
        functions,
        each="epoch",
        needs=(MERGED_ALL,),
        makes=(VALIDATED,),
        start=(
            model.get("other"),
            CONNECT,
            Activity("object.get", "other", bytes=None),
            Activity("validate", "other"),
        ),
    )
