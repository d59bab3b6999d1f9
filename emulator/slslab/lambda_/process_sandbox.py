"""Confine environments as processes of this host: a control group each, and namespaces, where the host allows them."""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from slslab.aws.limits import Limits
from slslab.errors import HostError, RequestError
from slslab.host.cgroups import Cgroup, detect
from slslab.host.connections import LOOPBACK, Address
from slslab.host.namespaces import TASK_ROOT, Spawner, SpawnError, environment_request
from slslab.host.namespaces import detect as namespaces
from slslab.host.output import Stream
from slslab.host.processes import ended
from slslab.host.procfs import Sample, ThreadTimes, process_tree
from slslab.host.sandbox import Sandbox
from slslab.host.session import Session
from slslab.host.spawner import TRACE_DESCRIPTOR
from slslab.lambda_.configuration import Function
from slslab.lambda_.environment import Environment, LocalHost
from slslab.lambda_.hosts import in_wrapper
from slslab.lambda_.layers import Layers
from slslab.lambda_.runtimes import Runtime, Runtimes

CLOCK_FILE = "/run/slslab-clock"
# assumed: at 128 MB RLIMIT_NPROC is 742 (measured), which Linux derives from a memory of 185.5 MB, four per MB.
KERNEL_MB = 57.5
LOG = logging.getLogger(__name__)


