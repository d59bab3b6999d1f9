"""Sandboxes made of processes of this host: a control group each, and namespaces, where the host gives them."""

import asyncio
import os
import platform
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from slslab.configuration import Function
from slslab.environments.accounting import files_bytes
from slslab.environments.confinement import Cgroup, GroupLimits, detect
from slslab.environments.groups import GroupAccounts
from slslab.environments.isolation import TASK_ROOT, Processes, Spawner, SpawnError, environment_request
from slslab.environments.isolation import detect as namespaces
from slslab.environments.output import Stream
from slslab.environments.sandbox import Setting
from slslab.environments.spawner import TRACE_DESCRIPTOR
from slslab.errors import HostError, RequestError
from slslab.limits import Limits
from slslab.metering import MB, cpu_share
from slslab.packages import Image
from slslab.service_errors import invalid
from slslab.session import Session

CLOCK_FILE = "/run/slslab-clock"


class ProcessSandbox:
    """One runtime process (`python -m awslambdaric`) with what it starts; see `Sandbox`."""

    ended_ns: int | None = None

    def __init__(self, sandboxes: "ProcessSandboxes", setting: Setting) -> None:
        self._isolated = bool(sandboxes.isolation.mode)
        self._group = self._confined(sandboxes, setting)
        self._output, self._trace = Stream(setting.log), Stream(setting.trace)
        log, trace = self._output.open(), self._trace.open()
        try:
            self._processes = Processes(sandboxes.spawner, self._request(sandboxes, setting), log, trace)
        except OSError:
            self._output.close()
            self._trace.close()
            if self._group is not None:
                self._group.remove()
            raise
        finally:
            os.close(log)
            os.close(trace)
        self.exited = self._processes.exited

    @property
    def failure(self) -> str:
        """Why the runtime never started."""
        return self._processes.failure

    @property
    def accounts(self) -> GroupAccounts | None:
        """Its control group, where this host has them."""
        return self._group

    @property
    def freezes(self) -> bool:
        """Whether it can be frozen."""
        return self._group is not None and self._group.freezes

    def pids(self) -> list[int]:
        """Its processes."""
        return self._group.pids() if self._group is not None else self._processes.pids()

    def files_bytes(self) -> int:
        """What is used of its /tmp, bytes."""
        return next((files_bytes(pid) for pid in self.pids()), 0) if self._isolated else 0

    def drain(self) -> None:
        """Read what it has written until now."""
        self._output.drain()
        self._trace.drain()

    async def freeze(self) -> None:
        """Stop its processes where they stand."""
        assert self._group is not None
        self._group.freeze()

    async def thaw(self) -> None:
        """Let them go on."""
        assert self._group is not None
        self._group.thaw()

    async def end(self) -> None:
        """Kill its processes, and return when they are gone."""
        await self._processes.end(self.pids())

    async def close(self) -> None:
        """Remove the control group, whose accounts nobody needs any more, and close the streams."""
        if self._group is not None:
            await asyncio.to_thread(self._group.remove)
        self._output.close()
        self._trace.close()

    @staticmethod
    def _confined(sandboxes: "ProcessSandboxes", setting: Setting) -> Cgroup | None:
        if not sandboxes.hierarchy.parents:
            return None
        function = setting.function
        # The kernel counts /tmp's files as memory, Lambda does not; the resident set is held to the limit itself.
        files_mb = function.ephemeral_mb if sandboxes.isolation.mode else 0
        memory_bytes = (function.memory_mb + files_mb) * MB
        limits = GroupLimits(memory_bytes, cpu_share(function.memory_mb), sandboxes.limits.processes)
        return Cgroup(sandboxes.hierarchy, setting.name, limits)

    def _request(self, sandboxes: "ProcessSandboxes", setting: Setting) -> dict[str, Any]:
        function, isolated = setting.function, self._isolated
        assert function.code.directory is not None  # images are refused
        directory = TASK_ROOT if isolated else str(function.code.directory)
        variables = {
            **setting.variables,
            "PATH": function.variables.get("PATH", os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")),
            "HOME": function.variables.get("HOME", "/tmp" if isolated else str(setting.home)),
            "LAMBDA_TASK_ROOT": directory,
            "LAMBDA_RUNTIME_DIR": str(Path(sys.executable).parent),
            "SLSLAB_TRACE_FD": str(TRACE_DESCRIPTOR),
            "SLSLAB_CLOCK_FILE": CLOCK_FILE if isolated else str(setting.clock),
        }
        if not isolated:
            (setting.home / "tmp").mkdir(exist_ok=True)
            variables["TMPDIR"] = str(setting.home / "tmp")
        return environment_request(
            sandboxes.isolation,
            setting.home,
            function.code.directory,
            number=setting.number,
            variables=variables,
            arguments=[sys.executable, "-m", "awslambdaric", function.handler],
            ephemeral_mb=function.ephemeral_mb,
            files=[(str(setting.clock), CLOCK_FILE)],
            join=self._group.join_files if self._group is not None else (),
            processors=setting.processors,
            descriptors=sandboxes.limits.descriptors,
            processes=sandboxes.limits.processes,
        )


class ProcessSandboxes:
    """Makes sandboxes of this host's processes; see `Sandboxes`.

    `modules` are imported once by a process of which all runtimes are forks; `isolate=False` leaves them in the host's
    namespaces. Entering raises HostError if a module cannot be imported, RequestError for a template that cannot work.
    """

    address = "127.0.0.1"

    def __init__(
        self, session: Session, limits: Limits, *, isolate: bool = True, modules: tuple[str, ...] = ()
    ) -> None:
        self.limits = limits
        self.template = ",".join(modules)
        self._session = session
        self._isolate = isolate
        self._modules = modules

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.hierarchy = detect().nested(f"slslab-{self._session.id}")
            for group in sorted(set(self.hierarchy.parents.values())):
                self._session.watch_cgroup(group)
                stack.callback(group.rmdir)
            if any(module.partition(".")[0] == "awslambdaric" for module in self._modules):
                message = "awslambdaric cannot be in a template: it reads the address of its Runtime API on import."
                raise RequestError(message, "name what your handlers import, for instance torch.")
            self.isolation = namespaces(self._isolate)
            try:
                self.spawner = Spawner(self.isolation, self._modules)
            except SpawnError as error:
                raise HostError(
                    f"The environments' spawner could not start: {error}.", "name modules that can be imported."
                ) from error
            stack.callback(self.spawner.close)
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exit.close()

    def runtime(self, function: Function) -> str:
        """What the function really runs on."""
        return f"python:{platform.python_version()} of the host, for {function.runtime}"

    def find_image(self, uri: str) -> Image:
        """Refused: a process runs the host's packages."""
        raise invalid(f"The image {uri} needs an environment of containers; package the function as a zip archive.")

    async def start(self, setting: Setting) -> ProcessSandbox:
        """Start a runtime; OSError if the host cannot."""
        return ProcessSandbox(self, setting)
