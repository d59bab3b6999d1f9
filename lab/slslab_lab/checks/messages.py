"""What each architecture's protocol says about gradients and updates: none lost, none counted twice, none altered."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from slslab.run.metrics import grouped
from slslab.run.metrics import protocol as counted
from slslab.run.run import Place, Run
from slslab_lab.checks.exchange import READING, Exchange, Name, Parcel, Protocol, key_of
from slslab_lab.checks.gradssharding import gradssharding
from slslab_lab.checks.kubeml import kubeml
from slslab_lab.checks.lambdaml import allreduce, gloo, gpu, scatterreduce
from slslab_lab.checks.mlless import mlless
from slslab_lab.checks.spirt import spirt
from slslab_lab.checks.violation import NotChecked, Violation
from slslab_workers.architecture import architectures
from slslab_workers.channels.choice import traced
from slslab_workers.kubeml.settings import job_rank
from slslab_workers.plan import Plan, PlanError
from slslab_workers.spirt.roster import JOIN
from slslab_workers.trace.operations import KEYED, PROTOCOL

# What the messages of an architecture are checked by; one that is not here has its `counts` alone.
PROTOCOLS: Mapping[str, Callable[[Run], Protocol]] = {
    "allreduce": allreduce,
    "gloo": gloo,
    "gpu": gpu,
    "gradssharding": gradssharding,
    "kubeml": kubeml,
    "mlless": mlless,
    "scatterreduce": scatterreduce,
    "spirt": spirt,
}


def exchange_of(run: Run) -> Exchange:
    """Return the exchange of a run; NotChecked if nothing is known of what its architecture or channel exchanges."""
    if run.plan.architecture not in PROTOCOLS:
        raise NotChecked(f"{run.plan.architecture} has no protocol among the checks")
    if run.plan.architecture not in architectures():
        # Its options that a plan of schema 1 leaves out are not known.
        raise NotChecked(f"{run.plan.architecture} is not installed")
    if traced(run.plan.options) not in KEYED:
        raise NotChecked(f"what travels by {traced(run.plan.options)} is not known to the checks")
    return Exchange(run.events, PROTOCOLS[run.plan.architecture](run))


def check_lost(run: Run, exchange: Exchange) -> Iterator[Violation]:
    """Everything that the protocol asks for is made, and taken by all who must."""
    _require_complete(run)
    for parcel in exchange.parcels.values():
        maker, place = parcel.name.maker, parcel.name[2:]
        if parcel.name not in exchange.made:
            sentence = f"{who(run, maker)} made no {_described(parcel)}"
            yield _at("lost", sentence, maker, place, exchange.after(maker, place))
            continue
        due = Counter(parcel.takers)
        for taker, missing in (due - _takers(exchange, parcel.name)).items():
            often = "did not take" if missing == due[taker] else "took too seldom"
            sentence = f"{who(run, taker)} {often} the {_described(parcel)}, of {who(run, maker, inside=True)}"
            yield _at("lost", sentence, taker, place, exchange.made[parcel.name][0])
    for each in sorted(exchange.protocol.drawn - set(_drawn(exchange))):
        yield _at("lost", f"{who(run, each[0])} took no model", each[0], each[1:], exchange.after(each[0], each[1:]))
    for rank, epoch, step in sorted(exchange.protocol.minibatches - set(run.computed)):
        sentence = f"{who(run, rank)} computed no gradient"
        yield _at("lost", sentence, rank, (epoch, step), exchange.after(rank, (epoch, step)))


def check_twice(run: Run, exchange: Exchange) -> Iterator[Violation]:
    """Nothing is made twice, nor counted twice by anyone."""
    for parcel in exchange.parcels.values():
        place = parcel.name[2:]
        for number in exchange.made.get(parcel.name, ())[1:]:
            sentence = f"{who(run, parcel.name.maker)} made a second {_described(parcel)}"
            yield _at("twice", sentence, parcel.name.maker, place, number)
        if parcel.takers is None:
            continue
        left = Counter(parcel.takers)
        for number in exchange.taken.get(parcel.name, ()):
            taker = exchange.events[number]["worker"]
            left[taker] -= 1
            if taker in parcel.takers and left[taker] < 0:
                sentence = f"{who(run, taker)} took the {_described(parcel)} once more than the protocol has it"
                yield _at("twice", sentence, taker, place, number)
    for each, numbers in run.computed.items():
        for number in numbers[1:]:
            yield _at("twice", f"{who(run, each[0])} computed a second gradient", each[0], each[1:], number)
    for each, numbers in _drawn(exchange).items():
        for number in numbers[1:] if each in exchange.protocol.drawn else ():
            yield _at("twice", f"{who(run, each[0])} took a second model", each[0], each[1:], number)


def check_stray(run: Run, exchange: Exchange) -> Iterator[Violation]:
    """No worker makes, takes or deletes what the protocol does not give it."""
    for name, numbers in exchange.made.items():
        if name not in exchange.parcels:
            sentence = f"{who(run, name.maker)} made {name.key}, which the protocol does not have there"
            yield _at("stray", sentence, name.maker, name[2:], numbers[0])
    for parcel in exchange.parcels.values():
        for number in exchange.taken.get(parcel.name, ()):
            event = exchange.events[number]
            if parcel.takers is None:
                allowed = (event["worker"], event["epoch"], event["step"]) in exchange.protocol.drawn
            else:
                here = parcel.at in (None, exchange.place(event))
                allowed = event["worker"] in parcel.takers and here
            if not allowed:
                sentence = f"{who(run, event['worker'])} took the {_described(parcel)}, which is not for it there"
                yield Violation.by(event, "stray", sentence)
    # Who made it may have been killed before the trace had that.
    for number in exchange.orphans if run.complete else ():
        event = exchange.events[number]
        yield Violation.by(event, "stray", f"{who(run, event['worker'])} took {key_of(event)}, which nobody made")


def check_altered(run: Run, exchange: Exchange) -> Iterator[Violation]:
    """What is taken is what was made: the same version, with as many bytes, which are those of the whole vector."""
    for parcel in exchange.parcels.values():
        if parcel.name not in exchange.made:
            continue
        made = exchange.source(parcel.name)
        if parcel.size is not None and made["bytes"] != parcel.size:
            sentence = f"The {_described(parcel)}, has {made['bytes']:,} bytes, and should have {parcel.size:,}"
            yield Violation.by(made, "altered", sentence)
        for number in exchange.taken.get(parcel.name, ()):
            taken = exchange.events[number]
            if taken["op"] in READING or made["op"] == "tensor.script":
                continue
            if taken["bytes"] != made["bytes"] or taken["etag"] != made["etag"]:
                sentence = f"{who(run, taken['worker'])} took another {_described(parcel)} than was made"
                yield Violation.by(taken, "altered", sentence)


def check_early(run: Run, exchange: Exchange) -> Iterator[Violation]:
    """Nothing is taken before it is made, nor deleted before all who must have taken it."""
    for parcel in exchange.parcels.values():
        taken = [exchange.events[number] for number in exchange.taken.get(parcel.name, ())]
        if parcel.name in exchange.made:
            begun_ns = min(exchange.events[number]["start_ns"] for number in exchange.made[parcel.name])
            for event in taken:
                if event["end_ns"] < begun_ns:
                    sentence = f"{who(run, event['worker'])} took the {_described(parcel)}, before it was made"
                    yield Violation.by(event, "early", sentence)
        for number in exchange.deleted.get(parcel.name.key, ()):
            deletion = exchange.events[number]
            late = [event for event in taken if event["end_ns"] > deletion["end_ns"]]
            if late and parcel.takers is not None:
                waiting = who(run, late[0]["worker"], inside=True)
                sentence = f"The {_described(parcel)}, was deleted before {waiting} had it"
                yield Violation.by(deletion, "early", sentence)


def check_counts(run: Run) -> Iterator[Violation]:
    """Requests and bytes of the training protocol are those of the architecture's closed form."""
    _require_complete(run)
    plan = run.plan
    architecture = architectures().get(plan.architecture)
    if architecture is None:
        raise NotChecked(f"{plan.architecture} is not installed")
    if reason := _uncounted(run):
        raise NotChecked(reason)
    epochs, rest = _epochs(run)
    if rest or run.parameters is None:
        raise NotChecked("training ended within an epoch" if rest else "the model's size is not known")
    try:
        expected = architecture.counts_of(_as_joined(run, epochs), epochs, run.parameters)
    except NotImplementedError:
        raise NotChecked(f"{plan.architecture} states no number of its messages") from None
    except PlanError as error:
        raise NotChecked(error.message) from error
    if unknown := expected.operations.keys() - set(PROTOCOL):
        raise NotChecked(f"no trace counts {min(unknown)} as an operation of the training protocol")
    found = counted(run.events)
    for op in sorted(expected.operations.keys() | found["counts"].keys()):
        here, there = found["counts"].get(op, 0), expected.operations.get(op, 0)
        if here != there:
            yield Violation(
                "counts", f"There are {here:,} {op} of the training protocol, and {there:,} in its formula."
            )


