"""Talk to the Docker engine about this process's own container, if it runs in one, and about leftover containers.

Labels mark each container with its emulator and the emulator's process. An emulator removes its containers when it
ends; if it is killed, its reaper does. If the reaper was killed too (both ran in one container), the next emulator
removes them. `python -m slslab.host.docker_engine MARK` removes the containers with this mark.
"""

import os
import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException, NotFound

from slslab.errors import HostError
from slslab.host.connections import LOOPBACK

MARK_LABEL, OWNER_LABEL, FUNCTION_LABEL = "slslab.emulator", "slslab.owner", "slslab.function"
CONNECTIONS = 64
LOCAL = "unix:///var/run/docker.sock"
# Starts wait for each other in the engine; on a busy host, a hundred at once take minutes.
ANSWER_LIMIT_S = 600
HINT = (
    "start Docker and let this user use it (the group `docker`, or DOCKER_HOST); `slslab doctor` shows what it finds."
)


class Engine:
    """A connection to the engine that DOCKER_HOST names, or to the local one. HostError if no engine answers."""

    def __init__(self) -> None:
        with ExitStack() as stack:
            try:
                _knock(os.environ.get("DOCKER_HOST") or LOCAL)
                self.api = docker.APIClient(
                    **docker.utils.kwargs_from_env(), version="auto", timeout=ANSWER_LIMIT_S, max_pool_size=CONNECTIONS
                )
                stack.callback(self.api.close)
                self.version: str = self.api.version()["Version"]
                self.own = self._own_container()
            except (DockerException, OSError) as error:
                raise HostError(f"No Docker engine answers: {reason(error)}.", HINT) from error
            stack.pop_all()

    def network(self) -> str:
        """Return the network that containers join: this process's own if it runs in a container, else the host's."""
        if self.own is None:
            return "host"
        return str(next(iter(self.own["NetworkSettings"]["Networks"])))

    def address(self) -> str:
        """Return the address at which containers in that network reach this process."""
        if self.own is None:
            return LOOPBACK
        # A container in the host's network has no address of its own.
        return str(self.own["NetworkSettings"]["Networks"][self.network()]["IPAddress"]) or LOOPBACK

    def host_path(self, path: Path) -> str:
        """Return a path as the host sees it, which is what the engine expects; HostError if the host can't see it."""
        if self.own is None:
            return str(path)
        for mount in sorted(self.own["Mounts"], key=lambda mount: -len(mount["Destination"])):
            if path.is_relative_to(mount["Destination"]):
                return str(Path(mount["Source"], path.relative_to(mount["Destination"])))
        raise HostError(
            f"{path} is in the emulator's own container, where no other container can see it.",
            "mount a volume there, or name one in SLSLAB_HOME.",
        )

    def image(self, name: str) -> Mapping[str, Any] | None:
        """Return the image as `docker inspect` shows it, or None if the engine doesn't have it."""
        if ".." in name:  # not an image's name, but a path to something else in the engine's API
            return None
        try:
            return dict(self.api.inspect_image(name))
        except APIError as error:
            if error.status_code not in (400, 404):  # not a valid name, or not found
                raise
            return None

    def remove_marked(self, mark: str) -> None:
        """Remove all containers of one emulator."""
        for container in self.api.containers(all=True, filters={"label": f"{MARK_LABEL}={mark}"}):
            remove(self.api, container["Id"])

    def remove_orphans(self) -> None:
        """Remove the containers of emulators that no longer run."""
        for container in self.api.containers(all=True, filters={"label": OWNER_LABEL}):
            if not runs(container["Labels"][OWNER_LABEL]):
                remove(self.api, container["Id"])

    def close(self) -> None:
        """Close the connections."""
        self.api.close()

    def _own_container(self) -> Mapping[str, Any] | None:
        if not Path("/.dockerenv").exists():
            return None
        try:
            container: Mapping[str, Any] = self.api.inspect_container(socket.gethostname())
        except NotFound:
            return None  # a container of another engine: ours share the host with it, but not its network
        if container["HostConfig"]["PidMode"] != "host":
            raise HostError(
                "The emulator's container can't meter other containers because it doesn't see their processes.",
                "give it `pid: host`, as docker-compose.yml does.",
            )
        return container


def remove(api: docker.APIClient, container: str) -> None:
    """Kill and remove a container, even a paused one, and return when it is gone."""
    with suppress(APIError):  # it isn't paused, or is gone
        api.unpause(container)
    try:
        api.remove_container(container, v=True, force=True)
    except NotFound:
        return
    except APIError as error:
        if error.status_code != 409:  # another process is removing it
            raise
        with suppress(NotFound):
            api.wait(container, condition="removed")


def _knock(address: str) -> None:
    """Raise OSError if nothing listens at an engine's Unix socket. The client would leave a socket open then."""
    scheme, _, path = address.partition("://")
    if scheme == "unix":
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(path)
            except OSError as error:
                raise OSError(f"{error.strerror} at {path}") from error


def owner() -> str:
    """Return a name for this process that no later process on this host can have."""
    return f"{os.getpid()}:{_started(os.getpid())}"


def runs(name: str) -> bool:
    """Return whether the process with this name still runs."""
    pid, _, started = name.partition(":")
    return pid.isdecimal() and _started(int(pid)) == started


def _started(pid: int) -> str | None:
    """Return when a process started, in kernel ticks, or None if it doesn't run."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return None


def reason(error: Exception) -> str:
    """Return the engine's error message on one line."""
    text = error.explanation if isinstance(error, APIError) and error.explanation else str(error)
    return " ".join(str(text).split()).rstrip(".")


if __name__ == "__main__":
    Engine().remove_marked(sys.argv[1])
