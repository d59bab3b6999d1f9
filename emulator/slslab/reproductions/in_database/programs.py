"""SPIRT's averaging and update as small programs that the replay kernel plays: naive in a function, or by a script.

Bytes and requests are those of the protocol; CPU seconds are given. One function whose environment is warm, against
its worker's own database; what it takes before its first request and after its last one is not included."""

from dataclasses import dataclass

from slslab.replay.kernel.environment import NS
from slslab.replay.kernel.kernel import play
from slslab.replay.kernel.program import Program, Step, Track
from slslab.replay.profiles.profile import Profile
from slslab.reproductions.in_database.arms import AVERAGE, UPDATE

FLOAT_BYTES = 4
PHASES = {AVERAGE: "synchronise", UPDATE: "update"}


@dataclass(frozen=True)
class Exchange:
    """One operation on vectors of so many `parameters`, float32, with `count` gradients, in a function of
    `memory_mb`."""

    operation: str
    parameters: int
    count: int
    memory_mb: int

    @property
    def size(self) -> int:
        """Return bytes of a vector."""
        return FLOAT_BYTES * self.parameters

    @property
    def numbers(self) -> int:
        """Return how many numbers are read."""
        return self.gets * self.parameters

    @property
    def averages(self) -> bool:
        """Return whether it is the averaging of gradients."""
        return self.operation == AVERAGE

    @property
    def gets(self) -> int:
        """Return how many vectors a naive function fetches: all gradients, or parameters and a gradient."""
        return self.count if self.averages else 2

    @property
    def moved(self) -> int:
        """Return bytes that a naive function fetches and puts back."""
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
        """Return a request for a script that takes so many CPU seconds on the database's host."""
        script_ns = round(script_cpu_s * NS)
        return self._program((Step("tensor.script", PHASES[self.operation], requests=1, server_cpu_ns=script_ns),))

    def naive_json(self, text_bytes: int, decode_cpu_s: float) -> Program:
        """Fetch gradients of so many bytes of JSON, decode and average them, put the mean back as a tensor."""
        phase = PHASES[self.operation]
        gets = [Step("tensor.get", phase, requests=1, bytes=text_bytes) for _ in range(self.gets)]
        return self._program((*gets, *self._put_back(phase, decode_cpu_s)))

    def round_trip(self, script_s: float, mean_bytes: int, decode_cpu_s: float) -> Program:
        """Return a script whose mean leaves the database as JSON, is decoded, and put back as a tensor."""
        phase, script_ns = PHASES[self.operation], round(script_s * NS)
        script = Step("tensor.script", phase, requests=1, bytes=mean_bytes, server_cpu_ns=script_ns)
        return self._program((script, *self._put_back(phase, decode_cpu_s)))

    def _put_back(self, phase: str, cpu_s: float) -> tuple[Step, Step]:
        compute = Step(self.operation, phase, cpu_ns=round(cpu_s * NS))
        return compute, Step("tensor.set", phase, requests=1, bytes=self.size)

    def _program(self, steps: tuple[Step, ...]) -> Program:
        track = Track(self.operation, "invocation", 0, steps, self.memory_mb)
        return Program("spirt", 1, (track,), (), recorded=False)


def seconds(program: Program, profile: Profile) -> float:
    """Return modelled seconds from the first request to the end of the last step."""
    timeline = play(program, profile)
    return (max(timeline.end) - min(timeline.begin)) / NS
