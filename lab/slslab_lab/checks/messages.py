"""Rules about the gradients and updates in an architecture's protocol: none lost, counted twice or altered."""

from collections import Counter
from collections.abc import Iterator, Mapping

from slslab.run.metrics import grouped
from slslab.run.metrics import protocol as counted
from slslab.run.run import Run
from slslab_lab.checks.exchange import Exchange
from slslab_lab.checks.violation import NotChecked, Violation
from slslab_workers.architecture import architectures
from slslab_workers.channels.choice import traced
from slslab_workers.patterns.messages import READING, Message, Step, key_of
from slslab_workers.plan import PlanError
from slslab_workers.trace.operations import KEYED, PROTOCOL


def exchange_of(run: Run) -> Exchange:
    """Return the exchange of a run; NotChecked if the checks don't know its architecture or channel."""
    name = run.plan.architecture
    architecture = architectures().get(name)
    if architecture is None:
        # The options that a plan of schema 1 leaves out are unknown.
        raise NotChecked(f"{name} is not installed")
    if traced(run.plan.options) not in KEYED:
        raise NotChecked(f"the checks can't follow messages through {traced(run.plan.options)}")
    try:
        protocol = architecture.protocol(run)
    except PlanError as error:
        raise NotChecked(error.message) from error
    if protocol is None:
        raise NotChecked(f"{name} doesn't declare the keys of its messages")
    return Exchange(run.events, protocol)


def check_lost(run: Run, exchange: Exchange) -> Iterator[Violation]:
    """Check that every message of the protocol is made, and taken by every worker that must take it."""
    for message in exchange.messages.values():
        maker, step = message.name.maker, message.name[2:]
        if message.name not in exchange.made:
            sentence = f"{who(run, maker)} made no {_described(message)}"
            yield _at("lost", sentence, maker, step, exchange.after(maker, step))
            continue
        due = Counter(message.takers)
        took = Counter(exchange.events[number]["worker"] for number in exchange.taken.get(message.name, ()))
        for taker, missing in (due - took).items():
            often = "did not take" if missing == due[taker] else "did not always take"
            sentence = f"{who(run, taker)} {often} the {_described(message)}, from {who(run, maker, inside=True)}"
            yield _at("lost", sentence, taker, step, exchange.made[message.name][0])
    for each in sorted(exchange.protocol.drawn - set(_drawn(exchange))):
        yield _at("lost", f"{who(run, each[0])} took no model", each[0], each[1:], exchange.after(each[0], each[1:]))
    for rank, epoch, number in sorted(exchange.protocol.minibatches - set(run.computed)):
        sentence = f"{who(run, rank)} computed no gradient"
        yield _at("lost", sentence, rank, (epoch, number), exchange.after(rank, (epoch, number)))


def check_twice(run: Run, exchange: Exchange) -> Iterator[Violation]:
    """Check that no worker makes a message twice, or counts it twice."""
    for message in exchange.messages.values():
        step = message.name[2:]
        for number in exchange.made.get(message.name, ())[1:]:
            sentence = f"{who(run, message.name.maker)} made a second {_described(message)}"
            yield _at("twice", sentence, message.name.maker, step, number)
        if message.takers is None:
            continue
        left = Counter(message.takers)
        for number in exchange.taken.get(message.name, ()):
            taker = exchange.events[number]["worker"]
            left[taker] -= 1
            if taker in message.takers and left[taker] < 0:
                sentence = f"{who(run, taker)} took the {_described(message)} more often than the protocol says"
                yield _at("twice", sentence, taker, step, number)
    for each, numbers in run.computed.items():
        for number in numbers[1:]:
            yield _at("twice", f"{who(run, each[0])} computed a second gradient", each[0], each[1:], number)
    for each, numbers in _drawn(exchange).items():
        for number in numbers[1:] if each in exchange.protocol.drawn else ():
            yield _at("twice", f"{who(run, each[0])} took a second model", each[0], each[1:], number)


def check_stray(run: Run, exchange: Exchange) -> Iterator[Violation]:
    """Check that no worker makes, takes or deletes messages that the protocol doesn't give it."""
    for name, numbers in exchange.made.items():
        if name not in exchange.messages:
            sentence = f"{who(run, name.maker)} made {name.key}, which isn't part of the protocol there"
            yield _at("stray", sentence, name.maker, name[2:], numbers[0])
    for message in exchange.messages.values():
        for number in exchange.taken.get(message.name, ()):
            event = exchange.events[number]
            if message.takers is None:
                allowed = (event["worker"], event["epoch"], event["step"]) in exchange.protocol.drawn
            else:
                here = message.at in (None, exchange.step_of(event))
                allowed = event["worker"] in message.takers and here
            if not allowed:
                sentence = f"{who(run, event['worker'])} took the {_described(message)}, which isn't meant for it"
                yield Violation.by(event, "stray", sentence)
    # In an incomplete trace, the worker may have been killed before its events were written.
    for number in exchange.orphans if run.complete else ():
        event = exchange.events[number]
        yield Violation.by(event, "stray", f"{who(run, event['worker'])} took {key_of(event)}, which no worker made")


