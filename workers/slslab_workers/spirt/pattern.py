"""Who sends what to whom in SPIRT, epoch by epoch (`machine.py`, `membership.py`, `learning.py`, `rounds.py`)."""

import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from slslab_workers.patterns import (
    BUILD,
    CONNECT,
    MINIBATCH,
    OWN,
    PHASE,
    UPDATE,
    Activity,
    Kept,
    Part,
    Pattern,
    Role,
    Scope,
    Signal,
    Workload,
    store_model,
)
from slslab_workers.plan import PlanError, Value
from slslab_workers.spirt.machine import PARALLEL, STATES
from slslab_workers.spirt.roster import JOIN
from slslab_workers.training import robust

Options = Mapping[str, Value]
# Earlier plans computed a minibatch in parts.
FORMER: Options = MappingProxyType({"accumulate": 1})
# Size of an announcement at the barrier without its list of ranks, bytes.
ANNOUNCEMENT = 118
# Every function that runs a stored script first asks whether the database has it.
SCRIPT_STORED = Activity("tensor.script", "other")
EXECUTION = Signal("execution", each="epoch", of=OWN)
REQUESTS, PASSWORDS = Signal("requests", each="run"), Signal("passwords", each="run")
ANNOUNCED = Signal("announced", each="epoch")
MODEL = Signal("model", each="run", of=OWN)
CALLED_FOR_MODEL = Signal("called for model", each="run", of=OWN)


def pattern(workload: Workload) -> Pattern:
    """Return SPIRT's pattern. Each peer's state machine calls a function in each state, and b at once for the
    gradients. Peers wait for each other when they start and at the barrier, and read each other's averages.

    All peers read peer 0's average first and queue at its database. From there they move in line from database to
    database, so that each finds the next one free; the pattern has one read of n averages instead. Environments are
    assumed to stay warm, so networks are built only in the first epoch. The length of a JSON text depends on its
    numbers: as released, gradients and their mean are as long as the recorded ones on average. PlanError if peers join
    later or compute a minibatch in parts.
    """
    options, workers, parameters = workload.options, workload.workers, workload.parameters
    for name, value in {**FORMER, JOIN.name: JOIN.default}.items():
        if options.get(name, value) != value:
            raise PlanError(
                f"A run of SPIRT with --{name} {options[name]} cannot be replayed with another number of workers.",
                f"replay a run without --{name}.",
            )
    size = 4 * parameters
    momentum = options["update-rule"] == "sgd-momentum"
    everyone = range(workers)
    work = {
        "auth": _auth(workers),
        "compute_gradients": _compute_gradients(size, options),
        "average_gradients": _average_gradients(workers, workload.batches, size, options),
        "check_heartbeat": _check_heartbeat(workers),
        "update_model": _update_model(size, momentum, options),
        "trigger_next_epoch": _trigger_next_epoch(workload.epochs, size),
    }
    roles = [
        Role(everyone, "init_peers", start=_init_peers(workers)),
        Role(everyone, "init_model", needs=(CALLED_FOR_MODEL,), makes=(MODEL,), start=_init_model(size, momentum)),
        Role(everyone, kind="execution", each="epoch", needs=(EXECUTION,), start=_states(workload.batches)),
        *(_function(everyone, name, parts) for name, parts in work.items()),
    ]
    for ranks in (range(1), range(1, workers)):
        roles.append(_function(ranks, "aggregation", _aggregation(workers, size, options, leads=0 in ranks)))
        roles.append(_function(ranks, "check_convergence", _check_convergence(parameters, leads=0 in ranks)))
    # Parameters, velocity, average, and gradients until the epoch's heartbeat; the last epoch's aggregate, and for a
    # robust rule the others' averages.
    least = (2 + momentum + workload.batches) * size
    others = workers - 1 if robust.name_of(options) is not None else 0
    return Pattern(workload, tuple(roles), tensors=Kept(least, least + (1 + others) * size))


def _called(function: str) -> Signal:
    return Signal(f"{function} called", each="epoch", of=OWN)


