"""Processes in memory: fakes of the kernel and of a function's runtime, as the emulator sees them.

A process is a strand that asks the emulator's Runtime API for invocations, without a socket, and runs the handler. It
dies like a process that is killed, or that runs out of its control group's memory.
"""

import json
import os
import re
import signal
from collections.abc import Callable
from importlib import import_module
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, NoReturn

from tests.memory.clock import Clock, Strand

from slslab.aws.limits import MB
from slslab.host.procfs import Sample
from slslab.lambda_.environment import Environment
from slslab.lambda_.runtime_api import ACCEPTED, PREFIX, Answer, RuntimeApi
from slslab_workers.channels.injection import Injector
from slslab_workers.faults.plan import FaultPlan
from slslab_workers.trace.event import Event
from slslab_workers.training import models, worker

# How long what happens takes, s, drawn evenly between: an initialisation, to take memory until there is no more, and
# until the emulator is told that the kernel has killed for want of it.
INIT_S, FILL_S, TOLD_S = (0.05, 0.4), (0.01, 0.3), (0.0, 0.02)
# What a process holds of its memory size.
HELD = (0.3, 0.9)
# What modules of handlers keep from one invocation to the next, and how it begins.
KEPT: tuple[tuple[ModuleType, str, Callable[[], Any]], ...] = (
    (worker, "_warm", lambda: None),
    (models, "_kept", dict),
)


class Api(RuntimeApi):
    """An environment's Runtime API, which its process calls; `served` has them by address."""

    served: ClassVar[dict[str, "Api"]] = {}

    def start(self) -> str:
        address = f"memory:{len(self.served)}"
        self.served[address] = self
        return address

    def stop(self) -> None:
        for connection in list(self.connections):
            self.forget(connection)

    def given_up(self) -> bool:
        return False

    def read(self) -> None:
        """Everything has been read."""

    def ask(self, process: Any, method: bytes, path: str, body: bytes = b"") -> Answer | None:
        """Answer a request of the process; None if it waits for an invocation."""
        parts = {"method": method, "path": PREFIX + path.encode(), "body": body}
        request: Any = SimpleNamespace(**parts, headers={}, arrived_ns=process.clock.now_ns)
        return self.answer(process, request)


class Accounts:
    """A control group's accounts, in which the kernel counts what it has killed for want of memory; `held` are bytes.

    `used_ns` is the CPU time of the group's processes that have ended.
    """

    enforces_memory = True

    def __init__(self) -> None:
        self.held = self.kills = self.used_ns = 0
        self.process: Process | None = None

    def tasks(self) -> int:
        return 0

    def cpu_ns(self) -> int:
        return self.used_ns + (self.process.cpu_ns if self.process is not None else 0)

    def throttled_ns(self) -> int:
        return 0

    def out_of_memory_kills(self) -> int:
        return self.kills

    def peak_bytes(self) -> int:
        return self.held

    def held_bytes(self) -> tuple[int, int]:
        return self.held, 0

    def reset_peak(self) -> None:
        """The peak is what is held now."""


class Process(Strand):
    """A function's runtime: it asks for invocations and runs the handler, until it dies."""

    def __init__(self, kernel: "Kernel", sandbox: "Sandbox", environment: Environment) -> None:
        self._kernel, self._sandbox, self._environment = kernel, sandbox, environment
        self._api = Api.served[environment.variables()["AWS_LAMBDA_RUNTIME_API"]]
        self._api.connections.add(self)  # type: ignore[arg-type]
        self._invocation = ""
        self.injector = Injector(kernel.faults, self.trace)
        # What handlers ask of their variables, and what their modules keep.
        self._variables = {
            "SLSLAB_CLOCK_FILE": str(environment.home / "clock"),
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": environment.variables()["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"],
        }
        self._kept = [begin() for _, _, begin in KEPT]
        module, _, name = environment.function.handler.rpartition(".")
        # Here, and not in its turn: what is imported for the first time may ask the time.
        self._handler = getattr(import_module(module), name)
        super().__init__(kernel.clock, self._live)

    def enter(self) -> None:
        """Have this process's variables, and what its modules keep, in place of another's."""
        before = self._kernel.latest
        if before is not self:
            if before is not None:
                before._kept = [getattr(module, name) for module, name, _ in KEPT]
            for (module, name, _), value in zip(KEPT, self._kept, strict=True):
                setattr(module, name, value)
            os.environ.update(self._variables)
            self._kernel.latest = self

    def trace(self, record: dict[str, Any]) -> None:
        """Write an event to the trace, unless it is dead."""
        if not self.gone:
            self._environment.trace(json.dumps(record).encode() + b"\n")

    def die(self, kind: str) -> NoReturn:
        """Die as a fault says: by a signal, by taking more memory than there is, or by doing nothing more."""
        if kind == "timeout":
            self._kernel.died[self._invocation] = kind
            while True:
                self.rest(60)
        told_s = 0.0
        if kind == "out-of-memory":
            self.rest(self._kernel.drawn(FILL_S))
            self._sandbox.accounts.held = self._environment.function.memory_mb * MB
            self._sandbox.accounts.kills += 1
            told_s = self._kernel.drawn(TOLD_S)
        self._kernel.died[self._invocation] = kind
        self.clock.loop.call_later(told_s, self._sandbox.exit)
        self.end()

    def respond(self, answer: Answer) -> None:
        """Receive the invocation that it waits for, as a connection of the Runtime API does."""
        self._given.set_result(answer)

    def _live(self) -> None:
        self.rest(self._kernel.drawn(INIT_S))
        while True:
            head, payload = self._next()
            self._invocation = re.findall(r"lambda-runtime-aws-request-id: (\S+)", head)[0]
            context = SimpleNamespace(aws_request_id=self._invocation, function_name=self._environment.function.name)
            try:
                kind, document = "response", self._handler(json.loads(payload), context)
            except Exception as error:
                kind, document = "error", {"errorMessage": str(error), "errorType": type(error).__name__}
            report = json.dumps(document).encode()
            answer = self._api.ask(self, b"POST", f"invocation/{self._invocation}/{kind}", report)
            assert answer is ACCEPTED

    def _next(self) -> Answer:
        self._given = self.clock.loop.create_future()
        answer = self._api.ask(self, b"GET", "invocation/next")
        given: Answer = self.wait_for(self._given) if answer is None else answer
        return given


