"""The clients of `hostile.py`: signed requests, raw bytes, and many of them at once."""

import json
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

from slslab.aws.clients import signed_headers
from slslab.aws.keys import Pair
from slslab_workers.channels.endpoints import QUEUE_URL, TENSOR_URLS

KB, MB = 1024, 1024 * 1024
LIMIT_S, ENDLESS_S = 35.0, 10.0
URLS = {
    "lambda": "AWS_ENDPOINT_URL_LAMBDA",
    "states": "AWS_ENDPOINT_URL_SFN",
    "s3": "AWS_ENDPOINT_URL_S3",
    "aws": "AWS_ENDPOINT_URL",
    "edge": "AWS_ENDPOINT_URL",
    "tensordb": TENSOR_URLS,
    "rabbitmq": QUEUE_URL,
}
# The prefix of each JSON service's operations; the others use the Query protocol.
JSON_TARGETS = {
    "states": "AWSStepFunctions",
    "sqs": "AmazonSQS",
    "dynamodb": "DynamoDB_20120810",
    "events": "AWSEvents",
    "logs": "Logs_20140328",
}


@dataclass(frozen=True)
class Target:
    """A service: its address, and its owner's keys."""

    kind: str
    url: str
    pair: Pair

    @classmethod
    def of(cls, kind: str, variables: dict[str, str]) -> "Target":
        """Return a service from the variables of `slslab env`."""
        pair = Pair(variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"])
        return cls(kind, variables[URLS[kind]].split()[0], pair)

    def connect(self) -> socket.socket:
        parts = urlsplit(self.url)
        return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=LIMIT_S)


@dataclass(frozen=True)
class Case:
    """One input, and how long to wait for its answer."""

    name: str
    send: Callable[[Target], str]
    limit_s: float = 0.0


def http(
    target: Target, method: str, path: str, body: bytes = b"", service: str = "lambda", shown: int = 100, **headers: str
) -> str:
    """Make a signed request; return its status with the beginning of the answer. AssertionError for status 5xx."""
    signed = signed_headers(target.pair, method, target.url + path, body, headers, service)
    connection = HTTPConnection(urlsplit(target.url).netloc, timeout=LIMIT_S)
    try:
        connection.request(method, path, body, signed)
        response = connection.getresponse()
        text = response.read(64 * MB).decode(errors="replace")
    finally:
        connection.close()
    with suppress(ValueError, AttributeError):
        error = json.loads(text)
        text = f"{error['__type']}: {error.get('message')}" if "__type" in error else text
    return f"{response.status} {text[:shown]}"


def api(target: Target, service: str, operation: str, members: Any, shown: int = 100) -> str:
    """Call an operation of AWS JSON, or of the Query protocol; `members` may be the whole body."""
    if (prefix := JSON_TARGETS.get(service)) is None:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        return http(target, "POST", "/", urlencode({"Action": operation, **members}).encode(), service, shown, **form)
    body = members if isinstance(members, bytes) else json.dumps(members).encode()
    headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": f"{prefix}.{operation}"}
    return http(target, "POST", "/", body, service, shown, **headers)


def called(service: str, operation: str, members: Any) -> Callable[[Target], str]:
    """Return a case's `send` that calls an operation."""
    return lambda target: api(target, service, operation, members)


def endless(piece: bytes, pause_s: float = 0.0) -> Iterator[bytes]:
    """Yield the same piece for ENDLESS_S."""
    end = time.monotonic() + ENDLESS_S
    while time.monotonic() < end:
        yield piece
        time.sleep(pause_s)


def raw(target: Target, pieces: Iterable[bytes], connection: socket.socket | None = None) -> str:
    """Send bytes until the service closes or they end; return the beginning of its answer."""
    with connection or target.connect() as stream:
        sent = 0
        try:
            for piece in pieces:
                stream.sendall(piece)
                sent += len(piece)
            stream.settimeout(5)
            return f"{stream.recv(200)!r}"
        except TimeoutError:
            return f"no answer after {sent:,} bytes"
        except OSError:
            with suppress(OSError):
                stream.settimeout(1)
                return f"after {sent:,} bytes {stream.recv(200)!r}"
            return f"closed after {sent:,} bytes"


def at_once(send: Callable[[Target], str], number: int) -> Callable[[Target], str]:
    """Return a function that sends an input this many times at once."""

    def several(target: Target) -> str:
        with ThreadPoolExecutor(number) as pool:
            answers = list(pool.map(lambda _: send(target), range(number)))
        return f"{number} times {answers[-1]}"

    return several


def silent(number: int, first: bytes = b"") -> Callable[[Target], str]:
    """Return a function that opens connections, sends only their first bytes and keeps them for 5 s."""

    def connections(target: Target) -> str:
        opened = []
        for _ in range(number):
            opened.append(target.connect())
            opened[-1].sendall(first)
        time.sleep(5)
        for connection in opened:
            connection.close()
        return f"{number} connections were open"

    return connections
