"""The kernel: plays a program on a profile, event by event, and writes down when each step began, started and ended.

It is deterministic: times are whole nanoseconds, made of them by products and quotients of IEEE numbers that are
rounded at once, and of events at the same time the track with the lower number comes first. So the same program and
profile give the same timeline on every machine."""

from collections import deque
from heapq import heapify, heappop, heappush

from slslab.replay.costs import Cost, Servers
from slslab.replay.environment import NS, Environment, Pool
from slslab.replay.playing import Playing
from slslab.replay.profiles import Profile
from slslab.replay.program import Gathering, Program, Step
from slslab.replay.timeline import NEVER, Call, Timeline

TRANSITION = "transition"


class ReplayError(RuntimeError):
    """A program that cannot be played to its end: its steps wait for each other."""


def play(program: Program, profile: Profile) -> Timeline:
    """The timeline of a program on a profile; ReplayError if it comes to a halt before its end."""
    return _Player(program, profile).play()


class _Player:
    def __init__(self, program: Program, profile: Profile) -> None:
        self.program = program
        self.profile = profile
        self.timeline = Timeline(program, profile, [Call() for _ in program.tracks])
        self.tracks = [Playing(index, track) for index, track in enumerate(program.tracks)]
        self.missing = list(program.gates)
        self.opened = [0] * len(program.gates)
        self.opener = [NEVER] * len(program.gates)
        # Who waits for a gate: a track, and of a gathering the group.
        self.waiting: dict[int, list[tuple[int, int]]] = {}
        self.costs: dict[str, Cost | None] = {}
        self.servers = Servers()
        self.pool = Pool(profile)
        # Tracks that wait for concurrency, in the order in which they came.
        self.held: deque[int] = deque()
        # Tracks that wait until more environments of their function may start, as a heap.
        self.lines: dict[str, list[int]] = {}
        self.transition_ns = round(profile.transition_ms.value * 1e6)
        self.heap: list[tuple[int, int]] = [(0, index) for index in range(len(self.tracks))]

    def play(self) -> Timeline:
        while self.heap:
            now, index = heappop(self.heap)
            if index < 0:
                self._release(now)
            elif self.tracks[index].due == now:
                self.tracks[index].due = NEVER
                self._advance(self.tracks[index], now)
        stuck = [track for track, call in zip(self.program.tracks, self.timeline.calls, strict=True) if call.ended < 0]
        if stuck:
            raise ReplayError(
                f"{len(stuck)} of {len(self.tracks)} tracks never end, the first being {stuck[0].name} of worker "
                f"{stuck[0].worker}: the trace lacks what it waits for."
            )
        return self.timeline

    def _wake(self, playing: Playing, time: int) -> None:
        playing.due = time
        heappush(self.heap, (time, playing.index))

    def _advance(self, playing: Playing, now: int) -> None:
        """Play a track from here to where it waits for others, or asks for what others ask for, too."""
        call = self.timeline.calls[playing.index]
        if call.began < 0:
            if not self._start(playing, call, now):
                return
            now = call.began
        while True:
            step = self._next(playing, now)
            if step is None:
                if not playing.group:
                    self._finish(playing, call, now)
                elif playing.ready:
                    self._wake(playing, playing.ready[0][0])
                return
            if playing.begin < 0:
                playing.begin = now
            opened = self._when_open(step.awaits, playing.index)
            if opened is None:
                return
            cost = self._cost(step.op)
            if opened > now or (
                cost is not None and cost.servers and self.heap and self.heap[0] < (now, playing.index)
            ):
                # What is shared is asked for in the order of time.
                self._wake(playing, max(opened, now))
                return
            now = self._play(playing, step, cost, opened)
            playing.pending.popleft()
            playing.begin = NEVER

    def _next(self, playing: Playing, now: int) -> Step | None:
        """The step that a track is at; None at its end, or while it gathers and nothing has come."""
        if not playing.pending:
            if not playing.group:
                if playing.position == len(playing.track.steps):
                    return None
                item = playing.track.steps[playing.position]
                playing.position += 1
                # Whoever lists goes on with longer pauses until everything has come.
                playing.pause = self.program.polls[0]
                if isinstance(item, Step):
                    playing.pending.append(item)
                    return item
                self._gather(playing, item)
            if playing.begin < 0:
                playing.begin = now
            if not playing.ready or playing.ready[0][0] > now:
                return None
            playing.pending.extend(playing.group.pop(heappop(playing.ready)[1]))
        return playing.pending[0]

    def _gather(self, playing: Playing, gathering: Gathering) -> None:
        playing.group = dict(enumerate(gathering.groups))
        playing.listed = NEVER
        for number, group in enumerate(gathering.groups):
            (gate,) = group[0].awaits
            if self.missing[gate]:
                self.waiting.setdefault(gate, []).append((playing.index, number))
            else:
                heappush(playing.ready, (self.opened[gate], number))

    def _when_open(self, gates: tuple[int, ...], index: int) -> int | None:
        """When the last of these gates opened; None if one is closed, which will wake the track."""
        latest = 0
        for gate in gates:
            if self.missing[gate]:
                self.waiting.setdefault(gate, []).append((index, NEVER))
                return None
            latest = max(latest, self.opened[gate])
        return latest

    def _arrive(self, gates: tuple[int, ...], now: int, entry: int) -> None:
        for gate in gates:
            self.missing[gate] -= 1
            if now >= self.opened[gate]:
                self.opened[gate], self.opener[gate] = now, entry
            if not self.missing[gate]:
                opened = self.opened[gate]
                for index, number in self.waiting.pop(gate, ()):
                    playing = self.tracks[index]
                    if number >= 0:
                        heappush(playing.ready, (opened, number))
                        # It goes on by itself if it is busy with another group.
                        if playing.pending or 0 <= playing.due <= opened:
                            continue
                    self._wake(playing, opened)

    def _start(self, playing: Playing, call: Call, now: int) -> bool:
        """Whether a track could begin: what it waits for is there, and an environment, if it needs one."""
        track = playing.track
        if call.accepted < 0:
            opened = self._when_open(track.awaits, playing.index)
            if opened is None:
                return False
            if opened > now:
                self._wake(playing, opened)
                return False
            call.accepted = now
            playing.last = self._opener(track.awaits)
        if track.kind == "execution":
            call.began = now
            return True
        if track.kind == "instance":
            known = self.profile.instance(track.name)
            playing.environment = Environment.of_instance(known, track.memory_mb, self.profile)
            call.began = now + round(known.boot_s.value * NS)
            return True
        taken = self.pool.take(track, now)
        line = self.lines.setdefault(track.name, [])
        if isinstance(taken, int):
            if not playing.in_line:
                playing.in_line = True
                heappush(line, playing.index)
            # The first in line sees to the next one.
            if line[0] == playing.index:
                self._wake(playing, taken)
            return False
        if playing.in_line:
            playing.in_line = False
            if line[0] == playing.index:
                heappop(line)
            else:
                line.remove(playing.index)
                heapify(line)
            if line:
                self._wake(self.tracks[line[0]], now)
        if taken is None:
            self.held.append(playing.index)
            return False
        playing.environment = taken.environment
        call.began, call.init_ns, call.cold = taken.began, taken.init_ns, taken.cold
        return True

    def _finish(self, playing: Playing, call: Call, now: int) -> None:
        call.ended = now
        if playing.track.kind == "invocation":
            assert playing.environment is not None
            self.pool.give_back(playing.track.name, now, playing.environment)
            heappush(self.heap, (now, NEVER))
        self._arrive(playing.track.opens, now, playing.last)

    def _release(self, now: int) -> None:
        """An environment is free again, and with it some concurrency."""
        self.pool.release()
        if self.held:
            self._wake(self.tracks[self.held.popleft()], now)

    def _cost(self, op: str) -> Cost | None:
        if op not in self.costs:
            self.costs[op] = Cost.of(self.profile, op) if "." in op else None
        return self.costs[op]

    def _play(self, playing: Playing, step: Step, cost: Cost | None, opened: int) -> int:
        """Play a step whose gates are open; returns its end."""
        timeline, begin, polls = self.timeline, playing.begin, 0
        start = max(begin, opened)
        if step.polling and cost is not None:
            start, polls = self._poll(playing, step, begin, opened)
        if step.op == TRANSITION:
            end = start + self.transition_ns
        elif cost is None:
            end = self._burn(playing, start, step.cpu_ns, step.parallel)
        elif step.requests <= 1 or opened <= begin:
            end = self._transfer(playing, step, cost, start)
        else:
            # Those before the last one need not wait for all.
            whole = self._transfer(playing, step, cost, begin) - begin
            end = max(begin + whole, start + -(-whole // step.requests))
        last = self._opener(step.awaits) if opened > begin else playing.last
        playing.last = len(timeline.steps)
        timeline.add(playing.index, step, (begin, start, end, polls, last))
        # A request takes effect half-way: its answer is on the way back when others see what it did.
        self._arrive(step.opens, end - cost.half if cost is not None else end, playing.last)
        return end

    def _opener(self, gates: tuple[int, ...]) -> int:
        """The entry that opened the last one of these gates."""
        return self.opener[max(gates, key=lambda gate: self.opened[gate])] if gates else NEVER

    def _burn(self, playing: Playing, now: int, cpu_ns: int, parallel: bool = False) -> int:
        return playing.environment.burn(now, cpu_ns, parallel) if playing.environment else now

    def _transfer(self, playing: Playing, step: Step, cost: Cost, now: int) -> int:
        requests = max(1, step.requests)
        owner = playing.track.worker if step.at < 0 else step.at
        delay = self.servers.delay(cost, owner, step, now)
        computed = self._burn(playing, now + delay, step.cpu_ns) - now - delay
        moved = max(computed, round(cost.per_byte * step.bytes))
        first = 0
        if cost.first and playing.environment is not None and step.op not in playing.environment.seen:
            playing.environment.seen.add(step.op)
            first = cost.first
        return now + delay + first + cost.latency * requests + step.server_cpu_ns + moved

    def _poll(self, playing: Playing, step: Step, begin: int, opened: int) -> tuple[int, int]:
        """When the request that succeeds starts, and how many polls before it found nothing, each with its pause."""
        now, polls = begin, 0
        listing = step.polling == "list"
        if listing and opened <= playing.listed:
            return begin, 0
        cost = self._cost(f"object.{step.polling}")
        assert cost is not None
        cpu_ns = self.program.poll_cpu_ns.get(step.polling, 0)
        _, factor, limit = self.program.polls
        latest = opened - cpu_ns - cost.half
        while now < latest:
            if playing.pause == limit and playing.environment:
                now, more = playing.environment.repeat(now, cpu_ns, cost.latency + round(limit * NS), latest)
                polls += more
                break
            now = self._burn(playing, now, cpu_ns) + cost.latency + round(playing.pause * NS)
            playing.pause = min(playing.pause * factor, limit)
            polls += 1
        if listing:
            # One that finds something, too.
            playing.listed = now
            now = self._burn(playing, now, cpu_ns) + cost.latency
            polls += 1
        return now, polls
