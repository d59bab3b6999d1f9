"""Two formulas for a run's time, without playing it: LambdaML's analytic model, and the closed form.

LambdaML's model (SIGMOD 2021, Section 5.3) for w workers is

    FaaS(w) = t_F(w) + s ÷ B_S3 + R·f(w)·[k(w)·(m/w ÷ B + L) + C ÷ w],  k(w) = 3w - 2,

for workers that each merge a part; k(w) for one that merges all is derived here. The closed form has the model's start
and compute, and all requests of the architecture's pattern on the longest way through each step. Every figure is
modelled.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from slslab.predict.environment import NS
from slslab.predict.profiles.profile import Profile
from slslab_lab.replay.kernel.request_cost import RequestCost
from slslab_lab.replay.kernel.timeline import Timeline
from slslab_lab.replay.measured import Measured
from slslab_lab.replay.programs.step_costs import StepCosts, name_of, unit_of
from slslab_workers.channels.choice import moved_bytes
from slslab_workers.patterns import MINIBATCH, Activity, Chain, Role, Slot, Workload, activities, slots
from slslab_workers.trace.operations import MOVES
from slslab_workers.training.algorithms import exchange_every, message_length

FETCH = MINIBATCH[0].op
SYNCHRONISE = "synchronise"
# The request that sends a vector to a parameter server.
PUSH = "parameter.push"
# Phases whose computations count as C; the model ignores computations of an exchange.
COMPUTED = ("fetch", "compute", "update")
# What the model leaves out, grouped by what includes it: closed form and replay, only replay, or neither.
LEFT_OUT = {
    "closed_form": (
        "requests without a message: lists, deletes, the latency of each minibatch's get, stored models and results",
    ),
    "replay": (
        "polls: the pauses until a worker finds its message, and the latency of each request",
        "CPU time of requests, of packing messages and of adding them up (most of all rank 0's), at the memory's share",
        "stragglers and the spread of cold starts: start and compute are means",
        "limits of concurrency and of starting environments: all workers start at once",
        "servers that workers share, and a bound on a function's network",
    ),
    "neither": ("additional rounds that more workers need for the same loss: f(w) is 1",),
}


@dataclass(frozen=True)
class Constants:
    """Inputs of the formulas: figures of one worker in the recorded run on a profile.

    `start_s` is t_F, from acceptance to the first request; `data_bytes` is s, all minibatches that the worker gets;
    `compute_s` is R·C ÷ w, all that it computes; `rounds` is R, the number of exchanges; `message_bytes` is m. `put`
    and `get` are the channel's operations that move messages.
    """

    start_s: float
    data_bytes: float
    compute_s: float
    rounds: int
    message_bytes: int
    put: str
    get: str


def constants(run: Measured, timeline: Timeline) -> Constants:
    """Return the constants of a run, from its timeline as recorded."""
    workload = run.costs.workload
    put, get = _channel(run.costs)
    first: dict[int, float] = {}
    data, compute = (defaultdict[int, float](float) for _ in range(2))
    for track, step, begin, end in zip(timeline.track, timeline.steps, timeline.begin, timeline.end, strict=True):
        if "." in step.op:
            first.setdefault(track, (begin - timeline.calls[track].accepted) / NS)
        if step.phase in COMPUTED:
            data[track] += step.bytes if step.op == FETCH else 0
            compute[track] += 0 if "." in step.op else (end - begin) / NS
    return Constants(
        start_s=fmean(first.values()),
        data_bytes=fmean(data.values()),
        compute_s=fmean(compute.values()),
        rounds=workload.steps // exchange_every(workload.options, workload.batches),
        message_bytes=moved_bytes(workload.options, 4 * message_length(workload.options, workload.parameters)),
        put=put,
        get=get,
    )


def communication(timeline: Timeline) -> float:
    """Return the mean seconds that a worker spends on exchanges in a timeline, waits included."""
    spans = zip(timeline.steps, timeline.begin, timeline.end, strict=True)
    total = sum(end - begin for step, begin, end in spans if step.phase == SYNCHRONISE)
    return total / NS / timeline.program.workers


def analytic(chain: Chain, known: Constants, profile: Profile) -> dict[str, float]:
    """Return the model's seconds of a run, and how many of them workers spend exchanging messages (`communication`),
    given the recorded number of minibatches per worker.

    A round's requests follow each other as in `chain`; with a parameter server, all workers push and then pull at once
    (derived). The model has one L and one B; here a put uses the profile's figures for puts, and a get those for gets.
    """
    if known.put == PUSH:
        chain = Chain(1, 1)
    put_ns, get_ns = (_request_ns(profile, op, known.message_bytes / chain.parts) for op in (known.put, known.get))
    round_ns = chain.puts * put_ns + chain.gets * get_ns
    communication_s = known.rounds * round_ns / NS
    load_s = known.data_bytes * RequestCost.of(profile, FETCH).per_byte / NS
    return {
        "seconds": known.start_s + load_s + communication_s + known.compute_s,
        "communication": communication_s,
    }


def closed_form(costs: StepCosts, workers: int, known: Constants, profile: Profile) -> dict[str, float]:
    """Return the same figures from start, compute, and latency and transfer of all requests of the pattern, for this
    number of workers.

    Each step takes the longest way through the requests that wait for each other. Then all workers begin the next step
    together.
    """
    pattern = costs.pattern(workers=workers)
    steps: dict[tuple[int, int], list[tuple[Role, list[Activity]]]] = defaultdict(list)
    for role in pattern.roles:
        for at, each in _steps(role, pattern.workload):
            steps[at].append((role, each))
    total_ns = exchanged_ns = 0.0
    for step in steps.values():
        total_ns += _longest(costs, profile, step)
        exchange = [(role, [each for each in done if each.phase == SYNCHRONISE]) for role, done in step]
        exchanged_ns += _longest(costs, profile, exchange)
    return {"seconds": known.start_s + known.compute_s + total_ns / NS, "communication": exchanged_ns / NS}


def _channel(costs: StepCosts) -> tuple[str, str]:
    """Return the operations that put messages into the channel and get them: the first of a round each."""
    # A single worker may not read any message.
    roles, slot = costs.pattern(workers=2).roles, Slot(0, 0, 0, 1)
    exchanged = [each for role in roles for step in role.steps for each in activities(step, slot) if each.protocol]
    moves = {MOVES.get(activity.op, ""): activity.op for activity in reversed(exchanged)}
    return moves["in"], moves["out"]


def _steps(role: Role, workload: Workload) -> Iterator[tuple[tuple[int, int], list[Activity]]]:
    """Yield a worker's activities by epoch and step; activities after an epoch form an additional step."""
    for number, (slot, parts) in enumerate(slots(role, workload)):
        if slot.epoch < 0:
            at = (-1 if number == 0 else workload.epochs, 0)
        else:
            at = (slot.epoch, workload.batches if slot.step < 0 else slot.step)
        yield at, list(activities(parts, slot))