class Sandbox:
    """What confines a process; see `slslab.lambda_.hosts.Sandbox`."""

    failure, freezes, ended_ns = "", True, None

    def __init__(self, kernel: "Kernel", environment: Environment, former: "Sandbox | None") -> None:
        self.began = kernel.clock.loop.create_future()
        self.exited = kernel.clock.loop.create_future()
        # It has its predecessor's control group.
        self.accounts: Accounts = Accounts() if former is None else former.accounts
        self.accounts.used_ns += 0 if former is None else former.process.cpu_ns
        self.accounts.held = round(kernel.drawn(HELD) * environment.function.memory_mb * MB)
        self.process: Process = Process(kernel, self, environment)
        self.accounts.process = self.process
        self.streams = ()
        self.began.set_result(Sample(kernel.clock.now_ns, 0, 0, {}))

    def pids(self) -> list[int]:
        return []

    async def owns(self, _client: object, _server: object) -> bool:
        return True

    def files_bytes(self) -> int:
        return 0

    async def limit_cpu(self, _share: float) -> None:
        """What it computes takes no time."""

    async def freeze(self) -> None:
        """It waits anyway."""

    async def thaw(self) -> None:
        """It waits anyway."""

    def exit(self) -> None:
        """Have it known that the process was killed."""
        if not self.exited.done():
            self.exited.set_result(-signal.SIGKILL)

    async def end(self) -> None:
        self.process.kill()
        self.exit()

    async def close(self) -> None:
        """Nothing is left of it."""


class Kernel:
    """The processes of a run.

    `faults` are what they meet, `died` says which invocations met a death, and of what kind; `latest` is the process
    that had a turn last.
    """

    address = "memory"

    def __init__(self, clock: Clock, random: Random, faults: FaultPlan) -> None:
        self.clock = clock
        self.faults = faults
        self.died: dict[str, str] = {}
        self.latest: Process | None = None
        self._random = random
        Api.served.clear()

    def drawn(self, between: tuple[float, float]) -> float:
        """Return a number, drawn evenly between two."""
        return self._random.uniform(*between)

    def before_event(self, event: Event) -> None:
        """Have the running process meet its faults (`Tracer.fault`)."""
        if (process := self._current()) is not None:
            process.injector.at(event)

    def before_request(self, event: Event) -> None:
        """Have the running process meet the faults of its request (`Channel.fault`)."""
        if (process := self._current()) is not None:
            process.injector.request(event)

    def copies(self, event: Event) -> int:
        """Return how often the running process sends a message (`Channel.copies`)."""
        process = self._current()
        return 1 if process is None else process.injector.copies(event)

    def sink(self) -> Callable[[dict[str, Any]], None]:
        """Return a function that writes the running process's events."""
        process = self._current()
        assert process is not None
        return process.trace

    def die(self, kind: str) -> NoReturn:
        """Have the running process die."""
        process = self._current()
        assert process is not None
        process.die(kind)

    def _current(self) -> Process | None:
        """Return the running process, or None."""
        strand = self.clock.current
        return strand if isinstance(strand, Process) and not strand.gone else None
