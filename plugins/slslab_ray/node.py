"""The environments of one node: the cluster's actor makes them for the emulator, on one event loop.

Everything that confines, freezes and meters them is local to the node, and so is their Runtime API.
"""

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from slslab.errors import HostError
from slslab.host.output import LOG_BYTES
from slslab.host.priority import take_niceness
from slslab.host.processes import raise_descriptor_limit
from slslab.host.session import Session
from slslab.lambda_.configuration import Function
from slslab.lambda_.environment import Environment
from slslab.lambda_.hosts import PhaseEnd, State, environment_id
from slslab.lambda_.log_events import EnvironmentLog
from slslab.lambda_.packages import unpacked
from slslab.lambda_.process_sandbox import ProcessSandboxes
from slslab.lambda_.runtime_api import NextInvocation
from slslab_ray.calls import Answerer, answer
from slslab_ray.messages import EXITED, Opening, with_codes
from slslab_ray.relay import Relay

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def leave_ray_limits() -> bool:
    """Undo how Ray limits its workers, which functions would inherit: to their processors' number of threads, and to
    niceness 15, with which other processes hold them up. Return whether the niceness could be set."""
    for name in THREADS:
        os.environ.pop(name, None)
    return take_niceness(os.getppid())  # of the raylet, which has its owner's


class ForwardedLog(EnvironmentLog):
    """An environment's log, which the emulator keeps; beyond its maximum size, only the tail is sent."""

    def __init__(self, function: Function, stream: str, environment: str, emulator: Answerer, tail_bytes: int) -> None:
        super().__init__(function, stream, Path(os.devnull), tail_bytes)
        self._environment = environment
        self._emulator = emulator

    def write(self, chunk: bytes) -> None:
        """Send bytes to the emulator."""
        kept = self._written < LOG_BYTES
        self._written += len(chunk)
        self._emulator.happen(self._environment, chunk if kept else chunk[-self._tail_bytes :])

    def say(self, text: bytes) -> None:
        """Send a message by Lambda itself."""
        self.write(text)


