"""Start, freeze, thaw and remove containers through the engine; meter them by control group and /proc.

A container's log and trace go through named pipes (so its image needs /bin/sh), not through the engine: what it wrote
before an answer can be read when the answer arrives. The pipes are opened when metering begins and hold the program
back until then, so that none of its time is missed and none of the engine's work is billed.
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

from slslab.errors import HostError, StartFailed
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
from slslab.host.output import Stream
from slslab.host.procfs import Sample, take_sample
from slslab.host.session import Session
from slslab.host.spawner import TRACE_DESCRIPTOR

WORKER_IMAGE = "slslab/worker:local"
SHARED = "/run/slslab"
# Opening a pipe waits for its reader: the program starts when the emulator begins to meter it.
GATE = ["/bin/sh", "-c", f'exec "$@" <"$0" >{SHARED}/log 2>&1 {TRACE_DESCRIPTOR}>{SHARED}/trace']
SIGNALLED = 128
Result = TypeVar("Result")


class Containers(Managed):
    """What the containers of one command share: the engine, an image, and threads for calls of the engine.

    All are removed at the end; `labels` are those by which they are found. Entering raises HostError if no engine
    answers or it has no such image.
    """

    def __init__(self, session: Session, image: str | None = None) -> None:
        self.image = image if image is not None else os.environ.get("SLSLAB_WORKER_IMAGE", WORKER_IMAGE)
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
            raise HostError(f"The engine does not list its containers: {reason(error)}.", HINT) from error
        self._session.watch_containers(True)
        # Twice: first to end what threads wait for; and when they are done, for a container that one has still made.
        stack.callback(self._remove_last)
        self._threads = stack.enter_context(ThreadPoolExecutor(CONNECTIONS, "slslab-engine"))
        stack.callback(self._remove)

    async def call(self, method: Callable[..., Result], *arguments: Any) -> Result:
        """Call the engine on a thread, because its client blocks."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, method, *arguments)

    def _remove(self) -> None:
        try:
            self.engine.remove_marked(self._session.id)
        except OSError as error:
            raise HostError(
                f"The engine does not remove this command's containers: {reason(error)}.",
                "the next command that uses containers removes them.",
            ) from error

    def _remove_last(self) -> None:
        self._remove()
        self._session.watch_containers(False)


class ContainerAccounts(GroupAccounts):
    """The accounts of a container's group; the engine removes the group with the container, so last values are kept.

    `reported_kills` counts kills for exhausted memory that the engine reports, maybe of the last process.
    """

    def __init__(self, version: int, paths: Mapping[str, Path]) -> None:
        super().__init__(version, paths)
        self._last: dict[tuple[str, str], bytes] = {}
        self.reported_kills = 0

    def out_of_memory_kills(self) -> int:
        """Return how many processes were killed because memory was exhausted, at least."""
        return max(super().out_of_memory_kills(), self.reported_kills)

    def keep(self) -> None:
        """Read what must be known when the group is gone; its processes have ended, so nothing will change."""
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


