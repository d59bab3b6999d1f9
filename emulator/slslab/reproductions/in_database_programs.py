"""SPIRT's averaging and update as small programs that the replay kernel plays: naive in a function, or by a script.

Bytes and requests are those of the protocol; CPU seconds are given. One function whose environment is warm, against
its worker's own database; what it takes before its first request and after its last one is no part of it."""

from dataclasses import dataclass

from slslab.replay.environment import NS
from slslab.replay.kernel import play
from slslab.replay.profiles import Profile
from slslab.replay.program import Program, Step, Track
from slslab.reproductions.in_database_arms import AVERAGE, UPDATE

PHASES = {AVERAGE: "synchronise", UPDATE: "update"}


@dataclass(frozen=True)
class Exchange:
    """One operation on vectors of `size` bytes, with `count` gradients, in a function of `memory_mb`."""

    operation: str
    size: int
    count: int
    memory_mb: int

    @property
    def gets(self) -> int:
        """How many vectors a naive function fetches: all gradients, or parameters and a gradient."""
        return self.count if self.operation == AVERAGE else 2

    @property
    def moved(self) -> int:
        """Bytes that a naive function fetches and puts back."""
        return (self.gets + 1) * self.size

    def naive(self, get_cpu_s: float, arithmetic_cpu_s: float, put_cpu_s: float) -> Program:
        """Fetch, compute, put back; CPU seconds of the client in all gets, in the arithmetic, in the put."""
        phase = PHASES[self.operation]
        share = round(get_cpu_s * NS / self.gets)
        gets = [Step("tensor.get", phase, cpu_ns=share, requests=1, bytes=self.size) for _ in range(self.gets)]
        compute = Step(self.operation, phase, cpu_ns=round(arithmetic_cpu_s * NS))
        put = Step("tensor.set", phase, cpu_ns=round(put_cpu_s * NS), requests=1, bytes=self.size)
        return self._program((*gets, compute, put))

    def in_database(self, script_cpu_s: float) -> Program:
        """One request for a script that takes so many CPU seconds on the database's host."""
        script_ns = round(script_cpu_s * NS)
        return self._program((Step("tensor.script", PHASES[self.operation], requests=1, server_cpu_ns=script_ns),))

    def _program(self, steps: tuple[Step, ...]) -> Program:
        track = Track(self.operation, "invocation", 0, steps, self.memory_mb)
        return Program("spirt", 1, (track,), (), recorded=False)


def seconds(program: Program, profile: Profile) -> float:
    """Modelled seconds from the first request to the end of the last step."""
    timeline = play(program, profile)
    return (max(timeline.end) - min(timeline.begin)) / NS