class ProcessSandbox(Sandbox):
    """One runtime process (`python3 /var/runtime/bootstrap.py`) with its init and what it starts.

    `started` resolves to the init's process id (0 if it didn't start). `exited` resolves, after `end`, only once all
    processes are gone.
    """

    def __init__(
        self,
        sandboxes: "ProcessSandboxes",
        environment: Environment,
        runtime: Runtime,
        opt: Path,
        accounts: Cgroup | None,
    ) -> None:
        super().__init__(environment.log.write, environment.trace)
        self._isolated = bool(sandboxes.isolation.mode)
        if accounts is not None:
            accounts.limit_cpu(environment.cpu_share)
        self.accounts: Cgroup | None = accounts or self._make_group(sandboxes, environment)
        self.freezes = self.accounts is not None and self.accounts.freezes
        loop = asyncio.get_running_loop()
        # Resolves to the exit code, or when init has ended without reporting it.
        self._over: asyncio.Future[int] = loop.create_future()
        self._killed = False
        self.started: asyncio.Future[int] = loop.create_future()
        self._init: int | None = None
        self._pidfd = -1
        self._lines = b""
        self._first: list[int] = []
        self._status = Stream(self._feed, self._end)
        descriptors: list[int] = []
        try:
            for stream in (*self.streams, self._status):
                descriptors.append(stream.open())
            sandboxes.spawner.spawn(self._request(sandboxes, environment, runtime, opt), *descriptors)
        except OSError:
            self._status.close()
            self.close_streams()
            if self.accounts is not None:
                self.accounts.remove()
            raise
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def pids(self) -> list[int]:
        """Return the runtime and its descendants by their ids on this host."""
        if self.accounts is not None:
            return super().pids()
        return process_tree(self._init)[1:] if self._init is not None else []

    async def owns(self, client: Address, server: Address) -> bool:
        await asyncio.shield(self.started)  # its processes aren't known until then
        return await super().owns(client, server)

    def files_bytes(self) -> int | None:
        return super().files_bytes() if self._isolated else 0

    async def freeze(self) -> None:
        assert self.accounts is not None
        self.accounts.freeze()

    async def thaw(self) -> None:
        assert self.accounts is not None
        self.accounts.thaw()

    async def end(self) -> None:
        """Kill its processes, and return when they have ended.

        When a namespace's end kills them, its init's end is visible before theirs. Until they have ended, too, their
        memory is charged to a control group that others may use again.
        """
        pids = self.pids()
        await self.started
        self._killed = True
        held = []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                held.append(os.pidfd_open(pid))
        for descriptor in () if self._isolated else held:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            os.close(self._pidfd)
            self._pidfd = -1
        try:
            await asyncio.gather(asyncio.shield(self._over), *map(ended, held))
        finally:
            if not self.exited.done():
                self.exited.set_result(self._over.result() if self._over.done() else -signal.SIGKILL)
        self._init = None  # its number may be reused
        self._status.close()

    def hand_over(self) -> Cgroup | None:
        """Close everything except the control group, and return it, because /tmp's files are charged to it."""
        accounts, self.accounts = self.accounts, None
        self.close_streams()
        return accounts

    async def close(self) -> None:
        """Remove the control group with its accounts, and close the streams."""
        if self.accounts is not None:
            await asyncio.to_thread(self.accounts.remove)
        self.close_streams()

    def _feed(self, chunk: bytes) -> None:
        *lines, self._lines = (self._lines + chunk).split(b"\n")
        for line in lines:
            word, _, rest = line.decode(errors="replace").partition(" ")
            if word == "started" and not self.started.done():
                self._init = int(rest)
                with contextlib.suppress(ProcessLookupError):  # it has exited and was reaped
                    self._pidfd = os.pidfd_open(self._init)
                self.started.set_result(self._init)
            elif word == "began":
                self._first = [int(number) for number in rest.split()]
            elif word == "exited":
                self._set_over(os.waitstatus_to_exitcode(int(rest)))
            elif word == "failed":
                self.failure = rest
        # The two lines come from two processes, in any order.
        if self._first and self._init is not None and not self.began.done():
            wall_ns, cpu_ns, delay_ns = self._first
            runtime = process_tree(self._init)[1:2]
            self.began.set_result(Sample(wall_ns, cpu_ns, 0, dict.fromkeys(runtime, ThreadTimes(cpu_ns, delay_ns))))

    def _end(self) -> None:
        if not self.began.done():
            self.began.set_result(Sample(time.monotonic_ns(), 0, 0, {}))
        if not self.started.done():
            self.started.set_result(0)
        self._set_over(-signal.SIGKILL)

    def _set_over(self, code: int) -> None:
        """Note the runtime's exit code. Killing init leaves its children running until their namespace has ended."""
        if not self._over.done():
            self._over.set_result(code)
            if not self._killed:
                self.exited.set_result(code)

    @staticmethod
    def _make_group(sandboxes: "ProcessSandboxes", environment: Environment) -> Cgroup | None:
        if not sandboxes.hierarchy.parents:
            return None
        function = environment.function
        # The kernel counts files in /tmp as memory, Lambda doesn't. The resident set is held to the memory size.
        files_mb = function.ephemeral_mb if sandboxes.isolation.mode else 0
        return Cgroup(
            sandboxes.hierarchy,
            environment.id,
            memory_mb=function.memory_mb + files_mb,
            cpu_share=environment.cpu_share,
            processes=sandboxes.limits.processes,
        )

    def _request(
        self, sandboxes: "ProcessSandboxes", environment: Environment, runtime: Runtime, opt: Path
    ) -> dict[str, Any]:
        function, isolated = environment.function, self._isolated
        assert function.code.directory is not None  # images are refused
        task, lang, folder, layers = function.code.directory, runtime.lang, runtime.folder, opt
        files = [(str(environment.home / "clock"), CLOCK_FILE)]
        if isolated:
            folders = ("/var/lang", "/var/runtime", "/opt")
            files += zip(map(str, (lang, folder, layers)), folders, strict=True)
            task, (lang, folder, layers) = Path(TASK_ROOT), map(Path, folders)
        else:
            (environment.home / "tmp").mkdir(exist_ok=True)
        variables = {
            **paths(task, lang, folder, layers),
            # Lambda doesn't set HOME. Without its own file system, a function would find the host user's.
            **({} if isolated else {"HOME": str(environment.home), "TMPDIR": str(environment.home / "tmp")}),
            **environment.variables(),
            "LAMBDA_TASK_ROOT": str(task),
            "LAMBDA_RUNTIME_DIR": str(folder),
            "SLSLAB_TRACE_FD": str(TRACE_DESCRIPTOR),
            "SLSLAB_CLOCK_FILE": CLOCK_FILE if isolated else str(environment.home / "clock"),
        }
        if not isolated:
            versioned = f"{opt}/python/lib/{Path(runtime.command).name}/site-packages"
            modules = [versioned, f"{opt}/python", variables["PYTHONPATH"]]
            variables["PYTHONPATH"] = os.pathsep.join(modules)
        program = [str(lang / runtime.command), str(folder / "bootstrap.py")]
        wrapped = in_wrapper(function, program)
        limits = sandboxes.limits
        return environment_request(
            sandboxes.isolation,
            environment.home,
            function.code.directory,
            number=environment.number,
            variables=variables,
            arguments=wrapped,
            ephemeral_mb=function.ephemeral_mb,
            files=files,
            join=self.accounts.join_files if self.accounts is not None else (),
            processors=environment.processors(),
            resources={
                "NOFILE": limits.descriptors,
                "NPROC": min(limits.processes, int(4 * (function.memory_mb + KERNEL_MB))),
                "MEMLOCK": limits.locked_bytes,
                # Without its own file system, it would leave core dumps in the host's.
                "CORE": limits.core_bytes if isolated else 0,
            },
            visible=runtime.interpreter.paths,
            forked=runtime.own and wrapped == program,
        )