def _longest(costs: StepCosts, profile: Profile, step: list[tuple[Role, list[Activity]]]) -> float:
    """Return how long all requests of a step take, in ns. Each request follows its worker's last one and waits for the
    messages that it needs from the same step."""
    timed = [[(activity, _activity_ns(costs, profile, role, activity)) for activity in each] for role, each in step]
    ready: dict[str, float] = {}
    while True:
        made: dict[str, float] = {}
        ends = []
        for worker in timed:
            now = 0.0
            for activity, ns in worker:
                now = max([now, *(ready.get(signal.name, 0.0) for signal in activity.needs if not signal.ahead)]) + ns
                for signal in activity.makes:
                    made[signal.name] = max(made.get(signal.name, 0.0), now)
            ends.append(now)
        if made == ready:
            return max(ends)
        ready = made


def _activity_ns(costs: StepCosts, profile: Profile, role: Role, activity: Activity) -> float:
    if "." not in activity.op:
        return 0.0
    size = activity.bytes
    if size is None:
        known = costs.of(unit_of(role), name_of(activity), activity.phase, first=False)
        size = round(known.bytes * activity.times)
    return _request_ns(profile, name_of(activity), size, activity.times)


def _request_ns(profile: Profile, op: str, size: float, times: int = 1) -> float:
    cost = RequestCost.of(profile, op)
    return times * cost.latency + size * cost.per_byte