class Node:
    """One node's environments; every method except `open` needs it to be open."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._parts = ExitStack()
        self._environments: dict[str, Environment] = {}
        self._packages: dict[str, Path] = {}
        self._arriving: defaultdict[str, bytearray] = defaultdict(bytearray)
        # Numbers the packages' folders, since several are stored at once.
        self._numbers = count()
        # Of environments that are being made.
        self._streams: dict[str, str] = {}
        # Of the environment that was made last, and by function.
        self._variables: dict[str, str] = {}
        self._credentials: dict[str, Mapping[str, str]] = {}

    async def open(self) -> dict[str, Any]:
        """Prepare the node and connect to the emulator; return how it confines environments (`hierarchy` and
        `isolation`), its `cores`, and whether they have its owner's `priority`.

        HostError if it can't run environments, or can't reach the emulator.
        """
        priority = leave_ray_limits()
        raise_descriptor_limit()
        opening, parts = self._opening, self._parts
        self._session = parts.enter_context(Session())
        self._sandboxes = parts.enter_context(ProcessSandboxes(self._session, opening.limits, **opening.settings))
        self._sandboxes.share(
            emulator_id=self._session.id,
            home=self._session.home / "environments",
            variables=self._variables,
            credentials=self._credentials.__getitem__,
            open_log=self._open_log,
            record=lambda event: self._emulator.happen(event["environment"], event),
        )
        key = self._session.home / "node.pem"
        with open(key, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(opening.key)
        self._relay: Relay | None = None
        if opening.relay is not None:
            self._relay = parts.enter_context(Relay("there", opening.relay, key, self._session.mark))
        self._emulator = await answer(opening.address, key, opening.name, self)
        return {
            "hierarchy": self._sandboxes.hierarchy,
            "isolation": self._sandboxes.isolation,
            "cores": len(os.sched_getaffinity(0)),
            "priority": priority,
        }

    async def close(self) -> None:
        """End all environments and clean up."""
        for environment in list(self._environments.values()):
            await environment.stop()
        await asyncio.to_thread(self._parts.close)

    async def now(self) -> int:
        """Return the node's CLOCK_MONOTONIC in ns; HostError if its functions can no longer reach services."""
        if self._relay is not None and not self._relay.runs():
            raise HostError("its relay has ended.", "see the kernel's log there.")
        return time.monotonic_ns()

    async def tell(self, faults: int) -> None:
        """Note faults of a plan, by their bits, that have happened on another node."""
        self._sandboxes.happened |= faults

    async def reach(self, ports: list[int]) -> str:
        """Make the emulator's services at these loopback ports reachable here; return the problem, if there is one."""
        if self._relay is None:
            return ""
        return await asyncio.to_thread(self._relay.add, ports)

    async def receive(self, digest: str, piece: bytes) -> None:
        """Take the next piece of a package's archive."""
        self._arriving[digest] += piece

    async def store(self, digest: str) -> None:
        """Unpack an arrived package, which is identified by its digest from now on."""
        directory = self._session.home / "functions" / f"{next(self._numbers)}"
        self._packages[digest] = await asyncio.to_thread(unpacked, bytes(self._arriving.pop(digest)), directory)

    async def runtime(self, function: Function) -> str:
        """Return the function's actual runtime here."""
        return await self._sandboxes.runtime(function)

    async def make(
        self,
        named: Function,
        number: int,
        log_stream: str,
        variables: Mapping[str, str],
        credentials: Mapping[str, str],
    ) -> None:
        """Make an environment of a function, which names its packages by their digests; they have been stored."""
        function = with_codes(named, lambda code: replace(code, directory=self._packages[code.sha256], archive=None))
        identifier = environment_id(function, number)
        self._streams[identifier] = log_stream
        self._variables |= variables
        self._credentials[function.name] = credentials
        self._environments[identifier] = Environment(self._sandboxes, function, number)

    def _open_log(self, function: Function, environment: str) -> ForwardedLog:
        stream, tail_bytes = self._streams.pop(environment), self._opening.limits.log_tail_bytes
        return ForwardedLog(function, stream, environment, self._emulator, tail_bytes)

    async def on(self, identifier: str, method: str, *arguments: Any) -> tuple[State, Any]:
        """Call a method of this node with an environment; return the environment's state, and the result.

        Reports of everything before the end of the call arrive before its answer.
        """
        environment = self._environments[identifier]
        result = await getattr(self, method)(environment, *arguments)
        return environment.state, result

    async def start(self, environment: Environment, limit_s: float) -> PhaseEnd:
        """Start an environment's runtime; see `Environment.start`."""
        outcome = await environment.start(limit_s)
        assert environment.sandbox is not None
        # The kernel may kill an idle one when the host's memory is exhausted.
        environment.sandbox.exited.add_done_callback(
            lambda _: self._emulator.happen(environment.id, {"record": EXITED})
        )
        return outcome

    async def invoke(self, environment: Environment, invocation: NextInvocation, limit_s: float) -> PhaseEnd:
        """Pass one invocation to the waiting runtime, with a deadline by this node's clock."""
        deadline_ms = time.time_ns() // 1_000_000 + round(limit_s * 1000)
        return await environment.invoke(invocation._replace(deadline_ms=deadline_ms), limit_s, lambda: None)

    async def rest(self, environment: Environment) -> tuple[bool, int]:
        """Wait until the runtime asks for its next invocation, then let the environment freeze.

        Return whether the runtime did, and the memory that the environment can hold while it rests, MB.
        """
        ready = await environment.ready()
        if ready:
            environment.rest(lambda _environment: None)
        return ready, environment.resting_mb()

    async def reset(self, environment: Environment) -> None:
        """End the runtime; see `Environment.reset`."""
        await environment.reset()

    async def send_signal(self, identifier: str, number: int) -> None:
        """Send a signal to everything in an environment."""
        self._environments[identifier].send_signal(number)

    async def stop(self, identifier: str) -> None:
        """End an environment and forget it; do nothing if it was never made."""
        environment = self._environments.pop(identifier, None)
        if environment is not None:
            await environment.stop()
