"""Read the addresses of a compose network's services, for its emulator and for programs on the host.

All come from the variables that docker-compose.yml sets for the service `emulator`.
"""

import ipaddress
import re
import socket
from collections.abc import Mapping, Sequence
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
# For each part: the variable with its addresses, and their schemes.
PARTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", ("http",)),
    "states": ("AWS_ENDPOINT_URL_SFN", ("http",)),
    "tensors": ("SLSLAB_TENSORS", ("redis",)),
    "queue": ("SLSLAB_QUEUE_URL", ("amqp", "redis")),
    "memcached": ("SLSLAB_MEMCACHED_URL", ("memcached",)),
    "redis": ("SLSLAB_REDIS_URL", ("redis",)),
    "dynamodb": ("AWS_ENDPOINT_URL_DYNAMODB", ("http",)),
    "parameter-server": ("SLSLAB_PARAMETER_SERVER_URL", ("parameter",)),
}
# Optional servers of `--channel`.
CHANNELS = ("memcached", "redis", "dynamodb", "parameter-server")
# For each part that the host reaches: the variable with its ports there, which also changes them in docker-compose.yml,
# and its default.
PORTS = {
    "lambda": ("SLSLAB_EMULATOR_PORT", "9001"),
    "states": ("SLSLAB_LOCALSTACK_PORT", "4566"),
    "s3": ("SLSLAB_S3_PORT", "9000"),
    "queue": ("SLSLAB_QUEUE_PORT", "5672"),
    "tensors": ("SLSLAB_TENSORS_PORTS", "6379-6410"),
    "dynamodb": ("SLSLAB_DYNAMODB_PORT", "8000"),
}


@dataclass(frozen=True)
class Network:
    """The services in the emulator's variables: by part, their `addresses` in the network and `ports` on the host.

    Each address of `tensors` may stand for several databases, because a name has one network address per replica. The
    servers of channels may run or not; the host reaches only DynamoDB.
    """

    listen: tuple[str, int]
    advertise: str | None
    environment: str
    addresses: Mapping[str, tuple[str, ...]]
    ports: Mapping[str, tuple[int, ...]]
    pair: Pair

    @classmethod
    def from_variables(cls, variables: Mapping[str, str]) -> Self:
        """Read the environment variables; RequestError for a missing or wrong one."""
        given = [part for part, (name, _) in PARTS.items() if part not in CHANNELS or variables.get(name)]
        addresses = {part: _addresses(variables, *PARTS[part]) for part in given}
        ports = {part: _ports(name, variables.get(name, "") or default) for part, (name, default) in PORTS.items()}
        host, port = parse_listen(needed(variables, "SLSLAB_LISTEN"))
        environment = variables.get("SLSLAB_ENVIRONMENT", "") or ENVIRONMENTS[0]
        if environment not in ENVIRONMENTS:
            raise RequestError(f"SLSLAB_ENVIRONMENT is {environment!r}.", f"set it to {' or '.join(ENVIRONMENTS)}.")
        if environment == "docker":
            needed(variables, "SLSLAB_WORKER_IMAGE")
        if not variables.get("SLSLAB_EMULATOR_PORT"):
            ports["lambda"] = (port,)
        # LocalStack may be the object store, too.
        if urlsplit(addresses["s3"][0]).netloc == urlsplit(addresses["states"][0]).netloc:
            ports["s3"] = ports["states"]
        everywhere = f"http://{SERVICE}:{port}" if host == "0.0.0.0" else None
        return cls(
            listen=(host, port),
            advertise=variables.get("AWS_ENDPOINT_URL_LAMBDA", "") or everywhere,
            environment=environment,
            addresses=addresses,
            ports=ports,
            pair=Pair(needed(variables, "AWS_ACCESS_KEY_ID"), needed(variables, "AWS_SECRET_ACCESS_KEY")),
        )

    def tensor_urls(self) -> tuple[str, ...]:
        """Return the address of every tensor database that runs now, in the order of their network addresses."""
        return tuple(url for address in self.addresses["tensors"] for url in _replicas(address))

    def inside(self) -> dict[str, tuple[str, ...]]:
        """Return the addresses for functions, by part, except channel servers that weren't started."""
        found = {**self.addresses, "tensors": self.tensor_urls()}
        # A container that doesn't run has no name in the network.
        return {part: urls for part, urls in found.items() if part not in CHANNELS or _replicas(urls[0])}

    def outside(self) -> dict[str, tuple[str, ...]]:
        """Return the addresses for programs on the host, by part; only some tensor databases are reachable there."""
        reached = [(part, urls[0]) for part, urls in self.addresses.items() if part in self.ports]
        return {part: tuple(_at(url, HOST, port) for port in self.ports[part]) for part, url in reached}

    def client_environment(self) -> dict[str, str]:
        """Return the variables by which functions find the services, with the keys that they share with the owner."""
        first = {part: urls[0] for part, urls in self.addresses.items()}
        stack = Stack(first["s3"], self.tensor_urls(), first["queue"])
        others = localstack_variables(first["states"])
        if "dynamodb" in first:
            others[PARTS["dynamodb"][0]] = first["dynamodb"]
        return {**self.pair.variables(), **stack.client_environment(), **others}


def localstack_variables(url: str) -> dict[str, str]:
    """Return the variables that send clients to LocalStack for its services, except S3 and Lambda."""
    return {f"AWS_ENDPOINT_URL_{service}": url for service in ("SFN", "SQS", "SNS", "CLOUDWATCH_LOGS")}


def needed(variables: Mapping[str, str], name: str) -> str:
    """Return a variable; RequestError if it isn't set."""
    if not variables.get(name):
        raise RequestError(f"{name} is not set.", HINT)
    return variables[name]


def _addresses(variables: Mapping[str, str], name: str, schemes: Sequence[str]) -> tuple[str, ...]:
    addresses = tuple(needed(variables, name).split())
    for address in addresses:
        parts = urlsplit(address)
        try:
            valid = parts.scheme in schemes and parts.hostname is not None and parts.port is not None
        except ValueError:  # the port is not a number
            valid = False
        if not valid:
            forms = " or ".join(f"{scheme}://HOST:PORT" for scheme in schemes)
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
