"""`slslab up --stack compose` and its end: docker-compose.yml through `docker compose`, and what then answers.

How the stack was started stands in `compose.json` in the state directory, for `slslab down`.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

from slslab.errors import HostError, RequestError
from slslab.service import state_directory
from slslab.stack.compose import RemoteEmulator, emulator_url
from slslab.stack.services import server_information

HEALTHY_LIMIT_S = 180.0
ASK_S = 0.5
FILE = "docker-compose.yml"
OFFLINE = Path("compose", "offline.yml")
STATE = "compose.json"
INSTALL = "install Docker with its Compose plugin (or docker-compose 1.29), or use the embedded stack: slslab up."


def compose_command() -> list[str]:
    """`docker compose`, or the older `docker-compose`. Raises HostError if there is neither."""
    if shutil.which("docker") and _succeeds("docker", "compose", "version"):
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    raise HostError("Neither `docker compose` nor `docker-compose` is installed.", INSTALL)


def compose_files(named: Sequence[Path], *, offline: bool) -> list[Path]:
    """The named files, or those of $COMPOSE_FILE, which is Compose's own variable, or the one of this source checkout;
    `offline` adds the images that are built here.

    Raises RequestError if one is not there.
    """
    separator = os.environ.get("COMPOSE_PATH_SEPARATOR", os.pathsep)
    chosen = [Path(name) for name in os.environ.get("COMPOSE_FILE", "").split(separator) if name]
    # emulator/slslab/composing.py of a checkout; an installed package has no compose file.
    files = list(named) or chosen or [Path(__file__).resolve().parents[2] / FILE]
    if offline and files[0].parent / OFFLINE not in files:
        files.append(files[0].parent / OFFLINE)
    for file in files:
        if not file.is_file():
            raise RequestError(f"There is no file {file}.", f"run it in a checkout, or name one: --file {FILE}.")
    return [file.absolute() for file in files]


def start(
    files: Sequence[Path], tensor_databases: int | None, say: Callable[[str], None], limit_s: float = HEALTHY_LIMIT_S
) -> dict[str, Any]:
    """Start the stack, or bring a running one to this number of tensor databases; its description once all is healthy.

    `say` hears of each service when it answers. Raises HostError if Compose fails or something stays ill.
    """
    command = [*compose_command(), *(word for file in files for word in ("-f", str(file)))]
    directory = state_directory()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / STATE).write_text(json.dumps(command))
    scale = [] if tensor_databases is None else ["--scale", f"tensors={tensor_databases}"]
    # Its progress goes where ours does.
    code = subprocess.run([*command, "up", "-d", *scale], stdout=sys.stderr, check=False).returncode
    if code != 0:
        message = f"`{command[0]} … up` ended with exit code {code}."
        raise HostError(message, "it said why above; `slslab down` removes what it has started.")
    return _wait_healthy(say, limit_s)


def stop() -> bool:
    """End the stack that `start` started, with its volumes; False if there is none. Raises HostError if that fails."""
    state = state_directory() / STATE
    if not state.exists():
        return False
    command = json.loads(state.read_text())
    done = subprocess.run([*command, "down", "--volumes", "--remove-orphans"], stdout=sys.stderr, check=False)
    if done.returncode != 0:
        message = f"`{command[0]} … down` ended with exit code {done.returncode}."
        raise HostError(message, "it said why above; call `slslab down` again.")
    state.unlink()
    with suppress(OSError):
        state.parent.rmdir()
    return True


def status() -> dict[str, Any] | None:
    """What the compose stack's emulator says of the stack; None if none answers."""
    try:
        return describe(RemoteEmulator(emulator_url()).about())
    except HostError:
        return None


def describe(about: dict[str, Any]) -> dict[str, Any]:
    """The document that `up` and `status` print, as the embedded stack's service has it."""
    services = {service["part"]: dict(service) for service in about["services"]}
    several = {"tensors": _answering(services["tensors"]["host"].split())}
    services["tensors"]["host"] = " ".join(several["tensors"])
    return {
        "kind": "compose",
        "version": about["version"],
        "endpoints": {part: service["host"] for part, service in services.items()} | several,
        "credentials": about["credentials"],
        "stack": {part: service["name"] for part, service in services.items()},
        "environment": about["environment"],
        "confinement": about["confinement"],
        "services": list(services.values()),
        "recording": about["recording"],
    }


def _wait_healthy(say: Callable[[str], None], limit_s: float) -> dict[str, Any]:
    emulator = RemoteEmulator(emulator_url())
    deadline = time.monotonic() + limit_s
    told: set[str] = set()
    ill = f"no emulator answers at {emulator.url}"
    while time.monotonic() < deadline:
        with suppress(HostError):
            about = emulator.about()
            for service in about["services"]:
                if service["healthy"] and service["part"] not in told:
                    told.add(service["part"])
                    say(f"{service['part']}: {service['name']} answers")
            troubles = [
                f"{one['part']} does not answer ({one['trouble']})" for one in about["services"] if one["trouble"]
            ]
            if not troubles:
                return describe(about)
            ill = ", ".join(troubles)
        time.sleep(ASK_S)  # a service that is not there yet can only be asked again
    message = f"The stack is not healthy after {limit_s:.0f} s: {ill}."
    raise HostError(message, "`docker compose ps` and `logs` tell more; `slslab down` ends it.")


def _answering(addresses: Sequence[str]) -> list[str]:
    """Those of the tensor databases' ports on this host that are in use: more are kept for a larger stack."""
    found = []
    for address in addresses:
        with suppress(redis.RedisError):
            server_information(address)
            found.append(address)
    return found


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
