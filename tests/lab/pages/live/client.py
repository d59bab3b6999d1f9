"""A server of runs in a process of its own, and a client of it."""

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from slslab_lab.pages.live.server import HOST

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
    """A server of a folder of runs, in a process of its own; `url` is what it printed."""

    process: subprocess.Popen[str]
    url: str
    folder: Path

    @property
    def port(self) -> int:
        """Where it listens."""
        port = urlsplit(self.url).port
        assert port is not None
        return port

    @cached_property
    def cookie(self) -> str:
        """What a browser gets for the token, as it sends it back."""
        answer = self.get(self.url.removeprefix(f"http://{HOST}:{self.port}"), cookie="")
        assert answer.status == 303
        return answer.headers["set-cookie"].partition(";")[0]

    def get(self, path: str, method: str = "GET", host: str | None = None, cookie: str | None = None) -> Answer:
        """Ask for a path, as it is, with the cookie or another one."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=WAIT_S)
        try:
            connection.putrequest(method, path, skip_host=True)
            connection.putheader("Host", host if host is not None else f"{HOST}:{self.port}")
            connection.putheader("Cookie", self.cookie if cookie is None else cookie)
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
        connection.request("GET", path, headers={"Cookie": self.cookie})
        response = connection.getresponse()
        assert response.getheader("content-type") == "text/event-stream; charset=utf-8"
        try:
            yield (line[6:].rstrip("\r\n") for line in map(bytes.decode, response) if line.startswith("data: "))
        finally:
            response.close()
            connection.close()


@contextmanager
def serving(folder: Path, port: int = 0) -> Iterator[Server]:
    folder.mkdir(parents=True, exist_ok=True)
    command = [*COMMAND, "--port", str(port), "--runs", str(folder), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(4)]
            yield Server(process, json.loads("".join(lines))["url"], folder)
        finally:
            process.kill()