def _answered(function: str) -> Signal:
    return Signal(f"{function} answered", each="epoch", of=OWN)


def _function(ranks: range, name: str, parts: tuple[Part, ...]) -> Role:
    each: Scope = "step" if name == STATES[PARALLEL] else "epoch"
    return Role(ranks, name, each=each, needs=(_called(name),), makes=(_answered(name),), start=parts)


def _states(batches: int) -> tuple[Part, ...]:
    """Return a transition into each state, which calls the function and waits for its result; branches run at once."""
    parts: list[Part] = []
    for state, function in STATES.items():
        transition = Activity("transition", "other", bytes=None, makes=(_called(function),), protocol=True)
        if state == PARALLEL:
            parts.append(replace(transition, makes=()))
            transition = replace(transition, times=batches)
        parts += [transition, Activity("join", "wait", needs=(_answered(function),))]
    return tuple(parts)


def _commands(times: int, *, since: int = 0, until: int | None = None) -> Activity:
    return Activity("tensor.command", "other", times=times, since=since, until=until)


def _buffers(op: str, phase: str) -> Activity:
    return Activity(op, phase, bytes=None, optional=True)


def _init_peers(workers: int) -> tuple[Part, ...]:
    others = workers - 1
    return (
        Activity("keys", "other"),
        _commands(5 + min(1, others) + others),
        Activity("queue.publish", "other", times=others, bytes=None, makes=(REQUESTS,)),
        _commands(workers),
        Activity("invoke", "wait", makes=(CALLED_FOR_MODEL,)),
        Activity("join", "wait", needs=(MODEL,)),
    )


def _init_model(size: int, momentum: bool) -> tuple[Part, ...]:
    return (
        BUILD,
        Activity("tensor.set", "other", times=2 if momentum else 1, bytes=(2 if momentum else 1) * size),
        _buffers("tensor.set", "other"),
        _commands(1),
        Activity("execute", "other", makes=(EXECUTION,)),
    )


def _auth(workers: int) -> tuple[Part, ...]:
    """Return the first epoch's admission of all others with their passwords; the tenth command reads the secret."""
    others = workers - 1
    return (
        _commands(8),
        _commands(2 + min(1, others) + 6 * others, until=1),
        Activity("queue.deliver", "other", times=others, bytes=None, needs=(REQUESTS,), until=1),
        Activity("queue.publish", "other", times=others, bytes=None, makes=(PASSWORDS,), until=1),
        _commands(2),
        Activity("queue.deliver", "other", times=others, bytes=None, needs=(PASSWORDS,), until=1),
        _commands(6 * others, until=1),
    )


def _compute_gradients(size: int, options: Options) -> tuple[Part, ...]:
    stored = None if options["gradients"] == "json" else size
    return (
        replace(BUILD, until=1),
        Activity("tensor.get", "fetch", bytes=size, protocol=True),
        _buffers("tensor.get", "fetch"),
        CONNECT,
        *MINIBATCH,
        Activity("tensor.set", PHASE, bytes=stored, protocol=True),
        _buffers("tensor.set", PHASE),
        _commands(1),
    )


def _average_gradients(workers: int, batches: int, size: int, options: Options) -> tuple[Part, ...]:
    listed = ANNOUNCEMENT + len(json.dumps(list(range(1, workers))))
    return (
        *_average(batches, size, options),
        Activity("tensor.script", PHASE, optional=True),
        _commands(7),
        Activity("queue.declare", "other"),
        Activity("queue.bind", "other"),
        Activity("queue.publish", PHASE, bytes=listed, makes=(ANNOUNCED,), protocol=True),
        Activity("queue.deliver", PHASE, times=workers, bytes=workers * listed, needs=(ANNOUNCED,), protocol=True),
        Activity("queue.delete", "other"),
        _commands(5),
    )


