"""Ask each service of a stack for its name and version: what it really is, and whether it answers."""

import http.client
import json
import re
import socket
import urllib.error
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import pika
import pika.exceptions
import redis

from slslab.aws.clients import HTTP
from slslab.installation import __version__

ANSWER_S = 5.0
UNANSWERED = (OSError, http.client.HTTPException, redis.RedisError, pika.exceptions.AMQPError, ValueError)


@dataclass(frozen=True)
class Service:
    """One service of a stack.

    `part` is its role (`lambda`, `s3`, `states`, `tensors`, `queue`) or its channel (`memcached`, `redis`, `dynamodb`,
    `parameter-server`). `name` is its name and version; if it is empty, the service doesn't answer, and `trouble` says
    why. `inside` is its address for functions. `host` is its address for programs on this host, empty if they can't
    reach it; tensor databases have several, separated by spaces.
    """

    part: str
    name: str
    inside: str
    host: str
    trouble: str = ""

    def as_document(self) -> dict[str, Any]:
        """Return the service as JSON, with whether it answers."""
        return {**asdict(self), "healthy": not self.trouble}


def examine(addresses: Mapping[str, Sequence[str]], host: Mapping[str, Sequence[str]]) -> list[Service]:
    """Ask every service at its addresses, concurrently; `host` has their addresses for the host, by the same parts."""
    with ThreadPoolExecutor(len(addresses) or 1, thread_name_prefix="examine") as pool:
        return list(pool.map(lambda part: _examined(part, addresses[part], host.get(part, ())), addresses))


def _examined(part: str, addresses: Sequence[str], host: Sequence[str]) -> Service:
    inside, outside = " ".join(addresses), " ".join(host)
    try:
        names = dict.fromkeys(ask(address) for address in addresses)
    except UNANSWERED as error:
        return Service(part, "", inside, outside, str(getattr(error, "reason", error)) or type(error).__name__)
    return Service(part, ", ".join(names), inside, outside, "" if names else "none is running")


def ask(address: str) -> str:
    """Return name and version of the service at an address with a known scheme; raises one of UNANSWERED."""
    askers: Mapping[str, Callable[[str], str]] = {
        "http": _http,
        "redis": _redis,
        "amqp": _amqp,
        "memcached": _memcached,
        "parameter": _parameter_server,
    }
    scheme = address.partition("://")[0]
    if scheme not in askers:
        raise ValueError(f"an address must begin with {', '.join(f'{name}://' for name in askers)}, not {scheme}://")
    return askers[scheme](address)


def empty(address: str) -> None:
    """Remove all data from the server at an address; raises one of UNANSWERED.

    Does nothing for DynamoDB, where each run has its tables, and for a parameter server, which the recorder empties.
    """
    scheme = address.partition("://")[0]
    if scheme == "memcached":
        _ask_line(address, "flush_all", "OK")
    if scheme != "redis":
        return
    with redis.Redis.from_url(address, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S) as client:
        client.flushall()


def answering(addresses: Iterable[str]) -> dict[str, str]:
    """Return the addresses where a tensor database answers, each with the id of the server's run."""
    found = {}
    for address in addresses:
        with suppress(redis.RedisError):
            found[address] = str(server_information(address)["run_id"])
    return found


def server_information(address: str) -> dict[str, Any]:
    """Return the section `server` of a Redis-compatible server's INFO; redis.RedisError if it doesn't answer."""
    with redis.Redis.from_url(address, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S) as client:
        information: dict[str, Any] = client.info("server")
        if "tensordb_version" not in information:
            information["modules"] = {entry["name"]: entry["ver"] for entry in client.module_list()}
        return information


def _http(address: str) -> str:
    # LocalStack returns its version there; any other server answers with an error that contains its name.
    try:
        with HTTP.open(f"{address}/_localstack/health", timeout=ANSWER_S) as answer:
            health = json.load(answer)
            if not isinstance(health, dict) or "version" not in health:
                raise ValueError("the server is not LocalStack")
            return f"LocalStack {health['version']}"
    except urllib.error.HTTPError as error:
        with error:
            name = error.headers.get("Server", "a server without a name")
            # moto doesn't return its own name. SeaweedFS adds the maximum size of its volumes.
            return f"moto on {name.split()[0]}" if name.startswith("Werkzeug/") else re.sub(r" \d+GB\b", "", name)


def _redis(address: str) -> str:
    information = server_information(address)
    if "tensordb_version" in information:
        return f"tensordb {information['tensordb_version']}"
    # Modules number their versions: RedisAI's 10207 is 1.2.7.
    modules = "".join(
        f", {name} {number // 10_000}.{number // 100 % 100}.{number % 100}"
        for name, number in information["modules"].items()
    )
    return f"Redis {information['redis_version']}{modules}"


def _memcached(address: str) -> str:
    return f"Memcached {_ask_line(address, 'version', 'VERSION')}"


def _parameter_server(address: str) -> str:
    # It runs in the workers' image, which is built together with the emulator's.
    _ask_line(address, f"token {unquote(urlsplit(address).password or '')}", "ok")
    return f"slslab {__version__}"


def _ask_line(address: str, command: str, answer: str) -> str:
    """Send a command; return the answer after its first word, or raise ValueError for another first word."""
    parts = urlsplit(address)
    with (
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=ANSWER_S) as connection,
        connection.makefile("rw", newline="\r\n") as file,
    ):
        file.write(f"{command}\n")
        file.flush()
        word, _, rest = file.readline().strip().partition(" ")
    if word != answer:
        raise ValueError(f"the server answers {word} {rest}")
    return rest


def _amqp(address: str) -> str:
    parameters = pika.URLParameters(address)
    parameters.socket_timeout = parameters.blocked_connection_timeout = parameters.stack_timeout = ANSWER_S
    with closing(pika.BlockingConnection(parameters)) as connection:
        properties = connection._impl.server_properties
    return " ".join(_text(properties[name]) for name in ("product", "version"))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
