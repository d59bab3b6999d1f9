"""Sandboxes made of containers: the same limits as of processes, set through the engine, and the same accounts.

A container is started, frozen between invocations, thawed and removed through the engine; what its processes used is
read from its control group and from /proc, as for processes, never from the engine's statistics. The file system is the
image's, read-only but for /tmp; no capability is left, and the user is Lambda's. Log and trace go through named pipes
of their own (so an image needs /bin/sh), not through the engine: what a function has written before it answers is there
when its answer is. The pipes are opened when metering begins and hold the runtime back until then, so that no part of
the init phase is missed and none of the engine's work is billed.
"""

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from docker.errors import APIError, ImageNotFound, NotFound

from slslab.configuration import Function
from slslab.environments.confinement import CFS_PERIOD_US, Hierarchy
from slslab.environments.engine import (
    CONNECTIONS,
    FUNCTION_LABEL,
    MARK_LABEL,
    OWNER_LABEL,
    Engine,
    owner,
    reason,
    remove,
)
from slslab.environments.groups import GroupAccounts, cgroup_mounts, cgroups_of
from slslab.environments.isolation import LAMBDA_UID, TASK_ROOT, Isolation
from slslab.environments.output import Stream
from slslab.environments.sandbox import Setting, StartFailed
from slslab.environments.spawner import TRACE_DESCRIPTOR
from slslab.errors import HostError
from slslab.limits import Limits
from slslab.metering import MB, cpu_share
from slslab.packages import Image
from slslab.service_errors import invalid
from slslab.session import Session

WORKER_IMAGE = "slslab/worker:local"
# assumed: group ids of Lambda's sandbox user are not documented; this is what `id` shows there.
LAMBDA_GID = 990
SHARED = "/run/slslab"
# Opening a pipe waits for its reader: the runtime starts when the emulator begins to meter it.
GATE = f'exec "$@" >{SHARED}/log 2>&1 {TRACE_DESCRIPTOR}>{SHARED}/trace'
# The container's own init, which buries orphans and ends with the runtime.
OWN_PROCESSES = 1
SIGNALLED = 128
Result = TypeVar("Result")


class ContainerAccounts(GroupAccounts):
    """The accounts of a container's group, which the engine removes with the container: the last ones are kept."""

    def __init__(self, version: int, paths: Mapping[str, Path]) -> None:
        super().__init__(version, paths)
        self._last: dict[tuple[str, str], bytes] = {}
        self._kills = 0

    def out_of_memory_kills(self) -> int:
        """Processes that were killed for want of memory, at least."""
        return max(super().out_of_memory_kills(), self._kills)

    def note_out_of_memory(self) -> None:
        """The engine says that a process of the container was killed for want of memory, maybe its last."""
        self._kills = 1

    def _read(self, controller: str, name: str) -> bytes:
        try:
            self._last[controller, name] = super()._read(controller, name)
        except OSError:
            if (controller, name) not in self._last:
                return b"0"
        return self._last[controller, name]