def _as_joined(run: Run, epochs: int) -> Plan:
    """Return the plan with the epochs in which peers joined, which may be later than it says; `epochs` for never."""
    joins = None if run.document is None else run.document["details"].get("joins")
    if not joins:
        return run.plan
    joined = ((each["worker"], epochs if each["epoch"] is None else each["epoch"]) for each in joins)
    join = ",".join(f"{rank}:{epoch}" for rank, epoch in joined)
    return replace(run.plan, options={**run.plan.options, JOIN.name: join})


def _uncounted(run: Run) -> str:
    """Return why an architecture's closed form is not that of the run."""
    options = run.plan.options
    if run.plan.architecture == "mlless" and (options["filter"] != "none" or options["remove-threshold"] != "off"):
        return "its filter, or the clock, decides how many messages there are"
    if run.plan.architecture == "spirt" and run.failing is not None:
        return "a peer or a message was lost"
    if run.document is not None and run.document["details"].get("failed_functions"):
        return "a function failed"
    return ""


def _epochs(run: Run) -> tuple[int, int]:
    """Return the epochs that were trained, and the steps beyond them."""
    steps = max((epoch * run.plan.batches + step + 1 for _, epoch, step in run.computed), default=None)
    return divmod(run.plan.epochs * run.plan.batches if steps is None else steps, run.plan.batches)


