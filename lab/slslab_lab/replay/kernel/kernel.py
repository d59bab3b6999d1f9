"""The kernel: it plays a program on a profile, event by event, and records when each step began, started and ended.

It has four verbs. `schedule` puts a track on the heap of events; `advance` plays a due track until it has to wait;
`wait` queues a track at a closed gate; `signal` counts an arrival at a gate and, once the gate is open, schedules the
tracks that wait there.

It is deterministic, so the same program and profile give the same timeline on every machine. Times are whole
nanoseconds, rounded immediately after each product or quotient of IEEE numbers. Of events at the same time, the track
with the lower number comes first.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace

from slslab.errors import RunError
from slslab.predict.environment import NS, Environment
from slslab.predict.profiles.profile import Profile, to_ns
from slslab_lab.replay.kernel.environment import Pool
from slslab_lab.replay.kernel.program import Gathering, Program, Step, Track
from slslab_lab.replay.kernel.request_cost import RequestCost
from slslab_lab.replay.kernel.timeline import NEVER, Call, Timeline
from slslab_workers.trace.kinds import COMPUTE, KINDS, REQUESTS, Kind, kind_of
from slslab_workers.trace.operations import ALL_REDUCE

TRANSITION = "transition"


class ReplayError(RunError):
    """A program can't be played to its end, because its steps wait for each other."""


def play(program: Program, profile: Profile) -> Timeline:
    """Return the timeline of a program on a profile; ReplayError if tracks wait for each other forever."""
    return _Kernel(program, profile).run()


@dataclass(slots=True)
class _TrackState:
    """How far a track has been played.

    `pending` holds the rest of the current item; `groups` the remaining groups of a gathering, by number, and `ready`
    the groups with an open gate and the time at which it opened. `begin` is when the track reached the current step,
    `listed` when it last listed, `pause` the seconds after its next poll, `last` its latest entry. `due` is when it is
    played next, NEVER while it waits: of its events in the heap only the one at `due` counts. `on_ramp` says whether it
    waits until another environment of its function may start.
    """

    index: int
    track: Track
    position: int = 0
    pending: deque[Step] = field(default_factory=deque)
    groups: dict[int, tuple[Step, ...]] = field(default_factory=dict)
    ready: list[tuple[int, int]] = field(default_factory=list)
    begin: int = NEVER
    listed: int = NEVER
    pause: float = 0.0
    last: int = NEVER
    due: int = 0
    on_ramp: bool = False
    environment: Environment | None = None