def _average(batches: int, size: int, options: Options) -> tuple[Part, ...]:
    """Return how a peer stores the mean of its gradients. One command asks whether there are buffers, too.

    Lua is sent with its call. If no script on tensors runs, averaging buffers looks one up.
    """
    script = Activity("tensor.script", PHASE, work=batches * size, protocol=True)
    put = Activity("tensor.set", PHASE, bytes=size, protocol=True)
    buffers_exist, buffer_script = _commands(1), replace(SCRIPT_STORED, optional=True)
    if options["gradients"] == "json":
        return replace(script, bytes=None), put, buffers_exist, buffer_script
    match options["averaging"]:
        case "naive":
            return _get(batches, size), _reduce(batches, size), put, buffers_exist, buffer_script
        case "round-trip":
            return SCRIPT_STORED, script, _get(1, size), put, buffers_exist
        case _:
            return SCRIPT_STORED, script, buffers_exist


def _reduce(vectors: int, size: int) -> Activity:
    return Activity("reduce", PHASE, times=vectors, work=vectors * size)


def _get(times: int, size: int, phase: str = PHASE, at: int = OWN) -> Activity:
    return Activity("tensor.get", phase, times=times, bytes=times * size, at=at, protocol=True)


def _check_heartbeat(workers: int) -> tuple[Part, ...]:
    others = workers - 1
    return (
        _commands(1 + min(1, others) + 2 * others),
        Activity("ping", "wait", times=workers),
        _commands(1),
        Activity("tensor.delete", "other", protocol=True),
    )


def _aggregation(workers: int, size: int, options: Options, *, leads: bool) -> tuple[Part, ...]:
    """Return how averages become the aggregate: a function reads them all. For a robust rule the others' are copied
    into the peer's database, and its script reads them all."""
    others, is_robust = workers - 1, robust.name_of(options) is not None
    read = others if is_robust else workers
    gets = (_get(read, size),) if leads else (_get(1, size, at=0), _get(read - 1, size))
    find = _commands(1 + min(1, others) + others)
    if is_robust:
        copy = Activity("tensor.set", PHASE, times=others, bytes=others * size, protocol=True)
        script = Activity("tensor.script", PHASE, work=workers * size, protocol=True)
        return find, *gets, copy, SCRIPT_STORED, script, _commands(min(1, others) + 1)
    put = Activity("tensor.set", PHASE, bytes=size, protocol=True)
    return find, *gets, _reduce(workers, size), put, _commands(1)


def _update_model(size: int, momentum: bool, options: Options) -> tuple[Part, ...]:
    """Return the update: a script or function reads parameters and aggregate and writes parameters. With momentum it
    also reads and writes the velocity."""
    read, written = (3, 2) if momentum else (2, 1)
    step: tuple[Part, ...] = (
        SCRIPT_STORED,
        Activity("tensor.script", "update", work=(read + written) * size, protocol=True),
    )
    if options["update"] == "naive":
        put = Activity("tensor.set", "update", times=written, bytes=written * size, protocol=True)
        step = (_get(read, size, "update"), UPDATE, put)
    return (_commands(3), *step, _commands(1))


def _check_convergence(parameters: int, *, leads: bool) -> tuple[Part, ...]:
    return (
        Activity("tensor.get", "other", bytes=4 * parameters, protocol=True),
        replace(BUILD, until=1),
        _commands(1 if leads else 4),
        replace(_buffers("tensor.get", "other"), at=0),
        *(() if leads else (Activity("ping", "wait", at=0, optional=True),)),
        CONNECT,
        Activity("object.get", "other", bytes=None),
        Activity("validate", "other"),
        *(store_model(parameters) if leads else ()),
        _commands(2),
    )


def _trigger_next_epoch(epochs: int, size: int) -> tuple[Part, ...]:
    return (
        _commands(1),
        Activity("execute", "other", makes=(replace(EXECUTION, ahead=1),), until=-1),
        _commands(2 + epochs, since=-1),
        Activity("tensor.get", "other", bytes=size, since=-1),
        replace(CONNECT, since=-1),
        Activity("object.put", "other", bytes=None, since=-1),
        _commands(1),
    )
