"""Run a plan on a running compose stack: functions run in the stack's emulator, and its recording is the run's trace.

The driver calls the emulator and S3 directly and Step Functions through LocalStack, all at the host's ports. It names
every resource to the emulator before creating it, so that a killed driver leaves nothing behind.
"""

import getpass
import http.client
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from slslab.aws.clients import send_signed
from slslab.aws.keys import Pair
from slslab.errors import HostError, RequestError
from slslab.host.state import state_directory
from slslab_workers.architecture import RunFailed

ANSWER_S = 60.0
GONE = (404, 409)
# A whole run's containers, objects and functions are started and removed one by one.
WORK_S = 600.0
START = "start it with `slslab up --stack compose`, or set SLSLAB_EMULATOR_URL to another one."
# The file that `up --stack compose` writes to the state directory.
STATE = "compose.json"
# docker-compose.yml's variables for the stack's keys, with its defaults.
DEFAULT_PAIR = {"SLSLAB_ACCESS_KEY_ID": "slslab", "SLSLAB_SECRET_ACCESS_KEY": "slslab-loopback-only"}
KEYS = "set SLSLAB_ACCESS_KEY_ID and SLSLAB_SECRET_ACCESS_KEY as for `docker compose up`."


def emulator_url() -> str:
    """Return the emulator's address for programs on this host: SLSLAB_EMULATOR_URL, or its published port."""
    return os.environ.get("SLSLAB_EMULATOR_URL") or f"http://127.0.0.1:{os.environ.get('SLSLAB_EMULATOR_PORT', 9001)}"


def stack_pair() -> Pair:
    """Return the stack's keys: from the variables, else from `slslab up`, else docker-compose.yml's default."""
    kept = DEFAULT_PAIR | kept_variables()
    return Pair(*(os.environ.get(name) or kept[name] for name in DEFAULT_PAIR))


def kept_variables() -> dict[str, str]:
    """Return docker-compose.yml's variables with the keys and passwords from `slslab up`; empty without its stack."""
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError), (state_directory() / STATE).open() as file:
        return dict(json.load(file)["variables"])
    return {}


class RemoteEmulator:
    """The control API of an emulator at this address (`slslab.compose.control`); signs with the `pair`.

    By default that is the compose stack's. `hint` tells what to do if there is no answer.
    """

    def __init__(self, url: str, pair: Pair | None = None, hint: str = START) -> None:
        self.url = url.rstrip("/")
        self.pair = pair or stack_pair()
        self._hint = hint
        parts = urlsplit(self.url)
        try:
            self._address = (parts.hostname or "", parts.port or 80)
        except ValueError:
            self._address = ("", 0)
        if parts.scheme != "http" or not self._address[0]:
            raise RequestError(
                f"{url!r} is not an emulator's address.", "use an address such as http://127.0.0.1:9001."
            )

    def about(self) -> dict[str, Any]:
        """Return the stack's description; HostError if no emulator answers, RequestError if it has other keys."""
        status, body = self.ask("GET", "/slslab/about")
        with suppress(ValueError):
            description: dict[str, Any] = json.loads(body)
            if status == 200 and "services" in description:
                return description
            if status == 403:
                raise RequestError(f"The emulator at {self.url} refuses the keys: {description['message']}", KEYS)
        raise HostError(f"The server at {self.url} is not an emulator of a compose stack.", START)

    def ask(self, method: str, path: str, body: Any = None, limit_s: float | None = None) -> tuple[int, bytes]:
        """Send a request; return status and body. Raises HostError without an answer within the limit (ANSWER_S)."""
        with closing(self._connection(limit_s)) as connection:
            answer = self._answer(connection, method, path, body)
            return answer.status, answer.read()

    @contextmanager
    def record(
        self, run: str, on_record: Callable[[dict[str, Any]], None], tensor_databases: int = 0, channel: str = ""
    ) -> Iterator["RemoteRecording"]:
        """Record the run within the block; abort the recording if the block ends without its `finish`.

        `on_record` receives every record, on a thread of its own, and a record `failed` if the emulator ends. Raises
        HostError if another run uses the stack.
        """
        asked = {
            "run": run,
            "by": f"{getpass.getuser()}@{socket.gethostname()} (process {os.getpid()})",
            "tensor_databases": tensor_databases,
            "channel": channel,
        }
        with (
            closing(self._connection()) as connection,
            closing(self._answer(connection, "POST", "/slslab/recordings", asked)) as answer,
        ):
            if answer.status != 200:
                granted(answer.status, answer.read())
            assert connection.sock is not None
            recording = RemoteRecording(self, connection.sock, answer, on_record)
            try:
                yield recording
            finally:
                recording.close()

    def _connection(self, limit_s: float | None = None) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*self._address, timeout=ANSWER_S if limit_s is None else limit_s)

    def _answer(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any
    ) -> http.client.HTTPResponse:
        try:
            return send_signed(connection, self.pair, method, path, b"" if body is None else json.dumps(body).encode())
        except (OSError, http.client.HTTPException) as error:
            reason = error or type(error).__name__
            raise HostError(f"No emulator answers at {self.url}: {reason}.", self._hint) from error


