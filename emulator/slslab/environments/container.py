"""One container of the engine: started, frozen, thawed and removed through it, metered by control group and /proc.

Its log and its trace go through named pipes of their own (so an image needs /bin/sh), not through the engine: what has
been written before an answer is there when the answer is. The pipes are opened when metering begins and hold the
program back until then, so that nothing of it is missed and none of the engine's work is billed.
"""

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from docker.errors import APIError, ImageNotFound

from slslab.environments.engine import CONNECTIONS, HINT, MARK_LABEL, OWNER_LABEL, Engine, owner, reason, remove
from slslab.environments.groups import GroupAccounts, cgroup_mounts, cgroups_of
from slslab.environments.output import Stream
from slslab.environments.sandbox import StartFailed
from slslab.environments.spawner import TRACE_DESCRIPTOR
from slslab.errors import HostError
from slslab.session import Session

WORKER_IMAGE = "slslab/worker:local"
SHARED = "/run/slslab"
# Opening a pipe waits for its reader: the program starts when the emulator begins to meter it.
GATE = ["/bin/sh", "-c", f'exec "$@" <"$0" >{SHARED}/log 2>&1 {TRACE_DESCRIPTOR}>{SHARED}/trace']
SIGNALLED = 128
Result = TypeVar("Result")


class Containers:
    """What the containers of one command share: the engine, its image, threads to ask it on, and their certain end.

    Entering raises HostError if no engine answers or it has no such image.
    """

    def __init__(self, session: Session, image: str | None = None) -> None:
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
            try:
                self.engine.remove_orphans()
            except OSError as error:
                raise HostError(f"The engine does not show its containers: {reason(error)}.", HINT) from error
            self._session.watch_containers()
            # Twice: what a thread waits for ends with its container, and one that a thread still makes ends after it.
            stack.callback(self._end)
            self._threads = stack.enter_context(ThreadPoolExecutor(CONNECTIONS, "slslab-engine"))
            stack.callback(self._remove)
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exit.close()

    @property
    def labels(self) -> dict[str, str]:
        """By which the containers are found again."""
        return {MARK_LABEL: self._session.id, OWNER_LABEL: owner()}

    async def call(self, method: Callable[..., Result], *arguments: Any) -> Result:
        """Ask the engine, whose client blocks, on a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, method, *arguments)

    def _remove(self) -> None:
        try:
            self.engine.remove_marked(self._session.id)
        except OSError as error:
            message = f"The engine does not remove this command's containers: {reason(error)}."
            raise HostError(message, "the next command that uses containers removes them.") from error

    def _end(self) -> None:
        self._remove()
        self._session.forget_containers()


class ContainerAccounts(GroupAccounts):
    """The accounts of a container's group, which the engine removes with the container: the last ones are kept."""

    def __init__(self, version: int, paths: Mapping[str, Path]) -> None:
        super().__init__(version, paths)
        self._last: dict[tuple[str, str], bytes] = {}
        self._kills = 0

    def out_of_memory_kills(self) -> int:
        """Processes that were killed for want of memory, at least."""
        return max(super().out_of_memory_kills(), self._kills)

    def keep(self) -> None:
        """Read what must be known when the group is gone: its processes have ended, and nothing will be added."""
        self.cpu_ns()
        self.throttled_ns()
        self.peak_bytes()
        self.out_of_memory_kills()

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