def who(run: Run, worker: int, *, inside: bool = False) -> str:
    """Return what a worker's number means, for the beginning of a sentence or the inside of one."""
    workers, architecture = run.plan.workers, run.plan.architecture
    if worker < 0:
        name = "The driver"
    elif worker == workers and architecture == "mlless":
        name = "The supervisor"
    elif architecture == "kubeml" and worker == job_rank(run.plan):
        name = "The job"
    elif worker >= workers and architecture == "gradssharding":
        name = f"Aggregator {worker - workers}"
    else:
        name = f"Worker {worker}"
    return name[0].lower() + name[1:] if inside else name


def where(place: Place) -> str:
    """Return the name of a step."""
    epoch, step = place
    if epoch < 0:
        return "before the first step"
    return f"epoch {epoch}" if step < 0 else f"epoch {epoch}, step {step}"


def _described(parcel: Parcel) -> str:
    return f"{parcel.kind} of {where(parcel.name[2:])}"


def _takers(exchange: Exchange, name: Name) -> Counter[int]:
    return Counter(exchange.events[number]["worker"] for number in exchange.taken.get(name, ()))


def _drawn(exchange: Exchange) -> Mapping[tuple[int, int, int], list[int]]:
    """Return the events that took a parcel of those that whoever comes may take, by worker, epoch and step."""
    events = (exchange.events[number] for number in exchange.taken_by_anyone())
    return grouped(((event["worker"], event["epoch"], event["step"]), event["event"]) for event in events)


def _require_complete(run: Run) -> None:
    if not run.complete:
        raise NotChecked("the run did not come to its end, so that what is missing is no loss")


def _at(rule: str, sentence: str, worker: int, place: Place, event: int | None) -> Violation:
    return Violation(rule, f"{sentence}.", worker, *place, event)
