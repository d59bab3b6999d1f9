"""`slslab up --stack compose` and `slslab down`: run docker-compose.yml with `docker compose`.

`compose.json` in the state directory keeps the command that started the stack, for `slslab down`.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from slslab.aws.arns import REGION
from slslab.aws.keys import Keyring, Pair
from slslab.compose.client import DEFAULT_PAIR, STATE, RemoteEmulator, emulator_url, kept_variables
from slslab.compose.network import CHANNELS, localstack_variables
from slslab.compose.services import answering
from slslab.errors import HostError, RequestError
from slslab.host.state import make_state_directory, only_owner, state_directory
from slslab.stack import Stack, without_passwords

HEALTHY_LIMIT_S = 180.0
ASK_S = 0.5
FILE = "docker-compose.yml"
OFFLINE = Path("compose", "offline.yml")
PASSWORDS = ("SLSLAB_TENSORS_PASSWORD", "SLSLAB_QUEUE_PASSWORD")
INSTALL = "install Docker with its Compose plugin (or docker-compose 1.29), or use the embedded stack: slslab up."


def compose_command() -> list[str]:
    """Return `docker compose`, or the older `docker-compose`. Raises HostError if neither is installed."""
    command = ["docker", "compose"]
    if (
        shutil.which("docker")
        and subprocess.run([*command, "version"], capture_output=True, check=False).returncode == 0
    ):
        return command
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    raise HostError("Neither `docker compose` nor `docker-compose` is installed.", INSTALL)


def compose_files(*, offline: bool) -> list[Path]:
    """Return the files in Compose's variable $COMPOSE_FILE, or else the checkout's.

    `offline` adds the file with locally built images. Raises RequestError if a file doesn't exist.
    """
    separator = os.environ.get("COMPOSE_PATH_SEPARATOR", os.pathsep)
    paths = [Path(name) for name in os.environ.get("COMPOSE_FILE", "").split(separator) if name]
    # This file is emulator/slslab/up/compose.py in a checkout; an installed package has no compose file.
    paths = paths or [Path(__file__).resolve().parents[3] / FILE]
    if offline and paths[0].parent / OFFLINE not in paths:
        paths.append(paths[0].parent / OFFLINE)
    for path in paths:
        if not path.is_file():
            raise RequestError(f"There is no file {path}.", "run this in a checkout, or set COMPOSE_FILE.")
    return [path.absolute() for path in paths]


def start(
    files: Sequence[Path], tensor_databases: int | None, say: Callable[[str], None], limit_s: float = HEALTHY_LIMIT_S
) -> dict[str, Any]:
    """Start the stack, or scale a running one to this number of tensor databases; return its description when healthy.

    `say` gets a line for each service that answers. Raises HostError if Compose fails or a service doesn't answer.
    """
    command = [*compose_command(), *(word for file in files for word in ("-f", str(file)))]
    state = make_state_directory() / STATE
    variables = _key_variables()
    with open(state, "w", opener=only_owner) as file:
        json.dump({"command": command, "variables": variables}, file)
    scale = [] if tensor_databases is None else ["--scale", f"tensors={tensor_databases}"]
    # Its progress goes to standard error, like ours.
    code = subprocess.run(
        [*command, "up", "-d", *scale], stdout=sys.stderr, env=os.environ | variables, check=False
    ).returncode
    if code != 0:
        raise HostError(
            f"`{command[0]} … up` ended with exit code {code}.",
            "see its output above; `slslab down` removes what it started.",
        )
    return _wait_healthy(say, limit_s)


def stop() -> bool:
    """Remove the stack that `start` started, with its volumes; False if there wasn't one. HostError if that fails."""
    state = state_directory() / STATE
    if not state.exists():
        return False
    stored = json.loads(state.read_text())
    # Compose removes only services of named profiles.
    profiles = ",".join([*filter(None, [os.environ.get("COMPOSE_PROFILES")]), *CHANNELS])
    command, environment = stored["command"], os.environ | stored["variables"] | {"COMPOSE_PROFILES": profiles}
    done = subprocess.run(
        [*command, "down", "--volumes", "--remove-orphans"], stdout=sys.stderr, env=environment, check=False
    )
    if done.returncode != 0:
        raise HostError(
            f"`{command[0]} … down` ended with exit code {done.returncode}.",
            "see its output above; then type `slslab down` again.",
        )
    state.unlink()
    with suppress(OSError):
        state.parent.rmdir()
    return True