class Container:
    """One container.

    `configure` receives the directory that the container shares with this process, which holds `files`, and returns the
    engine's configuration; `home` is where that directory is made. The container's output goes to `log`, and what it
    writes to descriptor 3 to `trace`. `began` becomes its accounts when its program
    starts. `exited` becomes its exit code, negative for a signal, once the engine has
    reported it; `ended_ns` is when it ended (CLOCK_MONOTONIC).
    """

    failure = ""

    def __init__(
        self,
        containers: Containers,
        home: Path,
        files: Mapping[str, Path],
        configure: Callable[[Path], Mapping[str, Any]],
        log: Callable[[bytes], object],
        trace: Callable[[bytes], object],
    ) -> None:
        self._call, self._api = containers.call, containers.engine.api
        self._home = home
        self._files = files
        self._configure = configure
        self._output, self._trace = Stream(log), Stream(trace)
        self._container = ""
        self._address = ""
        self._pidfd = -1
        self._watching: asyncio.Task[None] | None = None
        self._paused = False
        self.accounts: ContainerAccounts | None = None
        self.began: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.ended_ns: int | None = None

    async def start(self) -> None:
        """Start the container, up to its program's first instruction; StartFailed if engine or host fails."""
        try:
            shared = await asyncio.to_thread(self._prepare)
            await self._create(shared)
            await self._call(self._api.start, self._container)
            await self._adopt()
            # Opened last: the program starts now. They do not exist if `home` was removed while the container started.
            self._output.open_named(shared / "log")
            self._trace.open_named(shared / "trace")
            self.began.set_result(take_sample(time.monotonic_ns(), self.pids(), self.accounts))
        except BaseException as error:
            try:
                await self.end()
            finally:
                await self.close()
            if isinstance(error, OSError):  # also what the engine refuses
                raise StartFailed(reason(error)) from error
            raise

    def pids(self) -> list[int]:
        """Return its processes, as this host numbers them."""
        return self.accounts.pids() if self.accounts is not None else []

    def drain(self) -> None:
        """Read what it has written until now."""
        self._output.drain()
        self._trace.drain()

    async def freeze(self) -> None:
        """Pause the container, if the engine can; the end of one that has ended is reported by `exited`."""
        self._paused = True
        with suppress(OSError):
            await self._call(self._api.pause, self._container)

    async def thaw(self) -> None:
        """Resume the container; OSError if the engine does not answer."""
        if self._paused:
            self._paused = False
            with suppress(APIError):  # it has ended, or was not paused
                await self._call(self._api.unpause, self._container)

    async def limit_cpu(self, share: float) -> None:
        """Allow the container so many processors from now on; the end of one that has ended is reported by `exited`."""
        assert self.accounts is not None
        try:
            self.accounts.limit_cpu(share)  # the engine takes a thousand times as long
        except OSError:
            quota = {"cpu_period": PERIOD_US, "cpu_quota": quota_us(share)}
            with suppress(APIError):
                await self._call(partial(self._api.update_container, self._container, **quota))

    async def end(self) -> None:
        """Kill and remove the container; OSError if the engine fails, which is called again at the command's end."""
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
        if self.accounts is not None:
            self.accounts.close()
        self._output.close()
        self._trace.close()

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
            raise StartFailed(f"the engine no longer has the image ({reason(error)})") from error
        except HostError as error:
            raise StartFailed(f"{error.message} ({error.hint})") from error
        self._container = created["Id"]

    async def _adopt(self) -> None:
        about = await self._inspect()
        state, (network,) = about["State"], about["NetworkSettings"]["Networks"].values()
        self._address = network["IPAddress"]
        if not state["Pid"]:
            raise StartFailed(f"the container ended at once, with status {state['ExitCode']}")
        try:
            self._pidfd = os.pidfd_open(state["Pid"])
            self.accounts = await asyncio.to_thread(container_accounts, state["Pid"], self._container)
        except OSError as error:
            raise StartFailed(f"the container ended at once, or this process cannot see it ({error})") from error
        over = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._pidfd, self._note_end, over)
        self._watching = asyncio.ensure_future(self._watch(over, self.accounts))

    def _note_end(self, over: asyncio.Event) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self.ended_ns = time.monotonic_ns()
        over.set()

    async def _watch(self, over: asyncio.Event, accounts: ContainerAccounts) -> None:
        await over.wait()
        accounts.keep()
        status = -int(signal.SIGKILL)
        with suppress(OSError):  # it has been removed, so it was killed; or the engine does not answer
            await self._call(self._api.wait, self._container)
            state = (await self._inspect())["State"]
            status = state["ExitCode"]
            if status > SIGNALLED:  # the init reports a signal this way
                status = SIGNALLED - status
            if state["OOMKilled"]:
                accounts.reported_kills = 1
        self.exited.set_result(status)

    async def _inspect(self) -> Any:
        return await self._call(self._api.inspect_container, self._container)


def container_accounts(pid: int, container: str) -> ContainerAccounts:
    """Return the accounts of a container, given its first process; FileNotFoundError if its group is not found here."""
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

    Seen from another control group namespace the group has another path, but its last part still contains the
    container's id. os.walk looks for it, because it tolerates groups that come and go meanwhile.
    """
    path = mount / name.lstrip("/")
    if container in path.name and path.exists():
        return path
    return next(
        (Path(top, child) for top, children, _ in os.walk(mount) for child in children if container in child), None
    )


# assumed: AWS does not document the group id of Lambda's sandbox user; `id` prints this one there.
LAMBDA_GID = 990
