"""The emulator: Lambda's API on a loopback address, with everything that it starts under one roof.

    with Emulator() as emulator:
        client = emulator.client("lambda")

Everything it makes (processes, control groups, sockets, files) ends with it, and a reaper process ends it should the
emulator itself be killed.
"""

import asyncio
import logging
import os
import resource
import shutil
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import botocore.exceptions
import psutil
import uvicorn
from starlette.routing import BaseRoute

from slslab.clients import aws_client
from slslab.environments.confinement import Hierarchy
from slslab.environments.environment import EnvironmentHost
from slslab.environments.isolation import Isolation
from slslab.environments.process import ProcessSandboxes
from slslab.environments.sandbox import Sandboxes
from slslab.errors import HostError, RequestError
from slslab.functions import Functions
from slslab.invocation import InvocationService
from slslab.lambda_api import LambdaApi
from slslab.limits import Limits, lambda_limits
from slslab.metering import MB, InvocationRecord
from slslab.packages import Packages, layer_size
from slslab.service_errors import invalid
from slslab.session import Session

if TYPE_CHECKING:  # the engine's client is needed only where there are containers
    from slslab.environments.container import Containers

BUDGET_FRACTION = 0.9
RECORDS_KEPT = 1_000
DESCRIPTORS = 65_536
LOG = logging.getLogger(__name__)
Result = TypeVar("Result")
ENDPOINT = "AWS_ENDPOINT_URL_"
# Step Functions has three names: AWS's variable has one, boto3's client another, its ARNs the third.
ENDPOINT_NAMES = {"sfn": "states"}
SERVICES = {"stepfunctions": "states"}
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "slslab", "AWS_SECRET_ACCESS_KEY": "slslab-loopback-only"}
OnEvent = Callable[[dict[str, Any]], None]
OnRecord = Callable[[InvocationRecord], None]


def memory_budget_mb() -> int:
    """Memory that environments may take on this host: nine tenths of what is available now, in MB."""
    return int(psutil.virtual_memory().available * BUDGET_FRACTION) // MB