class RemoteRecording:
    """A recording in progress; its records arrive on `connection`, and `on_record` receives them.

    `path` is the recording's path in the control API; `tensors` has the id of every tensor database's server by its
    address inside the network.
    """

    def __init__(
        self,
        emulator: RemoteEmulator,
        connection: socket.socket,
        answer: http.client.HTTPResponse,
        on_record: Callable[[dict[str, Any]], None],
    ) -> None:
        self._emulator, self._answer, self._socket, self._on_record = emulator, answer, connection, on_record
        first = json.loads(answer.readline())
        self.tensors: dict[str, str] = first["tensors"]
        self.path = f"/slslab/recordings/{first['id']}"
        # From now on, long silence is normal.
        self._socket.settimeout(None)
        self._end: dict[str, Any] | None = None
        self._reader = threading.Thread(target=self._read, name="recording", daemon=True)
        self._reader.start()

    def close(self) -> None:
        """Stop receiving records, and return when the last one has been passed on."""
        with suppress(OSError):  # it has ended already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()

    def receives(self) -> bool:
        """Return whether more records may come."""
        return self._reader.is_alive()

    def ask(self, method: str, path: str = "", **body: Any) -> None:
        """Send a request about the recording; HostError if it is refused, or without an answer within WORK_S.

        If there is nothing to end any more, a DELETE has no effect.
        """
        status, answer = self._emulator.ask(method, self.path + path, body or None, WORK_S)
        if method != "DELETE" or status not in GONE:
            granted(status, answer)

    def name(self, kind: str, name: str) -> None:
        """Name a resource of the run: from now on its records are received, and the recording's end removes it."""
        self.ask("POST", "/resources", kind=kind, name=name)

    def finish(self) -> dict[str, Any]:
        """End the recording, wait until everything has arrived, and return its last record."""
        self.ask("DELETE")
        self._reader.join()
        if self._end is None:
            raise HostError(f"The emulator at {self._emulator.url} ended before the run's recording did.", START)
        return self._end

    def _read(self) -> None:
        with suppress(OSError, http.client.HTTPException, ValueError):
            for line in self._answer:
                record = json.loads(line)
                if record["record"] == "end":
                    self._end = record
                    return
                self._on_record(record)
        self._on_record({"record": "failed", **vars(RunFailed("StackFailed", "the stack's emulator ended"))})


def granted(status: int, body: bytes, hint: str = START) -> None:
    """Raise HostError with the emulator's message and hint if it has refused a request; it may have sent no hint."""
    if status != 200:
        refusal = {"message": f"The emulator answered with status {status}."}
        with suppress(ValueError, TypeError):  # not from the control API
            refusal |= json.loads(body)
        raise HostError(refusal["message"], refusal.get("hint", hint))
