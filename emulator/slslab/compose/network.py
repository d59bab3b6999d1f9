"""Read the addresses of a compose network's services, for its emulator and for programs on the host.

All come from the variables that docker-compose.yml sets for the service `emulator`.
"""

import ipaddress
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from slslab.aws.keys import Pair
from slslab.errors import RequestError
from slslab.stack import Stack

SERVICE = "emulator"
HOST = "127.0.0.1"
HINT = "docker-compose.yml shows the variables of the service `emulator`."
ENVIRONMENTS = ("docker", "process")
SCHEMES = {
    "AWS_ENDPOINT_URL_S3": ("http",),
    "AWS_ENDPOINT_URL_SFN": ("http",),
    "SLSLAB_QUEUE_URL": ("amqp", "redis"),
    "SLSLAB_TENSORS": ("redis",),
    "SLSLAB_MEMCACHED_URL": ("memcached",),
    "SLSLAB_REDIS_URL": ("redis",),
    "AWS_ENDPOINT_URL_DYNAMODB": ("http",),
    "SLSLAB_PARAMETER_SERVER_URL": ("parameter",),
}
# Optional servers of `--channel`, and the variables with their addresses.
CHANNELS = {
    "memcached": "SLSLAB_MEMCACHED_URL",
    "redis": "SLSLAB_REDIS_URL",
    "dynamodb": "AWS_ENDPOINT_URL_DYNAMODB",
    "parameter-server": "SLSLAB_PARAMETER_SERVER_URL",
}
# Ports on the host, which the same variables change in docker-compose.yml.
PORTS = {
    "SLSLAB_EMULATOR_PORT": "9001",
    "SLSLAB_LOCALSTACK_PORT": "4566",
    "SLSLAB_S3_PORT": "9000",
    "SLSLAB_QUEUE_PORT": "5672",
    "SLSLAB_TENSORS_PORTS": "6379-6410",
    "SLSLAB_DYNAMODB_PORT": "8000",
}


@dataclass(frozen=True)
class Network:
    """The services in the emulator's variables.

    Each address in `tensors` may stand for several databases, because a name has one network address per replica.
    `channels` maps channels to addresses of servers that may run; the host reaches only DynamoDB. `ports` are the
    host's, by part.
    """

    listen: tuple[str, int]
    advertise: str | None
    environment: str
    s3: str
    states: str
    queue: str
    tensors: tuple[str, ...]
    channels: Mapping[str, str]
    pair: Pair
    ports: Mapping[str, tuple[int, ...]]

    @classmethod
    def from_variables(cls, variables: Mapping[str, str]) -> Self:
        """Read the environment variables; RequestError for a missing or wrong one."""
        optional = {name for name in CHANNELS.values() if not variables.get(name)}
        addresses = {name: _addresses(variables, name) for name in SCHEMES if name not in optional}
        ports = {name: _ports(name, variables.get(name, "") or PORTS[name]) for name in PORTS}
        host, port = parse_listen(needed(variables, "SLSLAB_LISTEN"))
        environment = variables.get("SLSLAB_ENVIRONMENT", "") or ENVIRONMENTS[0]
        if environment not in ENVIRONMENTS:
            raise RequestError(f"SLSLAB_ENVIRONMENT is {environment!r}.", f"set it to {' or '.join(ENVIRONMENTS)}.")
        if environment == "docker":
            needed(variables, "SLSLAB_WORKER_IMAGE")
        everywhere = f"http://{SERVICE}:{port}" if host == "0.0.0.0" else None
        s3, states = addresses["AWS_ENDPOINT_URL_S3"][0], addresses["AWS_ENDPOINT_URL_SFN"][0]
        return cls(
            listen=(host, port),
            advertise=variables.get("AWS_ENDPOINT_URL_LAMBDA", "") or everywhere,
            environment=environment,
            s3=s3,
            states=states,
            queue=addresses["SLSLAB_QUEUE_URL"][0],
            tensors=addresses["SLSLAB_TENSORS"],
            channels={part: addresses[name][0] for part, name in CHANNELS.items() if name in addresses},
            pair=Pair(needed(variables, "AWS_ACCESS_KEY_ID"), needed(variables, "AWS_SECRET_ACCESS_KEY")),
            ports={
                "lambda": ports["SLSLAB_EMULATOR_PORT"] if variables.get("SLSLAB_EMULATOR_PORT") else (port,),
                # LocalStack may be the object store, too.
                "s3": ports[
                    "SLSLAB_LOCALSTACK_PORT" if urlsplit(s3).netloc == urlsplit(states).netloc else "SLSLAB_S3_PORT"
                ],
                "states": ports["SLSLAB_LOCALSTACK_PORT"],
                "queue": ports["SLSLAB_QUEUE_PORT"],
                "tensors": ports["SLSLAB_TENSORS_PORTS"],
                "dynamodb": ports["SLSLAB_DYNAMODB_PORT"],
            },
        )

    def tensor_urls(self) -> tuple[str, ...]:
        """Return the address of every tensor database that runs now, in the order of their network addresses."""
        return tuple(url for address in self.tensors for url in _replicas(address))

    def inside(self) -> dict[str, tuple[str, ...]]:
        """Return the addresses for functions, by part, except channel servers that weren't started."""
        parts: dict[str, tuple[str, ...]]
        parts = {"s3": (self.s3,), "states": (self.states,), "tensors": self.tensor_urls(), "queue": (self.queue,)}
        # A container that doesn't run has no name in the network.
        return parts | {channel: (url,) for channel, url in self.channels.items() if _replicas(url)}

    def outside(self) -> dict[str, tuple[str, ...]]:
        """Return the addresses for programs on the host, by part; only some tensor databases are reachable there."""
        inside = {"s3": self.s3, "states": self.states, "queue": self.queue, "tensors": self.tensors[0]}
        inside |= {part: url for part, url in self.channels.items() if part in self.ports}
        return {part: tuple(_at(url, HOST, port) for port in self.ports[part]) for part, url in inside.items()}

    def client_environment(self) -> dict[str, str]:
        """Return the variables by which functions find the services, with the keys that they share with the owner."""
        stack = Stack(self.s3, self.tensor_urls(), self.queue)
        tables = {CHANNELS[part]: url for part, url in self.channels.items() if part == "dynamodb"}
        return {**self.pair.variables(), **stack.client_environment(), **localstack_variables(self.states), **tables}


