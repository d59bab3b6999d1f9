"""The Docker engine as the emulator uses it: its own container if it runs in one, and what it must not leave behind.

Containers carry the mark of their emulator and of its process as labels. An emulator removes its own when it ends; its
reaper does if it is killed; and what is left even so (the reaper died with it, in one container) the next emulator
removes: `python -m slslab.environments.engine MARK` removes those of one mark.
"""

import os
import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from docker.errors import APIError, DockerException, NotFound

import docker
from slslab.errors import HostError

MARK_LABEL, OWNER_LABEL, FUNCTION_LABEL = "slslab.emulator", "slslab.owner", "slslab.function"
LOOPBACK = "127.0.0.1"
CONNECTIONS = 64
LOCAL = "unix:///var/run/docker.sock"
# A start waits for the engine's other starts; on a busy host a hundred at once take minutes.
ANSWER_LIMIT_S = 600
HINT = (
    "start Docker and let this user use it (the group `docker`, or DOCKER_HOST); `slslab doctor` tells what it finds."
)


class Engine:
    """A connection to the engine that DOCKER_HOST names, or the local one. HostError if none answers."""

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

    @property
    def in_container(self) -> bool:
        """Whether this process runs in one of the engine's containers."""
        return self.own is not None

    def network(self) -> str:
        """The network that the emulator's containers join: its own, if it is in a container, or else the host's."""
        if self.own is None:
            return "host"
        return str(next(iter(self.own["NetworkSettings"]["Networks"])))

    def address(self) -> str:
        """Where containers in that network reach this process."""
        if self.own is None:
            return LOOPBACK
        # The host's network, which a container may be in, has no address of its own.
        return str(self.own["NetworkSettings"]["Networks"][self.network()]["IPAddress"]) or LOOPBACK

    def host_path(self, path: Path) -> str:
        """The host's name of a path, the only one that the engine knows; HostError for one of this container alone."""
        if self.own is None:
            return str(path)
        for mount in sorted(self.own["Mounts"], key=lambda mount: -len(mount["Destination"])):
            if path.is_relative_to(mount["Destination"]):
                return str(Path(mount["Source"], path.relative_to(mount["Destination"])))
        raise HostError(
            f"{path} lies in the emulator's own container, where no other container can see it.",
            "mount a volume there, or name one in SLSLAB_HOME.",
        )

    def image(self, name: str) -> Mapping[str, Any] | None:
        """The image as `docker inspect` has it; None if the engine does not have it."""
        if ".." in name:  # no image's name, but a way to something else of the engine's
            return None
        try:
            found: Mapping[str, Any] = self.api.inspect_image(name)
        except APIError as error:
            if error.status_code not in (400, 404):  # it cannot be a name, or is none
                raise
            return None
        return found

    def remove_marked(self, mark: str) -> int:
        """Remove every container of one emulator; returns how many."""
        return self._remove({"label": f"{MARK_LABEL}={mark}"})

    def remove_orphans(self) -> int:
        """Remove the containers of emulators that are no more; returns how many."""
        return self._remove({"label": OWNER_LABEL}, orphans=True)

    def close(self) -> None:
        """Close the connections."""
        self.api.close()

    def _remove(self, filters: Mapping[str, str], *, orphans: bool = False) -> int:
        chosen = [
            one["Id"]
            for one in self.api.containers(all=True, filters=dict(filters))
            if not orphans or not lives(one["Labels"][OWNER_LABEL])
        ]
        for container in chosen:
            remove(self.api, container)
        return len(chosen)

    def _own_container(self) -> Mapping[str, Any] | None:
        if not Path("/.dockerenv").exists():
            return None
        try:
            own: Mapping[str, Any] = self.api.inspect_container(socket.gethostname())
        except NotFound:
            return None  # of another engine: what this one starts shares the host with it, and no network
        if own["HostConfig"]["PidMode"] != "host":
            raise HostError(
                "The emulator's container does not see the processes of others, so it could not meter them.",
                "give it `pid: host`, as docker-compose.yml does.",
            )
        return own


def remove(api: docker.APIClient, container: str) -> None:
    """Kill and remove a container, also a paused one, and return when it is gone."""
    with suppress(APIError):  # it is not paused, or is gone
        api.unpause(container)
    try:
        api.remove_container(container, v=True, force=True)
    except NotFound:
        return
    except APIError as error:
        if error.status_code != 409:  # somebody else removes it
            raise
        with suppress(NotFound):
            api.wait(container, condition="removed")


def _knock(address: str) -> None:
    """OSError if nobody listens at an engine's Unix socket; its client would find that out with a socket left open."""
    scheme, _, path = address.partition("://")
    if scheme == "unix":
        with socket.socket(socket.AF_UNIX) as knocking:
            try:
                knocking.connect(path)
            except OSError as error:
                raise OSError(f"{error.strerror} at {path}") from error


def owner() -> str:
    """A name of this process that no later process of this host can have."""
    pid = os.getpid()
    return f"{pid}:{_started(pid)}"


def lives(name: str) -> bool:
    """Whether the process of this name still runs."""
    pid, _, started = name.partition(":")
    return pid.isdecimal() and _started(int(pid)) == started


def _started(pid: int) -> str | None:
    """When a process started, in the kernel's ticks; None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[19]


def reason(error: Exception) -> str:
    """What the engine says is wrong, in a line."""
    text = error.explanation if isinstance(error, APIError) and error.explanation else str(error)
    return " ".join(str(text).split()).rstrip(".")


if __name__ == "__main__":
    Engine().remove_marked(sys.argv[1])
