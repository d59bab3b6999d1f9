"""Start, freeze, thaw and remove containers through the engine; meter them by control group and /proc.

Named pipes carry a container's log and trace, not the engine, so that all output written before an answer can be read
when the answer arrives. (The image needs /bin/sh for that.) The program starts when the emulator opens the pipes to
begin metering, so none of its time is missed and none of the engine's work is billed.
"""

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from docker.errors import APIError, ImageNotFound

from slslab.errors import HostError
from slslab.host.cgroup_accounts import PERIOD_US, GroupAccounts, cgroup_mounts, cgroups_of, quota_us
from slslab.host.cgroups import CONTROLLERS_V2
from slslab.host.docker_engine import (
    CONNECTIONS,
    HINT,
    MARK_LABEL,
    OWNER_LABEL,
    Engine,
    owner,
    reason,
    remove,
)
from slslab.host.managed import Managed
from slslab.host.processes import ended
from slslab.host.procfs import take_sample
from slslab.host.sandbox import Sandbox
from slslab.host.session import Session
from slslab.host.spawner import TRACE_DESCRIPTOR

WORKER_IMAGE = "slslab/worker:local"
SHARED = "/run/slslab"
# Opening a pipe waits for a reader, so the program starts when the emulator begins to meter it.
GATE = ["/bin/sh", "-c", f'exec "$@" <"$0" >{SHARED}/log 2>&1 {TRACE_DESCRIPTOR}>{SHARED}/trace']
SIGNALLED = 128
Result = TypeVar("Result")