class ContainerSandbox:
    """One container with its runtime; see `Sandbox`."""

    own_files = True
    failure = ""
    freezes = True

    def __init__(self, sandboxes: "ContainerSandboxes", setting: Setting) -> None:
        self._sandboxes = sandboxes
        self._setting = setting
        self._output, self._trace = Stream(setting.log), Stream(setting.trace)
        self._container = ""
        self._pidfd = -1
        self._watching: asyncio.Task[None] | None = None
        self._paused = False
        self._accounts: ContainerAccounts | None = None
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def accounts(self) -> GroupAccounts | None:
        """Its control group."""
        return self._accounts

    async def start(self) -> None:
        """Start the container, up to its runtime's first instruction; StartFailed if the engine does not."""
        shared = await asyncio.to_thread(self._prepare)
        try:
            await self._create(shared)
            try:
                await self._call(self._api.start, self._container)
            except APIError as error:
                raise StartFailed(reason(error)) from error
            await self._adopt()
        except BaseException:
            await self.end()
            await self.close()
            raise
        self._output.open_named(shared / "log")
        self._trace.open_named(shared / "trace")

    def pids(self) -> list[int]:
        """Its processes, as this host numbers them."""
        return self._accounts.pids() if self._accounts is not None else []

    def drain(self) -> None:
        """Read what it has written until now."""
        self._output.drain()
        self._trace.drain()

    async def freeze(self) -> None:
        """Pause the container."""
        with suppress(APIError):  # it ended meanwhile, which is seen as its exit
            await self._call(self._api.pause, self._container)
            self._paused = True

    async def thaw(self) -> None:
        """Let the container go on."""
        if self._paused:
            self._paused = False
            with suppress(APIError):
                await self._call(self._api.unpause, self._container)

    async def end(self) -> None:
        """Kill and remove the container."""
        if self._container:
            await self._call(remove, self._api, self._container)
        if self._watching is not None:
            await self._watching
        if not self.exited.done():
            self.exited.set_result(-signal.SIGKILL)

    async def close(self) -> None:
        """Close its streams and accounts."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        if self._accounts is not None:
            self._accounts.close()
        self._output.close()
        self._trace.close()

    @property
    def _api(self) -> Any:
        return self._sandboxes.engine.api

    async def _call(self, method: Callable[..., Result], *arguments: Any) -> Result:
        return await self._sandboxes.call(method, *arguments)

    def _prepare(self) -> Path:
        """Make the directory that the container shares with the emulator: pipes and clock."""
        shared = Path(tempfile.mkdtemp(dir=self._setting.home, prefix="shared-"))
        for name in ("log", "trace"):
            os.mkfifo(shared / name)
            (shared / name).chmod(0o622)
        os.link(self._setting.clock, shared / "clock")
        self._setting.clock.chmod(0o644)
        shared.chmod(0o755)
        return shared

    async def _create(self, shared: Path) -> None:
        setting, sandboxes = self._setting, self._sandboxes
        try:
            configuration = await sandboxes.call(sandboxes.configuration, setting, shared)
            created = await self._call(lambda: self._api.create_container_from_config(configuration))
        except ImageNotFound as error:
            raise StartFailed(f"the engine has no such image any more ({reason(error)})") from error
        except APIError as error:
            raise StartFailed(reason(error)) from error
        self._container = created["Id"]

    async def _adopt(self) -> None:
        """Find the started container's process and accounts, and wait for its end from now on."""
        state = (await self._call(self._api.inspect_container, self._container))["State"]
        try:
            self._pidfd = os.pidfd_open(state["Pid"])
            self._accounts = container_accounts(state["Pid"], self._container)
        except OSError as error:
            raise StartFailed(f"the container ended at once, or this process cannot see it ({error})") from error
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pidfd, over.set)
        self._watching = asyncio.ensure_future(self._watch(over))

    async def _watch(self, over: asyncio.Event) -> None:
        """Learn how the container ended."""
        await over.wait()
        asyncio.get_running_loop().remove_reader(self._pidfd)
        status = -int(signal.SIGKILL)
        with suppress(NotFound, APIError):  # it has been removed: then it was killed
            await self._call(lambda: self._api.wait(self._container))
            state = (await self._call(self._api.inspect_container, self._container))["State"]
            status = state["ExitCode"]
            if status > SIGNALLED:  # what the init makes of a signal
                status = SIGNALLED - status
            if state["OOMKilled"] and self._accounts is not None:
                self._accounts.note_out_of_memory()
        self.exited.set_result(status)