class _Kernel:
    def __init__(self, program: Program, profile: Profile) -> None:
        self.program = program
        self.profile = profile
        self.timeline = Timeline(program, profile, [Call() for _ in program.tracks])
        self.states = [_TrackState(index, track) for index, track in enumerate(program.tracks)]
        # For each gate: the arrivals still missing, the time of the last one, and the entry that made it.
        self.missing = list(program.gates)
        self.opened = [0] * len(program.gates)
        self.opener = [NEVER] * len(program.gates)
        # For each gate, the tracks that wait there, with the number of the group in the gathering (NEVER: the track
        # itself).
        self.waiting: dict[int, list[tuple[int, int]]] = {}
        self.costs: dict[str, RequestCost | None] = {}
        # For each channel, and each worker with servers of its own: a heap of when the servers will be free (ns).
        self.servers: dict[tuple[str, int], list[int]] = {}
        self.pool = Pool(profile)
        # Tracks that wait for concurrency, in order of arrival.
        self.held: deque[int] = deque()
        # By function, a heap of the tracks that wait until another environment may start.
        self.ramps: dict[str, list[int]] = {}
        self.transition_ns = to_ns(profile.transition_ms)
        self.task_ns = to_ns(profile.task_ms)
        # Milliseconds for 10³ bytes are microseconds per byte.
        self.task_ns_per_byte = 1e3 * profile.task_ms_per_kb.value if profile.task_ms_per_kb else 0.0
        # Events: a time and a track, or NEVER when an environment becomes free.
        self.heap: list[tuple[int, int]] = [(0, index) for index in range(len(self.states))]

    def run(self) -> Timeline:
        while self.heap:
            now, index = heappop(self.heap)
            if index < 0:
                self._release(now)
            elif self.states[index].due == now:
                self.states[index].due = NEVER
                self._advance(self.states[index], now)
        stuck = [track for track, call in zip(self.program.tracks, self.timeline.calls, strict=True) if call.ended < 0]
        if stuck:
            raise ReplayError(
                f"{len(stuck)} of {len(self.states)} tracks never end, the first being {stuck[0].name} of worker "
                f"{stuck[0].worker}: the trace doesn't contain what it waits for.",
                "run the plan again.",
            )
        return self.timeline

    def _schedule(self, state: _TrackState, time: int) -> None:
        state.due = time
        heappush(self.heap, (time, state.index))

    def _advance(self, state: _TrackState, now: int) -> None:
        """Play a track until it waits for others, or until it asks a server that others may ask first."""
        call = self.timeline.calls[state.index]
        if call.began < 0:
            if not self._start(state, call, now):
                return
            now = call.began
        while (step := self._next_step(state, now)) is not None:
            if state.begin < 0:
                state.begin = now
            opened = self._wait(step.awaits, state.index)
            if opened is None:
                return
            cost = self._cost(step.op, state.track.name)
            if opened > now or (cost is not None and cost.servers and self.heap and self.heap[0] < (now, state.index)):
                # Requests reach servers in the order of time.
                self._schedule(state, max(opened, now))
                return
            now = self._perform(state, step, cost, opened)
            state.pending.popleft()
            state.begin = NEVER
        if not state.groups:
            self._finish(state, call, now)
        elif state.ready:
            self._schedule(state, state.ready[0][0])

    def _next_step(self, state: _TrackState, now: int) -> Step | None:
        if not state.pending:
            if not state.groups:
                if state.position == len(state.track.steps):
                    return None
                item = state.track.steps[state.position]
                state.position += 1
                # The pauses between lists grow until all groups have arrived.
                state.pause = self.program.polls.first
                if isinstance(item, Step):
                    state.pending.append(item)
                    return item
                self._gather(state, item)
            if state.begin < 0:
                state.begin = now
            if not state.ready or state.ready[0][0] > now:
                return None
            state.pending.extend(state.groups.pop(heappop(state.ready)[1]))
        return state.pending[0]

    def _gather(self, state: _TrackState, gathering: Gathering) -> None:
        state.groups = dict(enumerate(gathering.groups))
        state.listed = NEVER
        for number, group in enumerate(gathering.groups):
            (gate,) = group[0].awaits
            if self.missing[gate]:
                self.waiting.setdefault(gate, []).append((state.index, number))
            else:
                heappush(state.ready, (self.opened[gate], number))

    def _wait(self, gates: tuple[int, ...], index: int) -> int | None:
        latest = 0
        for gate in gates:
            if self.missing[gate]:
                self.waiting.setdefault(gate, []).append((index, NEVER))
                return None
            latest = max(latest, self.opened[gate])
        return latest

    def _signal(self, gates: tuple[int, ...], now: int, entry: int) -> None:
        for gate in gates:
            self.missing[gate] -= 1
            if now >= self.opened[gate]:
                self.opened[gate], self.opener[gate] = now, entry
            if not self.missing[gate]:
                opened = self.opened[gate]
                for index, number in self.waiting.pop(gate, ()):
                    state = self.states[index]
                    if number >= 0:
                        heappush(state.ready, (opened, number))
                        # A track that is playing another group will find this one afterwards.
                        if state.pending or 0 <= state.due <= opened:
                            continue
                    self._schedule(state, opened)

    def _start(self, state: _TrackState, call: Call, now: int) -> bool:
        track = state.track
        if call.accepted < 0:
            opened = self._wait(track.awaits, state.index)
            if opened is None:
                return False
            if opened > now:
                self._schedule(state, opened)
                return False
            call.accepted = now
            state.last = self._opener(track.awaits)
        if track.kind == "execution":
            call.began = now
        elif track.kind == "instance":
            instance = self.profile.instance(track.name)
            speeds = {**dict.fromkeys(KINDS, instance.host_speed.value), COMPUTE: instance.compute_speed.value}
            state.environment = Environment(math.inf, track.memory_mb, self.profile, speeds)
            call.began = now + round(instance.boot_s.value * NS)
        else:
            self._lease(state, call, now)
            state.environment = call.environment
        return call.began >= 0

    def _lease(self, state: _TrackState, call: Call, now: int) -> None:
        """Give an invocation an environment, or queue it for concurrency or its function's ramp."""
        allowed = self.pool.take(state.track, call, now) if self.pool.free else None
        ramp = self.ramps.setdefault(state.track.name, [])
        if allowed is not None:
            if not state.on_ramp:
                state.on_ramp = True
                heappush(ramp, state.index)
            # The first track schedules the next once it has its environment.
            if ramp[0] == state.index:
                self._schedule(state, allowed)
            return
        if state.on_ramp:
            state.on_ramp = False
            ramp.remove(state.index)
            heapify(ramp)
            if ramp:
                self._schedule(self.states[ramp[0]], now)
        if call.environment is None:
            self.held.append(state.index)

    def _finish(self, state: _TrackState, call: Call, now: int) -> None:
        call.ended = now
        if call.environment is not None:
            self.pool.give_back(state.track.name, now, call.environment)
            heappush(self.heap, (now, NEVER))
        self._signal(state.track.opens, now, state.last)

    def _release(self, now: int) -> None:
        self.pool.release()
        if self.held:
            self._schedule(self.states[self.held.popleft()], now)

    def _cost(self, op: str, track: str) -> RequestCost | None:
        """Return the cost of an operation's requests; an all-reduce depends on the instance type, the track's name."""
        key = f"{op} {track}" if op == ALL_REDUCE else op
        if key not in self.costs:
            self.costs[key] = RequestCost.of(self.profile, op, track) if "." in op else None
        return self.costs[key]

    def _perform(self, state: _TrackState, step: Step, cost: RequestCost | None, opened: int) -> int:
        timeline, begin, polls = self.timeline, state.begin, 0
        start = max(begin, opened)
        if step.polling and cost is not None:
            start, polls = self._poll(state, step, begin, opened)
        if step.op == TRANSITION:
            end = start + self.transition_ns + self._task(step)
        elif cost is None:
            end = self._compute(state, start, step.cpu_ns, kind_of(step.op), step.parallel)
        elif step.requests <= 1 or opened <= begin:
            end = self._request(state, step, cost, start)
        else:
            # Only the last request waits for the gates.
            duration = self._request(state, step, cost, begin) - begin
            end = max(begin + duration, start + -(-duration // step.requests))
        waited = opened > begin
        after = self._opener(step.awaits) if waited else state.last
        state.last = len(timeline.steps)
        timeline.add(state.index, step, begin, start, end, polls, after, opened if waited else NEVER)
        # A request takes effect half-way: others see it while the answer is on its way back.
        self._signal(step.opens, end - cost.half if cost is not None else end, state.last)
        return end

    def _task(self, step: Step) -> int:
        """Return the additional ns of a transition that invokes functions; all branches begin together."""
        return self.task_ns + round(self.task_ns_per_byte * step.bytes / max(1, step.requests)) if step.opens else 0

    def _opener(self, gates: tuple[int, ...]) -> int:
        return self.opener[max(gates, key=lambda gate: self.opened[gate])] if gates else NEVER

    def _compute(self, state: _TrackState, now: int, cpu_ns: int, kind: Kind, parallel: bool = False) -> int:
        return state.environment.compute(now, cpu_ns, kind, parallel) if state.environment else now

    def _request(self, state: _TrackState, step: Step, cost: RequestCost, now: int) -> int:
        """Return when all requests of a step have been answered, if they are made one after another from now on."""
        owner = state.track.worker if step.at < 0 else step.at
        arrived = now + self._delay(cost, owner, step, now)
        moved = round(cost.per_byte * step.bytes)
        if (environment := state.environment) is not None:
            cpu_ns = max(step.cpu_ns, round(cost.cpu_per_byte * step.bytes * environment.speeds[REQUESTS]))
            moved = max(environment.compute(arrived, cpu_ns, REQUESTS) - arrived, moved)
            moved = environment.transfer(arrived, step.bytes, cost.sends, moved)
        latency = cost.latency * max(1, step.requests)
        if cost.first and state.environment is not None and step.op not in state.environment.seen:
            state.environment.seen.add(step.op)
            latency += cost.first
        return arrived + latency + step.server_cpu_ns + moved

    def _delay(self, cost: RequestCost, owner: int, step: Step, now: int) -> int:
        """Return how long (ns) a step's requests, arriving now, wait for the channel's servers, or for worker `owner`'s
        if each worker has its own."""
        if not cost.servers:
            return 0
        queue = self.servers.setdefault((cost.channel, owner if cost.per_worker else -1), [0] * cost.servers)
        served = max(now, queue[0])
        busy = cost.service * max(1, step.requests) + round(cost.service_per_byte * step.bytes) + step.server_cpu_ns
        heapreplace(queue, served + busy)
        return served - now

    def _poll(self, state: _TrackState, step: Step, begin: int, opened: int) -> tuple[int, int]:
        """Return when the successful request starts, and the number of failed polls (with pauses) before it."""
        now, polls = begin, 0
        listing = step.polling == "list"
        if listing and opened <= state.listed:
            return begin, 0
        cost = self._cost(step.polls, state.track.name)
        assert cost is not None
        cpu_ns = self.program.poll_cpu_ns.get(step.polling, 0)
        factor, limit = self.program.polls.factor, self.program.polls.limit
        latest = opened - cpu_ns - cost.half
        while now < latest:
            if state.pause == limit and state.environment:
                now, more = state.environment.repeat(now, cpu_ns, cost.latency + round(limit * NS), latest)
                polls += more
                break
            now = self._compute(state, now, cpu_ns, REQUESTS) + cost.latency + round(state.pause * NS)
            state.pause = min(state.pause * factor, limit)
            polls += 1
        if listing:
            # The list that finds something counts as a separate request.
            state.listed = now
            now = self._compute(state, now, cpu_ns, REQUESTS) + cost.latency
            polls += 1
        return now, polls
