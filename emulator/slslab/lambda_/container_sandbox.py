"""Confine environments in containers. Limits and accounts are the same as for processes; the engine sets the limits.

The file system is the image's, read-only except /tmp; all capabilities are dropped, and the user is Lambda's. A
function's zip archive is unpacked to /var/task of the worker's image; a function's own image is used as it is.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from docker.errors import ImageNotFound

from slslab.aws.errors import invalid
from slslab.aws.limits import MB, Limits
from slslab.host.cgroup_accounts import PERIOD_US, quota_us
from slslab.host.cgroups import Hierarchy
from slslab.host.connections import Address, find_socket, hold
from slslab.host.containers import GATE, LAMBDA_GID, SHARED, Container, Containers
from slslab.host.docker_engine import FUNCTION_LABEL
from slslab.host.namespaces import LAMBDA_UID, TASK_ROOT, Isolation
from slslab.host.sandbox import Sandbox
from slslab.host.session import Session
from slslab.host.spawner import TRACE_DESCRIPTOR, open_directory
from slslab.lambda_.configuration import Function
from slslab.lambda_.environment import Environment, LocalHost
from slslab.lambda_.hosts import in_wrapper
from slslab.lambda_.layers import Layers
from slslab.lambda_.packages import Image

# The container's own init, which reaps orphans and ends with the runtime.
OWN_PROCESSES = 1
LAYER_PYTHON = "/opt/layers/python"


class ContainerSandbox(Container):
    """A container with a function's runtime."""

    freezes = True

    async def owns(self, client: Address, server: Address) -> bool:
        """Return whether the connection comes from its address, or one of its processes has the client's socket open.

        In a container network, each container has its own address and, without capabilities, can't take another one. In
        the host's network, the socket's control group identifies the container even if this user may not read its
        descriptors. On cgroup v1 this user can only tell that the socket belongs to some container.
        """
        if self._address:
            return client[0] == self._address
        found = find_socket(client, server)
        if found is None or self.accounts is None:
            return False
        try:
            return hold(self.pids(), found.inode)
        except PermissionError:
            if self.accounts.version == 1:
                return found.uid == LAMBDA_UID
            return found.group == next(iter(self.accounts.paths.values())).stat().st_ino

    def files_bytes(self) -> int | None:
        """Return the size of the files in its /tmp, bytes.

        If this user may not look into its file system, it is all memory that its processes share and no disk holds.
        """
        found = super().files_bytes()
        return self.accounts.held_bytes()[1] if found is None and self.accounts is not None else found