class ContainerSandboxes:
    """Makes containers; see `Sandboxes`. `image` is for functions that bring none of their own.

    Entering raises HostError if no engine answers, it has no such image, or it does not confine.
    """

    template = ""

    def __init__(self, session: Session, limits: Limits, *, image: str | None = None) -> None:
        self.limits = limits
        self.image = image if image is not None else os.environ.get("SLSLAB_WORKER_IMAGE", WORKER_IMAGE)
        self._session = session

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.engine = Engine()
            stack.callback(self.engine.close)
            if self.engine.image(self.image) is None:
                raise HostError(
                    f"The engine has no image {self.image}.",
                    "build it with `make images`, or name another in SLSLAB_WORKER_IMAGE.",
                )
            self.engine.remove_orphans()
            self.address = self.engine.address()
            self.hierarchy = self._hierarchy()
            self.isolation = Isolation("docker", True, engine=f"Docker {self.engine.version}")
            self._threads = stack.enter_context(ThreadPoolExecutor(CONNECTIONS, "slslab-engine"))
            self._session.watch_containers()
            stack.callback(self._end)
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exit.close()

    def runtime(self, function: Function) -> str:
        """What the function really runs on."""
        if function.code.image is not None:
            return f"image {function.code.image.uri}"
        return f"image {self.image}, for {function.runtime}"

    def find_image(self, uri: str) -> Image:
        """The engine's image of this name; nothing is pulled."""
        found = self.engine.image(uri)
        if found is None:
            # The first sentences are AWS's.
            raise invalid(
                f"Source image {uri} does not exist. Provide a valid source image. "
                "(The engine must have it: docker pull, or build it.)"
            )
        return Image(uri, found["Id"], found["Size"])

    async def start(self, setting: Setting) -> ContainerSandbox:
        """Start a container; StartFailed if the engine does not."""
        sandbox = ContainerSandbox(self, setting)
        await sandbox.start()
        return sandbox

    async def call(self, method: Callable[..., Result], *arguments: Any) -> Result:
        """Ask the engine, whose client blocks, on a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, method, *arguments)

    def configuration(self, setting: Setting, shared: Path) -> Mapping[str, Any]:
        """The container's configuration for the engine."""
        function, api, limits = setting.function, self.engine.api, self.limits
        name = self.image if function.code.image is None else function.code.image.id
        image = self.engine.image(name)
        if image is None:
            raise ImageNotFound(name)
        own, chosen = image["Config"], function.image_config
        if function.code.image is None:
            command, directory = [function.handler], TASK_ROOT
        else:
            command = [*(chosen.command or own["Cmd"] or ())]
            directory = chosen.working_directory or own["WorkingDir"]
        # The kernel counts /tmp's files as memory, Lambda does not; the resident set is held to the limit itself.
        memory = (function.memory_mb + function.ephemeral_mb) * MB
        binds = [f"{self.engine.host_path(shared)}:{SHARED}:ro"]
        if function.code.directory is not None:
            binds.append(f"{self.engine.host_path(function.code.directory)}:{TASK_ROOT}:ro")
        host = api.create_host_config(
            binds=binds,
            tmpfs={"/tmp": f"size={function.ephemeral_mb}m,mode=1777,nosuid,nodev,exec"},
            read_only=True,
            mem_limit=memory,
            memswap_limit=memory,
            cpu_period=CFS_PERIOD_US,
            cpu_quota=max(1_000, round(cpu_share(function.memory_mb) * CFS_PERIOD_US)),
            cpuset_cpus=",".join(map(str, setting.processors)) or None,
            pids_limit=limits.processes + OWN_PROCESSES,
            ulimits=[
                {"Name": "nofile", "Soft": limits.descriptors, "Hard": limits.descriptors},
                {"Name": "core", "Soft": 0, "Hard": 0},
            ],
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            # documented: on Lambda there is no /dev/shm (see spawner.py).
            ipc_mode="none",
            init=True,
            network_mode=self.engine.network(),
            log_config={"Type": "none", "Config": {}},
        )
        variables = {
            "HOME": "/tmp",
            **setting.variables,
            "_HANDLER": (command or [""])[0],
            "LAMBDA_TASK_ROOT": TASK_ROOT,
            "LAMBDA_RUNTIME_DIR": "/var/runtime",
            "SLSLAB_TRACE_FD": str(TRACE_DESCRIPTOR),
            "SLSLAB_CLOCK_FILE": f"{SHARED}/clock",
        }
        configuration: Mapping[str, Any] = api.create_container_config(
            name,
            [*(chosen.entry_point or own["Entrypoint"] or []), *command],
            entrypoint=["/bin/sh", "-c", GATE, "sh"],
            environment=variables,
            user=f"{LAMBDA_UID}:{LAMBDA_GID}",
            working_dir=directory,
            host_config=host,
            labels={
                MARK_LABEL: self._session.id,
                OWNER_LABEL: owner(),
                FUNCTION_LABEL: function.name,
            },
        )
        return configuration

    def _hierarchy(self) -> Hierarchy:
        """What the engine enforces, as it says itself."""
        about = self.engine.api.info()
        version = int(about.get("CgroupVersion", "1"))
        offered = {"memory": "MemoryLimit", "cpu": "CpuCfsQuota", "pids": "PidsLimit"}
        # Where a group lies is known for each container; what can be limited is known for all.
        parents = {name: Path("/sys/fs/cgroup") for name, key in offered.items() if about.get(key)}
        if version == 1:
            parents["freezer"] = Path("/sys/fs/cgroup/freezer")
        return Hierarchy(version, parents, tuple(name for name in offered if name not in parents))

    def _end(self) -> None:
        self.engine.remove_marked(self._session.id)
        self._session.forget_containers()


def container_accounts(pid: int, container: str) -> ContainerAccounts:
    """The accounts of a container by its first process; FileNotFoundError if its group cannot be found here."""
    groups = cgroups_of(pid)
    paths: dict[str, Path] = {}
    for mount, controllers in cgroup_mounts():
        version = 2 if "cgroup2" in controllers else 1
        for controller in sorted(controllers):
            group = groups.get("" if version == 2 else controller)
            if group is None or controller.startswith("name="):
                continue
            path = mount / group.lstrip("/")
            # Seen from another control group namespace the group has another name, which ends in the container's.
            found = path if container in path.name and path.exists() else next(mount.rglob(f"*{container}*"), None)
            if found is not None and version == 1:
                paths[controller] = found
            elif found is not None:
                enabled = (found / "cgroup.controllers").read_text().split()
                paths |= dict.fromkeys((name for name in enabled if name in ("memory", "cpu", "pids")), found)
    if not paths:
        raise FileNotFoundError(f"no control group of container {container[:12]} below /sys/fs/cgroup")
    return ContainerAccounts(1 if "cpuacct" in paths else 2, paths)