def paths(task: Path, lang: Path, folder: Path, opt: Path) -> dict[str, str]:
    """Return the variables that say where programs, libraries and modules are.

    documented: configuration-envvars.html, "Defined runtime environment variables"; /var/lang/bin and PWD are measured.
    """
    libraries = [lang / "lib", "/lib64", "/usr/lib64", folder, folder / "lib", task, task / "lib", opt / "lib"]
    return {
        "PATH": f"{lang}/bin:/usr/local/bin:/usr/bin/:/bin:{opt}/bin",
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
        "PYTHONPATH": str(folder),
        "PWD": str(task),
    }


class ProcessSandboxes(LocalHost):
    """This host with processes as sandboxes.

    `modules` are imported once, by a process from which all runtimes of this Python are forked. `strict_packages` hides
    the host's packages from all runtimes, except for the distributions in `layer_packages`. Entering raises HostError
    if a module can't be imported, RequestError for a template that can't work.
    """

    address = LOOPBACK

    def __init__(
        self,
        session: Session,
        limits: Limits,
        budget_mb: int = 0,
        *,
        modules: tuple[str, ...] = (),
        strict_packages: bool = False,
        layer_packages: Sequence[str] = (),
    ) -> None:
        super().__init__(limits, budget_mb)
        self._strict_packages = strict_packages
        self._layer_packages = layer_packages
        self.template = ",".join(modules)
        self._session = session
        self._modules = modules

    def _enter(self, stack: ExitStack) -> None:
        super()._enter(stack)
        self.hierarchy = detect().nested(f"slslab-{self._session.id}")
        for group in sorted(set(self.hierarchy.parents.values())):
            self._session.watch_cgroup(group)
            stack.callback(group.rmdir)
        if self.hierarchy.version == 1 and "freezer" in self.hierarchy.parents:
            # The kernel patches its own code when the host's first group freezes and when the last one thaws (measured:
            # 0.14 ms each), but not while this empty group stays frozen.
            frozen = self.hierarchy.parents["freezer"] / "frozen"
            frozen.mkdir()
            stack.callback(frozen.rmdir)
            (frozen / "freezer.state").write_text("FROZEN")
        if any(module.partition(".")[0] == "awslambdaric" for module in self._modules):
            raise RequestError(
                "awslambdaric cannot be in a template: it reads the address of its Runtime API on import.",
                "name what your handlers import, for instance torch.",
            )
        if self._modules and self._strict_packages:
            raise RequestError(
                "A template has the host's packages, which strict packages hide.", "leave out one of the two."
            )
        self.isolation = namespaces(self._session.home)
        try:
            self.spawner = Spawner(self.isolation, self._modules)
        except SpawnError as error:
            raise HostError(
                f"The process that forks environments couldn't start: {error}.", "name modules that can be imported."
            ) from error
        stack.callback(self.spawner.close)
        home = self._session.home
        self._runtimes = stack.enter_context(
            Runtimes(home / "runtimes", strict=self._strict_packages, layer=self._layer_packages)
        )
        self._layers = Layers(home / "layers")

    def prepare(self, function: Function) -> None:
        """Start to prepare the function's runtime, so that cold starts don't wait for it."""

        def tell(made: Future[Runtime]) -> None:
            if not made.cancelled() and made.exception() is None and made.result().instead:
                LOG.warning("INIT_START of %s: Runtime Version: %s", function.name, made.result().description)

        self._runtimes.start_making(function.runtime).add_done_callback(tell)

    async def runtime(self, function: Function) -> str:
        """Return what the function really runs on."""
        return (await self._runtime(function)).description

    async def _runtime(self, function: Function) -> Runtime:
        return await asyncio.wrap_future(self._runtimes.start_making(function.runtime))

    async def start(self, environment: Environment, former: Sandbox | None = None) -> ProcessSandbox:
        """Start a runtime, with the control group of the `former` one if there is one; OSError if the host cannot."""
        runtime = await self._runtime(environment.function)
        opt = await asyncio.to_thread(self._layers.merged, environment.function.layer_directories)
        assert former is None or isinstance(former, ProcessSandbox)
        return ProcessSandbox(self, environment, runtime, opt, former.hand_over() if former is not None else None)