class ContainerSandboxes(Containers, LocalHost):
    """This host with containers as sandboxes. $SLSLAB_WORKER_IMAGE is for functions without an image of their own.

    Entering raises HostError if no engine answers or it has no such image.
    """

    def __init__(self, session: Session, limits: Limits, budget_mb: int = 0) -> None:
        Containers.__init__(self, session)
        LocalHost.__init__(self, limits, budget_mb)

    def _enter(self, stack: ExitStack) -> None:
        LocalHost._enter(self, stack)
        Containers._enter(self, stack)
        self.address = self.engine.address()
        self._layers = Layers(self._session.home / "layers")
        self.hierarchy = self._hierarchy()
        self.isolation = Isolation("docker", True, engine=f"Docker {self.engine.version}")

    async def runtime(self, function: Function) -> str:
        """Return what the function really runs on."""
        if function.code.image is not None:
            return f"image {function.code.image.uri}"
        return f"image {self.image}, for {function.runtime}"

    def find_image(self, uri: str) -> Image:
        """Return the engine's image of this name; nothing is pulled."""
        image = self.engine.image(uri)
        if image is None:
            # The first sentences are AWS's.
            raise invalid(
                f"Source image {uri} does not exist. Provide a valid source image. "
                "(The engine must have it: docker pull, or build it.)"
            )
        return Image(uri, image["Id"], image["Size"])

    async def start(self, environment: Environment, former: Sandbox | None = None) -> ContainerSandbox:
        """Start a container; OSError if the engine or the host fails.

        Nothing of a `former` container is kept, not even /tmp, which belongs to the container.
        """
        if former is not None:
            await former.close()
        configure = partial(self._configuration, environment)
        sandbox = ContainerSandbox(
            self,
            environment.home,
            {"clock": environment.home / "clock"},
            configure,
            environment.log.write,
            environment.trace,
        )
        await sandbox.start()
        return sandbox

    def _configuration(self, environment: Environment, shared: Path) -> Mapping[str, Any]:
        function, api, limits = environment.function, self.engine.api, self.limits
        name = self.image if function.code.image is None else function.code.image.id
        image = self.engine.image(name)
        if image is None:
            raise ImageNotFound(name)
        defaults, chosen = image["Config"], function.image_config  # newer engines omit empty entries
        if function.code.image is None:
            command, directory = [function.handler], TASK_ROOT
        else:
            command = [*(chosen.get("Command") or defaults.get("Cmd") or ())]
            directory = chosen.get("WorkingDirectory") or defaults.get("WorkingDir") or "/"
        # The kernel counts files in /tmp as memory, Lambda doesn't. The resident set is held to the memory size.
        memory = (function.memory_mb + function.ephemeral_mb) * MB
        host = api.create_host_config(
            binds=[
                f"{self.engine.host_path(path)}:{target}:ro" for path, target in self._directories(environment, shared)
            ],
            tmpfs={"/tmp": f"size={function.ephemeral_mb}m,mode=1777,nosuid,nodev,exec"},
            read_only=True,
            mem_limit=memory,
            memswap_limit=memory,
            cpu_period=PERIOD_US,
            cpu_quota=quota_us(environment.cpu_share),
            cpuset_cpus=",".join(map(str, environment.processors())) or None,
            pids_limit=limits.processes + OWN_PROCESSES,
            ulimits=[
                {"Name": "nofile", "Soft": limits.descriptors, "Hard": limits.descriptors},
                {"Name": "memlock", "Soft": limits.locked_bytes, "Hard": limits.locked_bytes},
                {"Name": "core", "Soft": limits.core_bytes, "Hard": limits.core_bytes},
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
            **environment.variables(),
            "_HANDLER": (command or [""])[0],
            "LAMBDA_TASK_ROOT": TASK_ROOT,
            "LAMBDA_RUNTIME_DIR": "/var/runtime",
            "SLSLAB_TRACE_FD": str(TRACE_DESCRIPTOR),
            "SLSLAB_CLOCK_FILE": f"{SHARED}/clock",
        }
        program = [*(chosen.get("EntryPoint") or defaults.get("Entrypoint") or []), *command]
        if function.code.image is None:
            program = in_wrapper(function, program)
            # The worker's image needs its own variables to find programs and the runtime client.
            image_variables = dict(entry.split("=", 1) for entry in defaults.get("Env") or ())
            paths = [variables.get("PYTHONPATH"), image_variables.get("PYTHONPATH")]
            if function.layer_directories:
                layers = [f"{LAYER_PYTHON}/lib/{function.runtime}/site-packages", LAYER_PYTHON]
                paths = [TASK_ROOT, *layers, *paths]
                variables = {
                    "LD_LIBRARY_PATH": "/opt/lib",
                    "PATH": f"{image_variables.get('PATH', os.defpath)}:/opt/bin",
                } | variables
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        return dict(
            api.create_container_config(
                name,
                program,
                entrypoint=[*GATE, "/dev/null"],
                environment=variables,
                user=f"{LAMBDA_UID}:{LAMBDA_GID}",
                working_dir=directory,
                host_config=host,
                labels={**self.labels, FUNCTION_LABEL: function.name},
            )
        )

    def _directories(self, environment: Environment, shared: Path) -> Iterator[tuple[Path, str]]:
        yield shared, SHARED
        function = environment.function
        if function.code.directory is not None:
            yield readable(function.code.directory, environment.home), TASK_ROOT
        if function.layer_directories:
            for path in self._layers.merged(function.layer_directories).iterdir():
                # The worker's image has its own packages in /opt/python.
                yield path, LAYER_PYTHON if path.name == "python" else f"/opt/{path.name}"

    def _hierarchy(self) -> Hierarchy:
        about = self.engine.api.info()
        version = int(about.get("CgroupVersion", "1"))
        offered = {"memory": "MemoryLimit", "cpu": "CpuCfsQuota", "pids": "PidsLimit"}
        # A group's path is known only for each container; what can be limited is known for all.
        parents = {name: Path("/sys/fs/cgroup") for name, key in offered.items() if about.get(key)}
        if version == 1:
            parents["freezer"] = Path("/sys/fs/cgroup/freezer")
        return Hierarchy(version, parents, tuple(name for name in offered if name not in parents))


def readable(directory: Path, home: Path) -> Path:
    """Return a code directory that Lambda's user can read: itself, or a copy in `home` if only its owner may.

    Raises OSError if it is gone, or a link has replaced it. The engine opens it again by its path. The function follows
    links in it inside the container.
    """
    everybody = stat.S_IROTH | stat.S_IXOTH
    descriptor = open_directory(str(directory))
    try:
        if os.stat(descriptor).st_mode & everybody == everybody:
            return directory
        source = f"/proc/self/fd/{descriptor}/."
        copy = Path(shutil.copytree(source, Path(tempfile.mkdtemp(dir=home)) / "code", symlinks=True))
    finally:
        os.close(descriptor)
    for top, _, files in os.walk(copy):
        Path(top).chmod(0o755)
        for path in (Path(top, name) for name in files if not os.path.islink(os.path.join(top, name))):
            path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
    return copy
