"""The environments of one node: what a cluster's actor does there for the emulator, on one event loop.

Everything that confines, freezes and meters them is local to the node, and so is their Runtime API.
"""

import asyncio
import os
import time
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from slslab.cluster.messages import EXITED, Batch, Done, Opening, Order
from slslab.cluster.relay import Relay
from slslab.errors import StartFailed
from slslab.host.output import FunctionLog
from slslab.host.pressure import Pressure
from slslab.host.processes import raise_descriptor_limit
from slslab.host.session import Session
from slslab.lambda_.configuration import Function
from slslab.lambda_.environment import Environment, EnvironmentHost, State, environment_id
from slslab.lambda_.outcome import Outcome
from slslab.lambda_.packages import Code, unpacked
from slslab.lambda_.process_sandbox import ProcessSandboxes
from slslab.lambda_.runtime_api import NextInvocation

# What happens within this time travels together.
TOGETHER_S = 0.02
# Ray gives an actor as few threads as processors, and functions would inherit that.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Outbox:
    """What has happened and has not been sent yet."""

    def __init__(self) -> None:
        self._number = 0
        self._happened: list[tuple[str, dict[str, Any] | bytes]] = []
        self._any = asyncio.Event()

    def add(self, environment: str, what: dict[str, Any] | bytes) -> None:
        """Add a trace record, or bytes of a log."""
        self._happened.append((environment, what))
        self._any.set()

    def take(self) -> Batch:
        """Return what there is; it will not be sent again."""
        self._number += 1
        happened, self._happened = self._happened, []
        self._any.clear()
        return Batch(self._number, happened)

    async def wait(self) -> None:
        """Wait until there is something, and a moment for what comes with it."""
        await self._any.wait()
        await asyncio.sleep(TOGETHER_S)


class ForwardedLog(FunctionLog):
    """The log of an environment, which the emulator keeps."""

    def __init__(self, environment: str, outbox: Outbox) -> None:
        super().__init__(Path(os.devnull), 0)
        self._environment = environment
        self._outbox = outbox

    def write(self, chunk: bytes) -> None:
        """Send bytes on."""
        self._outbox.add(self._environment, chunk)