class Container:
    """One container.

    `configure` gets the directory that it shares with this process, in which it finds `files`, and returns the
    engine's configuration of it; `home` is where that directory is made. What the container writes goes to `log` and,
    to descriptor 3, to `trace`. `exited` becomes its exit code, negative for a signal, once the engine has told it;
    `ended_ns` is when it ended (CLOCK_MONOTONIC).
    """

    failure = ""

    def __init__(
        self,
        containers: Containers,
        home: Path,
        files: Mapping[str, Path],
        configure: Callable[[Path], Mapping[str, Any]],
        log: Callable[[bytes], None],
        trace: Callable[[bytes], None],
    ) -> None:
        self._containers = containers
        self._home = home
        self._files = files
        self._configure = configure
        self._output, self._trace = Stream(log), Stream(trace)
        self._container = ""
        self._pidfd = -1
        self._watching: asyncio.Task[None] | None = None
        self._paused = False
        self._accounts: ContainerAccounts | None = None
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.ended_ns: int | None = None

    @property
    def accounts(self) -> GroupAccounts | None:
        """Its control group."""
        return self._accounts

    async def start(self) -> None:
        """Start the container, up to its program's first instruction; StartFailed if engine or host does not."""
        try:
            shared = await asyncio.to_thread(self._prepare)
            await self._create(shared)
            await self._call(self._api.start, self._container)
            await self._adopt()
            # Opened last: the program starts now. They are gone if its home was removed while the container started.
            self._output.open_named(shared / "log")
            self._trace.open_named(shared / "trace")
        except BaseException as error:
            try:
                await self.end()
            finally:
                await self.close()
            if isinstance(error, OSError):  # also what the engine refuses
                raise StartFailed(reason(error)) from error
            raise

    def pids(self) -> list[int]:
        """Its processes, as this host numbers them."""
        return self._accounts.pids() if self._accounts is not None else []

    def drain(self) -> None:
        """Read what it has written until now."""
        self._output.drain()
        self._trace.drain()

    async def freeze(self) -> None:
        """Pause the container, if the engine does it; one that has ended is seen by its exit."""
        self._paused = True
        with suppress(OSError):
            await self._call(self._api.pause, self._container)

    async def thaw(self) -> None:
        """Let the container go on; OSError if the engine does not answer."""
        if self._paused:
            self._paused = False
            with suppress(APIError):  # it has ended, or was not paused
                await self._call(self._api.unpause, self._container)

    async def end(self) -> None:
        """Kill and remove the container; OSError if the engine cannot, which then is asked again in the end."""
        if self._container:
            await self._call(remove, self._api, self._container)
        if self._watching is not None:
            await self._watching
        if not self.exited.done():
            self.exited.set_result(-signal.SIGKILL)

    async def close(self) -> None:
        """Close its streams and accounts."""
        if self._watching is not None and not self._watching.done():  # it could not be removed
            self._watching.cancel()
            await asyncio.wait([self._watching])
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if self._accounts is not None:
            self._accounts.close()
        self._output.close()
        self._trace.close()

    @property
    def _api(self) -> Any:
        return self._containers.engine.api

    async def _call(self, method: Callable[..., Result], *arguments: Any) -> Result:
        return await self._containers.call(method, *arguments)

    def _prepare(self) -> Path:
        """Make the directory that the container shares with the emulator."""
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
            raise StartFailed(f"the engine has no such image any more ({reason(error)})") from error
        except HostError as error:
            raise StartFailed(f"{error.message} ({error.hint})") from error
        self._container = created["Id"]

    async def _adopt(self) -> None:
        """Find the started container's process and accounts, and wait for its end from now on."""
        state = (await self._call(self._api.inspect_container, self._container))["State"]
        if not state["Pid"]:
            raise StartFailed(f"the container ended at once, with status {state['ExitCode']}")
        try:
            self._pidfd = os.pidfd_open(state["Pid"])
            self._accounts = await asyncio.to_thread(container_accounts, state["Pid"], self._container)
        except OSError as error:
            raise StartFailed(f"the container ended at once, or this process cannot see it ({error})") from error
        over = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._pidfd, self._has_ended, over)
        self._watching = asyncio.ensure_future(self._watch(over))

    def _has_ended(self, over: asyncio.Event) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self.ended_ns = time.monotonic_ns()
        over.set()

    async def _watch(self, over: asyncio.Event) -> None:
        """Learn how the container ended."""
        await over.wait()
        if self._accounts is not None:
            self._accounts.keep()
        status = -int(signal.SIGKILL)
        with suppress(OSError):  # it has been removed: then it was killed; or nobody can tell
            await self._call(self._api.wait, self._container)
            state = (await self._call(self._api.inspect_container, self._container))["State"]
            status = state["ExitCode"]
            if status > SIGNALLED:  # what the init makes of a signal
                status = SIGNALLED - status
            if state["OOMKilled"] and self._accounts is not None:
                self._accounts.note_out_of_memory()
        self.exited.set_result(status)


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
            found = _group(mount, group, container)
            if found is not None and version == 1:
                paths[controller] = found
            elif found is not None:
                enabled = (found / "cgroup.controllers").read_text().split()
                paths |= dict.fromkeys((name for name in enabled if name in ("memory", "cpu", "pids")), found)
    if not paths:
        raise FileNotFoundError(f"no control group of container {container[:12]} below /sys/fs/cgroup")
    return ContainerAccounts(1 if "cpuacct" in paths else 2, paths)


def _group(mount: Path, group: str, container: str) -> Path | None:
    """A container's group below a mount.

    Seen from another control group namespace the group has another path, whose last name is the container's all the
    same. It is looked for by os.walk, because other groups come and go meanwhile.
    """
    path = mount / group.lstrip("/")
    if container in path.name and path.exists():
        return path
    found = (Path(top, name) for top, names, _ in os.walk(mount) for name in names if container in name)
    return next(found, None)