class Emulator:
    """AWS Lambda on this host, as a context manager.

    `variables` are given to every function beside Lambda's own (endpoints of the stack); `on_event` receives trace
    records (events and clock samples) and `on_record` metered invocations, both on the emulator's own thread (`heard`
    adds more listeners at any time);
    `logs` is where the functions' logs go (inside the session's temporary home by default). `limits` are Lambda's
    unless changed; `template` names modules for a process that imports them once and of which environments are forks
    (faster cold starts whose memory is not Lambda's: records say so); `isolate=False` leaves environments in the
    host's namespaces. `environment` is what confines environments: processes of this host, or containers
    (`docker`), of `image` ($SLSLAB_WORKER_IMAGE) for functions that bring no image of their own. An emulator without
    a session makes one of its own. It binds the address `listen`; `advertise` is the URL by which functions find it,
    if that is another.

    Raises HostError if the port is taken, a template's module cannot be imported, or no engine answers; RequestError
    for a template that cannot work.
    """

    def __init__(
        self,
        *,
        session: Session | None = None,
        variables: Mapping[str, str] | None = None,
        logs: Path | None = None,
        budget_mb: int | None = None,
        limits: Limits | None = None,
        environment: str = "process",
        image: str | None = None,
        isolate: bool = True,
        template: Sequence[str] = (),
        listen: str = "127.0.0.1",
        port: int = 0,
        advertise: str | None = None,
        on_event: OnEvent | None = None,
        on_record: OnRecord | None = None,
    ) -> None:
        self.records: deque[InvocationRecord] = deque(maxlen=RECORDS_KEPT)
        self.endpoint = ""
        self.limits = limits if limits is not None else lambda_limits()
        self._session = session if session is not None else Session()
        self._own_session = session is None
        self._variables = dict(variables or {})
        self._logs = logs
        self._budget_mb = budget_mb if budget_mb is not None else memory_budget_mb()
        self._environment = environment
        self._image = image
        self._isolate = isolate
        self._template = tuple(template)
        self._address = (listen, port)
        self._advertise = advertise
        self._listeners: tuple[tuple[OnEvent, OnRecord], ...] = ((on_event or _ignore, on_record or _ignore),)
        self._listening = threading.Lock()
        self._routes: list[BaseRoute] = []
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._loop.close)
            _raise_descriptor_limit()
            if self._own_session:
                stack.enter_context(self._session)
            self._sandboxes = stack.enter_context(self._make_sandboxes())
            self._listen()
            stack.callback(self._stop)
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exit.close()

    @property
    def hierarchy(self) -> Hierarchy:
        """The control groups that confine environments."""
        return self._sandboxes.hierarchy

    @property
    def isolation(self) -> Isolation:
        """What separates environments from each other and from the host."""
        return self._sandboxes.isolation

    @property
    def containers(self) -> "Containers | None":
        """What its containers share; None if its environments are processes."""
        return self._sandboxes if self._environment == "docker" else None  # type: ignore[return-value]

    @property
    def id(self) -> str:
        """The mark of everything that this emulator makes."""
        return self._session.id

    @property
    def endpoints(self) -> dict[str, str]:
        """Where AWS's clients find each service: `lambda`, and what `variables` name (`s3`, `states` …)."""
        named = {n.removeprefix(ENDPOINT).lower(): url for n, url in self._variables.items() if n.startswith(ENDPOINT)}
        return {"lambda": self.endpoint, **{ENDPOINT_NAMES.get(name, name): url for name, url in named.items()}}

    @property
    def home(self) -> Path:
        """The temporary directory that is gone with the emulator."""
        return self._session.home

    @property
    def budget_mb(self) -> int:
        """Memory that its environments may take together, MB."""
        return self._budget_mb

    def host(self) -> dict[str, Any]:
        """What a run's document says of the host: cores, whether the CPU share is enforced, what confines functions."""
        return {
            "cores": len(os.sched_getaffinity(0)),
            "cpu_share_enforced": "cpu" in self.hierarchy.parents,
            "confinement": f"{self.hierarchy.description}; {self.isolation.description}",
        }

    @property
    def logs(self) -> Path:
        """Where the functions' logs are, a file for each environment."""
        return self._logs or self.home / "logs"

    def cpu_seconds(self) -> float:
        """CPU time that the emulator itself has used: its API, its clocks and its records."""
        assert self._thread is not None
        assert self._thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))

    @property
    def mark(self) -> dict[str, str]:
        """The environment variable by which the reaper knows this emulator's processes."""
        return self._session.mark

    @contextmanager
    def recording(self) -> Iterator[list[InvocationRecord]]:
        """The metered records of the invocations that end within the block, as they come."""
        records: list[InvocationRecord] = []
        with self.heard(on_record=records.append):
            yield records

    @contextmanager
    def heard(self, on_event: OnEvent | None = None, on_record: OnRecord | None = None) -> Iterator[None]:
        """Listeners for as long as the block, called on the emulator's own thread as those given at its start are."""
        listener = (on_event or _ignore, on_record or _ignore)
        with self._listening:
            self._listeners = (*self._listeners, listener)
        try:
            yield
        finally:
            with self._listening:
                self._listeners = tuple(one for one in self._listeners if one is not listener)

    def add_routes(self, routes: Sequence[BaseRoute]) -> None:
        """Serve these beside Lambda's API; before the emulator is entered."""
        self._routes += routes

    def package_size(self) -> dict[str, Any]:
        """Bytes of the largest package so far and of the layer that functions share, against Lambda's 250 MB."""
        layer, layer_bytes = layer_size() or (None, 0)
        unzipped, limit = self._packages.largest_bytes, self.limits.unzipped_bytes
        return {
            "unzipped_bytes": unzipped,
            "layer": layer,
            "layer_bytes": layer_bytes,
            "limit_bytes": limit,
            "needs_container_image": unzipped + layer_bytes > limit,
        }

    def reset_package_size(self) -> None:
        """Have `package_size` tell of packages that come from now on."""
        self._packages.largest_bytes = 0

    def evict(self, function: str | None = None) -> int:
        """End idle environments, of one function or all: the next invocations are cold. Returns how many ended."""
        return self.wait_for(self.service.pool.evict(function))

    def wait_for(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine of the emulator's, such as one of an environment's, on its own thread; its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def add_variables(self, variables: Mapping[str, str]) -> None:
        """Give these, too, to every environment that starts from now on (endpoints of a stack that came up later)."""
        self._variables |= variables
        self._given |= variables

    def client(self, service: str, **settings: Any) -> Any:
        """A boto3 client of the emulator (`lambda`) or the stack (`s3`, `stepfunctions`, if `variables` names them)."""
        name = SERVICES.get(service, service)
        if name not in self.endpoints:
            found = ", ".join(self.endpoints)
            raise RequestError(f"This emulator knows no endpoint for {service}, only for {found}.", "give `variables`.")
        return aws_client(service, self.endpoints[name], self._given, **settings)

    def _make_sandboxes(self) -> AbstractContextManager[Sandboxes]:
        if self._environment == "process":
            return ProcessSandboxes(self._session, self.limits, isolate=self._isolate, modules=self._template)
        if self._template:
            raise RequestError("Containers cannot be forks of a template.", "leave out --template, or the containers.")
        try:
            from slslab.environments.docker import ContainerSandboxes  # its client is needed nowhere else
        except ImportError as error:
            message = "Containers need the engine's client for Python, which is not installed."
            raise HostError(message, "run `pip install 'slslab[docker]'`.") from error
        return ContainerSandboxes(self._session, self.limits, image=self._image)

    def _listen(self) -> None:
        try:
            listener = socket.create_server(self._address, backlog=1024)
        except OSError as error:
            address, port = self._address
            what = f"port {port}" if address == "127.0.0.1" else f"address {address}:{port}"
            message = f"The {what} cannot be bound: {os.strerror(error.errno or 0)}."
            raise HostError(message, "choose another with --port, or 0 for any free one.") from error
        # Accepted connections inherit it; asyncio sets it only on sockets that name their protocol.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        address, port = listener.getsockname()
        self.endpoint = f"http://{'127.0.0.1' if address == '0.0.0.0' else address}:{port}"
        advertised = self._advertise or self.endpoint
        self._given = {**CREDENTIALS, "AWS_ENDPOINT_URL_LAMBDA": advertised, **self._variables}
        host = EnvironmentHost(
            emulator_id=self.id,
            home=self.home / "environments",
            logs=self.logs,
            limits=self.limits,
            sandboxes=self._sandboxes,
            variables=self._given,
            record=self._happened,
        )
        self._functions = Functions(self.limits)
        self._packages = Packages(self.home / "functions", self.limits, self._fetch, self._sandboxes.find_image)
        self.service = InvocationService(
            self._functions, host, self._budget_mb, self._metered, self._sweep, self._store_failure
        )
        api = LambdaApi(self._functions, self._packages, self.service, self.limits, self._sweep)
        config = uvicorn.Config(
            api.application(self._routes),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=3600,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, args=(listener,), name="slslab-emulator", daemon=True)
        self._thread.start()

    def _serve(self, listener: socket.socket) -> None:
        asyncio.set_event_loop(self._loop)

        async def serve() -> None:
            serving = asyncio.ensure_future(self._server.serve(sockets=[listener]))
            await self._ending.wait()
            # Environments first: whoever waits for an invocation gets its answer before the server closes.
            await self.service.close()
            self._server.should_exit = True
            await serving
            listener.close()

        self._loop.run_until_complete(serve())

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        assert self._thread is not None
        self._thread.join()

    def _metered(self, record: InvocationRecord) -> None:
        self.records.append(record)
        for _, on_record in self._listeners:
            on_record(record)

    def _happened(self, event: dict[str, Any]) -> None:
        for on_event, _ in self._listeners:
            on_event(event)

    async def _sweep(self) -> None:
        """Remove the packages of which no version, environment or accepted invocation has need."""
        used = self._functions.codes() + [function.code for function in self.service.functions()]
        unused = self._packages.take_unused({code.directory for code in used if code.directory is not None})
        if unused:
            await asyncio.to_thread(_remove, unused)

    def _store_failure(self, bucket: str, key: str, body: bytes) -> None:
        if "AWS_ENDPOINT_URL_S3" not in self._variables:
            LOG.error("the destination bucket %s is on no stack: this emulator has no S3", bucket)
            return
        with closing(self.client("s3")) as client:
            client.put_object(Bucket=bucket, Key=key, Body=body)

    def _fetch(self, bucket: str, key: str) -> bytes:
        """A package out of the stack's S3."""
        if "AWS_ENDPOINT_URL_S3" not in self._variables:
            raise invalid(f"The bucket {bucket} is on no stack: this emulator has no S3. Send the code as ZipFile.")
        with closing(self.client("s3")) as client:
            try:
                body: bytes = client.get_object(Bucket=bucket, Key=key)["Body"].read()
            except botocore.exceptions.ClientError as error:
                detail = error.response["Error"]
                message = (
                    "Error occurred while GetObject. S3 Error Code: "
                    f"{detail['Code']}. S3 Error Message: {detail['Message']}"
                )
                raise invalid(message) from error
            return body


def _raise_descriptor_limit() -> None:
    """An environment takes a dozen descriptors of the emulator's; the usual soft limit of 1,024 is soon reached."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _remove(directories: Iterable[Path]) -> None:
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


def _ignore(_record: object) -> None:
    return None