class Node:
    """One node's environments; every method but `open` needs it to be open."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._parts = ExitStack()
        self._environments: dict[str, Environment] = {}
        self._packages: dict[str, Path] = {}
        # Of the packages' folders; several are stored at once.
        self._numbers = count()
        self._happened: set[int] = set()

    async def open(self) -> dict[str, Any]:
        """Prepare the node, and return how it confines environments, `hierarchy` and `isolation`, and its `cores`.

        HostError if it cannot have any.
        """
        for name in THREADS:
            os.environ.pop(name, None)
        raise_descriptor_limit()
        opening, parts = self._opening, self._parts
        self._outbox = Outbox()
        self._session = parts.enter_context(Session())
        self._sandboxes = parts.enter_context(
            ProcessSandboxes(
                self._session,
                opening.limits,
                isolate=opening.isolate,
                modules=opening.template,
                strict_packages=opening.strict_packages,
            )
        )
        self._relay: Relay | None = None
        if opening.relay is not None:
            key = self._session.home / "relay.pem"
            with open(key, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(opening.relay_key)
            self._relay = parts.enter_context(Relay.there(opening.relay, key, self._session.mark))
        self._pressure = Pressure()
        parts.callback(self._pressure.close)
        return {
            "hierarchy": self._sandboxes.hierarchy,
            "isolation": self._sandboxes.isolation,
            "cores": len(os.sched_getaffinity(0)),
        }

    async def close(self) -> None:
        """End all environments and remove what was made."""
        for environment in list(self._environments.values()):
            await environment.stop()
        await asyncio.to_thread(self._parts.close)

    async def now(self) -> int:
        """Return the node's CLOCK_MONOTONIC, nanoseconds."""
        return time.monotonic_ns()

    async def next_batch(self) -> Batch:
        """Wait until something has happened, and return it."""
        await self._outbox.wait()
        return self._outbox.take()

    async def tell(self, faults: set[int]) -> None:
        """Note faults of a plan, by their numbers, that have happened on another node."""
        self._happened |= faults

    async def reach(self, ports: list[int]) -> str:
        """Make the emulator's services at these loopback ports reachable here; return why that cannot be, if so."""
        if self._relay is None:
            return ""
        return await asyncio.to_thread(self._relay.add, ports)

    async def store(self, digest: str, archive: bytes) -> None:
        """Unpack a package, which is known by its digest from now on."""
        directory = self._session.home / "functions" / f"{next(self._numbers)}"
        self._packages[digest] = await asyncio.to_thread(unpacked, archive, directory)

    async def runtime(self, function: Function) -> str:
        """Return what a function really runs on here."""
        return await self._sandboxes.runtime(function)

    async def make(self, order: Order) -> None:
        """Make an environment; its packages have been stored."""
        function = self._with_code(order.function)
        identifier = environment_id(function, order.number)

        def open_log(_function: Function, environment: str) -> tuple[str, FunctionLog]:
            return order.log_stream, ForwardedLog(environment, self._outbox)

        host = EnvironmentHost(
            emulator_id=self._session.id,
            home=self._session.home / "environments",
            limits=self._opening.limits,
            sandboxes=self._sandboxes,
            variables=order.shared,
            credentials=lambda _name: order.credentials,
            pressure=self._pressure,
            open_log=open_log,
            record=lambda event: self._outbox.add(identifier, event),
            happened=self._happened,
        )
        self._environments[identifier] = Environment(host, function, order.number)

    async def start(self, identifier: str, limit_s: float) -> Done:
        """Start an environment's runtime; see `Environment.start`."""
        environment = self._environments[identifier]
        try:
            outcome = await environment.start(limit_s)
        except (StartFailed, OSError) as error:
            return Done(self._outbox.take(), environment.state, failure=str(error))
        assert environment.sandbox is not None
        # The kernel may kill an idle one when the host's memory is exhausted.
        environment.sandbox.exited.add_done_callback(lambda _: self._outbox.add(identifier, {"record": EXITED}))
        return self._done(environment, outcome)

    async def invoke(self, identifier: str, invocation: NextInvocation, limit_s: float) -> Done:
        """Pass one invocation to the waiting runtime; its deadline is by this node's clock."""
        environment = self._environments[identifier]
        deadline_ms = time.time_ns() // 1_000_000 + round(limit_s * 1000)
        outcome = await environment.invoke(replace(invocation, deadline_ms=deadline_ms), limit_s)
        return self._done(environment, outcome)

    async def rest(self, identifier: str) -> Done:
        """Wait until the runtime asks for its next invocation, then let the environment freeze."""
        environment = self._environments[identifier]
        ready = await environment.ready()
        if ready:
            environment.rest(lambda _environment: None)
        resting_mb = environment.resting_mb()
        return Done(self._outbox.take(), environment.state, ready=ready, resting_mb=resting_mb)

    async def send_signal(self, identifier: str, number: int) -> None:
        """Send a signal to everything in an environment."""
        self._environments[identifier].send_signal(number)

    async def reset(self, identifier: str) -> Done:
        """End the runtime; see `Environment.reset`."""
        environment = self._environments[identifier]
        await environment.reset()
        return Done(self._outbox.take(), environment.state)

    async def stop(self, identifier: str) -> Done:
        """End an environment and forget it; one that could not be made is none."""
        environment = self._environments.pop(identifier, None)
        if environment is not None:
            await environment.stop()
        return Done(self._outbox.take(), State.STOPPED)

    def _done(self, environment: Environment, outcome: Outcome) -> Done:
        return Done(self._outbox.take(), environment.state, outcome)

    def _with_code(self, function: Function) -> Function:
        """Return the function with its packages where they are here."""

        def here(code: Code) -> Code:
            return replace(code, directory=self._packages[code.sha256], archive=None)

        layers = tuple(replace(layer, code=here(layer.code)) for layer in function.layers)
        return replace(function, code=here(function.code), layers=layers)