def status() -> dict[str, Any] | None:
    """Return the compose stack's description from its emulator; None if it doesn't answer."""
    try:
        return describe(RemoteEmulator(emulator_url()).about())
    except HostError:
        return None


def environment() -> dict[str, str] | None:
    """Return the variables with endpoints and keys for clients on this host; None if no stack runs."""
    emulator = RemoteEmulator(emulator_url())
    try:
        services = {service["part"]: service["host"] for service in emulator.about()["services"]}
    except HostError:
        return None
    # Other ports are reserved for a larger stack.
    stack = Stack(services["s3"], tuple(answering(services["tensors"].split())), services["queue"])
    return {
        **stack.client_environment(),
        **localstack_variables(services["states"]),
        "AWS_ENDPOINT_URL_LAMBDA": services["lambda"],
        "AWS_DEFAULT_REGION": REGION,
        **emulator.pair.variables(),
        **(kept_variables() or _for_compose(emulator.pair)),
    }


def _key_variables() -> dict[str, str]:
    """Return the compose variables with keys and passwords: a running stack's own, or else random ones."""
    if kept := kept_variables():
        return kept
    emulator = RemoteEmulator(emulator_url())
    try:
        emulator.about()
        return _for_compose(emulator.pair)
    except HostError:
        made = _for_compose(Keyring().owner) | {name: secrets.token_hex(16) for name in PASSWORDS}
        return {name: os.environ.get(name) or value for name, value in made.items()}


def _for_compose(pair: Pair) -> dict[str, str]:
    return dict(zip(DEFAULT_PAIR, (pair.key_id, pair.secret), strict=True))


def describe(about: dict[str, Any]) -> dict[str, Any]:
    """Return the document that `up` and `status` print, with the same keys as for the embedded stack."""
    services = {service["part"]: dict(service) for service in about["services"]}
    services["tensors"]["host"] = " ".join(answering(services["tensors"]["host"].split()))
    for service in services.values():
        for side in ("inside", "host"):
            service[side] = without_passwords(service[side])
    return {
        "kind": "compose",
        "version": about["version"],
        "endpoints": {part: service["host"] for part, service in services.items() if service["host"]}
        | {"tensors": services["tensors"]["host"].split()},
        "stack": {part: service["name"] for part, service in services.items()},
        "environment": about["environment"],
        "confinement": about["confinement"],
        "services": list(services.values()),
        "recording": about["recording"],
    }


def _wait_healthy(say: Callable[[str], None], limit_s: float) -> dict[str, Any]:
    emulator = RemoteEmulator(emulator_url())
    deadline = time.monotonic() + limit_s
    answering: set[str] = set()
    problem = f"no emulator answers at {emulator.url}"
    while time.monotonic() < deadline:
        with suppress(HostError):
            about = emulator.about()
            for service in about["services"]:
                if service["healthy"] and service["part"] not in answering:
                    answering.add(service["part"])
                    say(f"{service['part']}: {service['name']} answers")
            problem = ", ".join(
                f"{service['part']} does not answer ({service['trouble']})"
                for service in about["services"]
                if service["trouble"]
            )
            if not problem:
                return describe(about)
        time.sleep(ASK_S)  # all we can do until a service runs
    raise HostError(
        f"The stack is not healthy after {limit_s:.0f} s: {problem}.",
        "see `docker compose ps` and `docker compose logs`; `slslab down` stops the stack.",
    )
