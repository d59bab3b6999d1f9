"""A server of runs in a process of its own, and a client of it."""

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slslab.reports.live.server import HOST

WAIT_S = 60
COMMAND = [sys.executable, "-c", "from slslab.cli.main import main; main()", "serve"]


@dataclass
class Answer:
    """What a request got."""

    status: int
    headers: dict[str, str]
    text: str


@dataclass
class Server:
    """A server of a folder of runs, in a process of its own."""

    process: subprocess.Popen[str]
    port: int
    folder: Path

    def get(self, path: str, method: str = "GET", host: str | None = None) -> Answer:
        """Ask for a path, as it is."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=WAIT_S)
        try:
            connection.putrequest(method, path, skip_host=True)
            connection.putheader("Host", host if host is not None else f"{HOST}:{self.port}")
            connection.endheaders()
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, headers, response.read().decode())
        finally:
            connection.close()

    @contextmanager
    def events(self, path: str) -> Iterator[Iterator[str]]:
        """The data of the server-sent events that come, until the stream ends."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=WAIT_S)
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.getheader("content-type") == "text/event-stream; charset=utf-8"
        try:
            yield (line[6:].rstrip("\r\n") for line in map(bytes.decode, response) if line.startswith("data: "))
        finally:
            response.close()
            connection.close()


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    folder.mkdir(parents=True, exist_ok=True)
    command = [*COMMAND, "--port", "0", "--runs", str(folder), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(3)]
            url = json.loads("".join(lines))["url"]
            yield Server(process, int(url.rpartition(":")[2]), folder)
        finally:
            process.kill()