class Containers(Managed):
    """The engine, image and threads for engine calls that all containers of one command share.

    All containers with these `labels` are removed at the end. Entering raises HostError if no engine answers or it
    doesn't have the image.
    """

    def __init__(self, session: Session) -> None:
        self.image = os.environ.get("SLSLAB_WORKER_IMAGE", WORKER_IMAGE)
        self._session = session
        self.labels = {MARK_LABEL: session.id, OWNER_LABEL: owner()}

    def _enter(self, stack: ExitStack) -> None:
        self.engine = Engine()
        stack.callback(self.engine.close)
        if self.engine.image(self.image) is None:
            raise HostError(
                f"The engine has no image {self.image}.",
                "build it with `make images`, or name another in SLSLAB_WORKER_IMAGE.",
            )
        try:
            self.engine.remove_orphans()
        except OSError as error:
            raise HostError(f"The engine can't list its containers: {reason(error)}.", HINT) from error
        self._session.watch_containers(True)
        # Twice: first to end the containers that threads wait for, and then for a container that a thread has made
        # meanwhile.
        stack.callback(self._remove_last)
        self._threads = stack.enter_context(ThreadPoolExecutor(CONNECTIONS, "slslab-engine"))
        stack.callback(self._remove)

    async def call(self, method: Callable[..., Result], *arguments: Any) -> Result:
        """Call the engine in a thread, because its client blocks."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, method, *arguments)

    def _remove(self) -> None:
        try:
            self.engine.remove_marked(self._session.id)
        except OSError as error:
            raise HostError(
                f"The engine can't remove this command's containers: {reason(error)}.",
                "the next command that uses containers removes them.",
            ) from error

    def _remove_last(self) -> None:
        self._remove()
        self._session.watch_containers(False)


class ContainerAccounts(GroupAccounts):
    """The counters of a container's group, with their last values: the engine removes the group with the container.

    `reported_kills` counts the out-of-memory kills that the engine reports; the last process's may be among them.
    """

    def __init__(self, version: int, paths: Mapping[str, Path]) -> None:
        super().__init__(version, paths)
        self._last: dict[tuple[str, str], bytes] = {}
        self.reported_kills = 0

    def out_of_memory_kills(self) -> int:
        """Return how many processes were killed for lack of memory; there may have been more."""
        return max(super().out_of_memory_kills(), self.reported_kills)

    def keep(self) -> None:
        """Save the last values; the processes have ended, so nothing will change any more."""
        self.cpu_ns()
        self.throttled_ns()
        self.peak_bytes()
        self.out_of_memory_kills()

    def _read(self, controller: str, name: str) -> bytes:
        try:
            self._last[controller, name] = super()._read(controller, name)
        except OSError:
            if (controller, name) not in self._last:
                return b"0"
        return self._last[controller, name]


class Container(Sandbox):
    """One container.

    `configure` takes the directory that the container shares with this process and returns the engine's configuration.
    That directory contains `files` and is made in `home`. `log` receives the container's output, and `trace` what it
    writes to descriptor 3. `exited` resolves when the engine reports the exit code.
    """

    def __init__(
        self,
        containers: Containers,
        home: Path,
        files: Mapping[str, Path],
        configure: Callable[[Path], Mapping[str, Any]],
        log: Callable[[bytes], object],
        trace: Callable[[bytes], object],
    ) -> None:
        super().__init__(log, trace)
        self._call, self._api = containers.call, containers.engine.api
        self._home = home
        self._files = files
        self._configure = configure
        self._container = ""
        self._address = ""
        self._watching: asyncio.Task[None] | None = None
        self._paused = False
        self.accounts: ContainerAccounts | None = None

    async def start(self) -> None:
        """Start the container, up to its program's first instruction; OSError if engine or host fails."""
        try:
            shared = await asyncio.to_thread(self._prepare)
            await self._create(shared)
            await self._call(self._api.start, self._container)
            await self._adopt()
            # Opened last, because this starts the program. The pipes are gone if `home` was removed meanwhile.
            for stream, name in zip(self.streams, ("log", "trace"), strict=True):
                stream.open_named(shared / name)
            self.began.set_result(take_sample(time.monotonic_ns(), self.pids(), self.accounts))
        except BaseException as error:
            try:
                await self.end()
            finally:
                await self.close()
            if isinstance(error, OSError):  # includes errors from the engine
                raise OSError(reason(error)) from error
            raise

    async def freeze(self) -> None:
        """Pause the container if the engine can. If the container has ended, `exited` reports that."""
        self._paused = True
        with suppress(OSError):
            await self._call(self._api.pause, self._container)

    async def thaw(self) -> None:
        """Resume the container; OSError if the engine doesn't answer."""
        if self._paused:
            self._paused = False
            with suppress(APIError):  # it has ended, or wasn't paused
                await self._call(self._api.unpause, self._container)

    async def limit_cpu(self, share: float) -> None:
        """Limit the container to this many processors from now on; `exited` reports it if the container has ended."""
        assert self.accounts is not None
        try:
            self.accounts.limit_cpu(share)  # a thousand times faster than through the engine
        except OSError:
            quota = {"cpu_period": PERIOD_US, "cpu_quota": quota_us(share)}
            with suppress(APIError):
                await self._call(partial(self._api.update_container, self._container, **quota))

    async def end(self) -> None:
        """Kill and remove the container; OSError if the engine fails. The command retries this when it ends."""
        if self._container:
            await self._call(remove, self._api, self._container)
        if self._watching is not None:
            await self._watching
        if not self.exited.done():
            self.exited.set_result(-signal.SIGKILL)

    async def close(self) -> None:
        """Close its streams and counters."""
        if self._watching is not None and not self._watching.done():  # it couldn't be removed
            self._watching.cancel()
            await asyncio.wait([self._watching])
        if self.accounts is not None:
            self.accounts.close()
        self.close_streams()

    def _prepare(self) -> Path:
        shared = Path(tempfile.mkdtemp(dir=self._home, prefix="shared-"))
        for name in ("log", "trace"):
            os.mkfifo(shared / name)
            (shared / name).chmod(0o622)
        for name, source in self._files.items():
            os.link(source, shared / name)
            (shared / name).chmod(0o644)
        shared.chmod(0o755)
        return shared

    async def _create(self, shared: Path) -> None:
        try:
            configuration = await self._call(self._configure, shared)
            created = await self._call(self._api.create_container_from_config, configuration)
        except ImageNotFound as error:
            raise OSError(f"the engine no longer has the image ({reason(error)})") from error
        except HostError as error:
            raise OSError(f"{error.message} ({error.hint})") from error
        self._container = created["Id"]

    async def _adopt(self) -> None:
        about = await self._inspect()
        state, (network,) = about["State"], about["NetworkSettings"]["Networks"].values()
        self._address = network["IPAddress"]
        if not state["Pid"]:
            raise OSError(f"the container ended at once, with status {state['ExitCode']}")
        try:
            self.accounts = await asyncio.to_thread(container_accounts, state["Pid"], self._container)
            process = os.pidfd_open(state["Pid"])
        except OSError as error:
            raise OSError(f"the container ended at once, or this process cannot see it ({error})") from error
        self._watching = asyncio.ensure_future(self._watch(process, self.accounts))

    async def _watch(self, process: int, accounts: ContainerAccounts) -> None:
        await ended(process)
        self.ended_ns = time.monotonic_ns()
        accounts.keep()
        status = -int(signal.SIGKILL)
        with suppress(OSError):  # it was removed, so it was killed; or the engine doesn't answer
            await self._call(self._api.wait, self._container)
            state = (await self._inspect())["State"]
            status = state["ExitCode"]
            if status > SIGNALLED:  # the init's way of reporting a signal
                status = SIGNALLED - status
            if state["OOMKilled"]:
                accounts.reported_kills = 1
        self.exited.set_result(status)

    async def _inspect(self) -> Any:
        return await self._call(self._api.inspect_container, self._container)


def container_accounts(pid: int, container: str) -> ContainerAccounts:
    """Return the counters of a container, given its first process; FileNotFoundError if its group isn't visible."""
    groups = cgroups_of(pid)
    paths: dict[str, Path] = {}
    for mount, controllers in cgroup_mounts():
        for controller in sorted(controllers):
            name = groups.get("" if controller == "cgroup2" else controller)
            if name is None or controller.startswith("name=") or (group := _group(mount, name, container)) is None:
                continue
            if controller == "cgroup2":
                enabled = (group / "cgroup.controllers").read_text().split()
                paths |= {name: group for name in enabled if name in CONTROLLERS_V2}
            else:
                paths[controller] = group
    if not paths:
        raise FileNotFoundError(f"no control group of container {container[:12]} below /sys/fs/cgroup")
    return ContainerAccounts(1 if "cpuacct" in paths else 2, paths)


def _group(mount: Path, name: str, container: str) -> Path | None:
    """Return a container's group below a mount.

    From another cgroup namespace the group's path differs, but its last part still contains the container's id. os.walk
    finds it and tolerates groups that appear and disappear meanwhile.
    """
    path = mount / name.lstrip("/")
    if container in path.name and path.exists():
        return path
    return next(
        (Path(top, child) for top, children, _ in os.walk(mount) for child in children if container in child), None
    )


# assumed: AWS doesn't document the group id of Lambda's sandbox user; `id` prints this one there.
LAMBDA_GID = 990