def localstack_variables(url: str) -> dict[str, str]:
    """Return the variables that send clients to LocalStack for its services, except S3 and Lambda."""
    return {f"AWS_ENDPOINT_URL_{service}": url for service in ("SFN", "SQS", "SNS", "CLOUDWATCH_LOGS")}


def needed(variables: Mapping[str, str], name: str) -> str:
    """Return a variable; RequestError if it isn't set."""
    if not variables.get(name):
        raise RequestError(f"{name} is not set.", HINT)
    return variables[name]


def _addresses(variables: Mapping[str, str], name: str) -> tuple[str, ...]:
    addresses = tuple(needed(variables, name).split())
    for address in addresses:
        parts = urlsplit(address)
        try:
            valid = parts.scheme in SCHEMES[name] and parts.hostname is not None and parts.port is not None
        except ValueError:  # the port is not a number
            valid = False
        if not valid:
            forms = " or ".join(f"{scheme}://HOST:PORT" for scheme in SCHEMES[name])
            raise RequestError(f"{name} is {address!r}, which is not an address.", f"set it to {forms}; {HINT}")
    return addresses


def parse_listen(text: str) -> tuple[str, int]:
    """Parse an address and a port, such as 0.0.0.0:9001; RequestError for another form."""
    host, _, port = text.rpartition(":")
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        port = ""
    if not port.isdecimal() or int(port) > 65_535:
        raise RequestError(f"SLSLAB_LISTEN is {text!r}, which is not an address.", "use one such as 0.0.0.0:9001.")
    return host, int(port)


def _ports(name: str, text: str) -> tuple[int, ...]:
    """Parse ports, such as `9001`, `6379-6394` or `6379,6385`."""
    ports: list[int] = []
    for entry in text.split(","):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", entry.strip())
        last = int(match[2] or match[1]) if match else 0
        if match is None or not 0 < int(match[1]) <= last <= 65_535:
            raise RequestError(f"{name} is {text!r}, which is not a port.", "use one such as 9001, or 6379-6394.")
        ports += range(int(match[1]), last + 1)
    return tuple(ports)


def _replicas(address: str) -> list[str]:
    """Return the address for each network address of its host, sorted; empty while the name is unknown."""
    parts = urlsplit(address)
    assert parts.hostname is not None
    assert parts.port is not None
    try:
        entries = socket.getaddrinfo(parts.hostname, parts.port, socket.AF_INET, socket.SOCK_STREAM)
    except socket.gaierror:
        return []
    hosts = sorted({str(entry[4][0]) for entry in entries}, key=ipaddress.IPv4Address)
    return [_at(address, host, parts.port) for host in hosts]


def _at(address: str, host: str, port: int) -> str:
    parts = urlsplit(address)
    user, at, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}{at}{host}:{port}").geturl()