def check_altered(run: Run, exchange: Exchange) -> Iterator[Violation]:
    """Check that each message arrives as it was made: same version, same size, the size of the whole vector."""
    for message in exchange.messages.values():
        if message.name not in exchange.made:
            continue
        made = exchange.source(message.name)
        if message.size is not None and made["bytes"] != message.size:
            sentence = f"The {_described(message)}, has {made['bytes']:,} bytes instead of {message.size:,}"
            yield Violation.by(made, "altered", sentence)
        for number in exchange.taken.get(message.name, ()):
            taken = exchange.events[number]
            if taken["op"] in READING or made["op"] == "tensor.script":
                continue
            if taken["bytes"] != made["bytes"] or taken["etag"] != made["etag"]:
                sentence = f"{who(run, taken['worker'])} took a changed version of the {_described(message)}"
                yield Violation.by(taken, "altered", sentence)


def check_early(run: Run, exchange: Exchange) -> Iterator[Violation]:
    """Check that no message is taken before it is made, or deleted before every worker that must take it has it."""
    for message in exchange.messages.values():
        taken = [exchange.events[number] for number in exchange.taken.get(message.name, ())]
        if message.name in exchange.made:
            begun_ns = min(exchange.events[number]["start_ns"] for number in exchange.made[message.name])
            for event in taken:
                if event["end_ns"] < begun_ns:
                    sentence = f"{who(run, event['worker'])} took the {_described(message)}, before it was made"
                    yield Violation.by(event, "early", sentence)
        for number in exchange.deleted.get(message.name.key, ()):
            deletion = exchange.events[number]
            late = [event for event in taken if event["end_ns"] > deletion["end_ns"]]
            if late and message.takers is not None:
                waiting = who(run, late[0]["worker"], inside=True)
                sentence = f"The {_described(message)}, was deleted before {waiting} had it"
                yield Violation.by(deletion, "early", sentence)


def check_counts(run: Run) -> Iterator[Violation]:
    """Check that requests and bytes of the training protocol match the architecture's closed form."""
    plan = run.plan
    architecture = architectures().get(plan.architecture)
    if architecture is None:
        raise NotChecked(f"{plan.architecture} is not installed")
    epochs, rest = _epochs(run)
    if rest or run.parameters is None:
        raise NotChecked("training ended within an epoch" if rest else "the model's size is not known")
    try:
        expected = architecture.counts_in(run, epochs)
    except NotImplementedError:
        raise NotChecked(f"{plan.architecture} doesn't say how many messages it sends") from None
    except PlanError as error:
        raise NotChecked(error.message) from error
    if unknown := expected.operations.keys() - set(PROTOCOL):
        raise NotChecked(f"traces don't count {min(unknown)} as an operation of the training protocol")
    found = counted(run.events)
    for op in sorted(expected.operations.keys() | found["counts"].keys()):
        here, there = found["counts"].get(op, 0), expected.operations.get(op, 0)
        if here != there:
            yield Violation("counts", f"The training protocol made {here:,} {op}; its formula says {there:,}.")


def _epochs(run: Run) -> tuple[int, int]:
    """Return the number of trained epochs, and of the steps after them."""
    steps = max((epoch * run.plan.batches + step + 1 for _, epoch, step in run.computed), default=None)
    return divmod(run.plan.epochs * run.plan.batches if steps is None else steps, run.plan.batches)


def who(run: Run, worker: int, *, inside: bool = False) -> str:
    """Return the name for a worker's number, for the start of a sentence or for inside it."""
    architecture = architectures().get(run.plan.architecture)
    if worker < 0:
        name = "the driver"
    else:
        name = f"worker {worker}" if architecture is None else architecture.participant(run.plan, worker)
    return name if inside else name[0].upper() + name[1:]


def step_name(step: Step) -> str:
    """Return the name of a step."""
    epoch, number = step
    if epoch < 0:
        return "before the first step"
    return f"epoch {epoch}" if number < 0 else f"epoch {epoch}, step {number}"


def _described(message: Message) -> str:
    return f"{message.kind} of {step_name(message.name[2:])}"


def _drawn(exchange: Exchange) -> Mapping[tuple[int, int, int], list[int]]:
    """Return the events that took a message any worker may take, by worker, epoch and step."""
    anyone = [name for name, message in exchange.messages.items() if message.takers is None]
    events = (exchange.events[number] for name in anyone for number in exchange.taken.get(name, ()))
    steps = (((event["worker"], event["epoch"], event["step"]), event["event"]) for event in events)
    return grouped(sorted(steps))


def _at(rule: str, sentence: str, worker: int, step: Step, event: int | None) -> Violation:
    return Violation(rule, f"{sentence}.", worker, *step, event)
