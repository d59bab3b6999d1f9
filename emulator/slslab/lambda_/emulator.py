"""AWS Lambda on this host: its API on a loopback address, and everything that it starts.

    with Emulator() as emulator:
        client = emulator.client("lambda")

Everything it makes (processes, control groups, sockets, files) is removed when the block ends; if the emulator itself
is killed, its reaper process removes it.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import psutil
from starlette.routing import BaseRoute

from slslab.aws.keys import Keyring
from slslab.aws.limits import MB, Limits, lambda_limits
from slslab.errors import RequestError
from slslab.host.managed import Managed
from slslab.host.priority import high_priority
from slslab.host.processes import raise_descriptor_limit
from slslab.host.reaper import marked_processes
from slslab.host.server_process import listening_socket
from slslab.host.session import Session
from slslab.installation import require
from slslab.lambda_.aliases import Aliases
from slslab.lambda_.api import application, body_limit
from slslab.lambda_.environment import LocalHost
from slslab.lambda_.event_sources import EventSourceMappings
from slslab.lambda_.events import EventInvokeConfigs
from slslab.lambda_.faults import FunctionFaults, read_function_plan
from slslab.lambda_.functions import FunctionOperations, Functions
from slslab.lambda_.hosts import Hosts
from slslab.lambda_.invocation import InvocationService
from slslab.lambda_.layers import LayerOperations
from slslab.lambda_.log_events import LogEvents
from slslab.lambda_.packages import Packages
from slslab.lambda_.policies import PolicyOperations
from slslab.lambda_.process_sandbox import ProcessSandboxes
from slslab.lambda_.server import Server
from slslab.lambda_.settings import SettingOperations
from slslab.lambda_.stack_client import StackClient
from slslab.lambda_.urls import FunctionUrlOperations, UrlServer
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.run.records import InvocationRecord

if TYPE_CHECKING:  # the engine's client is needed only where there are containers
    from slslab.host.containers import Containers
    from slslab.predict.invocation import Predictor

BUDGET_FRACTION = 0.9
RECORDS_KEPT = 1_000
PACKAGES_OF_IMAGES = "Containers have the packages of their image, never the host's."
Result = TypeVar("Result")
OnEvent = Callable[[dict[str, Any]], None]
OnRecord = Callable[[InvocationRecord], None]


def memory_budget_mb() -> int:
    """Return the memory that environments may take on this host, MB: nine tenths of what is available now."""
    return int(psutil.virtual_memory().available * BUDGET_FRACTION) // MB


class Emulator(Managed):
    """AWS Lambda on this host, as a context manager.

    Every function gets `variables` in addition to Lambda's own (endpoints of the stack). `on_event` receives trace
    records (events and clock samples) and `on_record` metered invocations, both on the emulator's own thread;
    `listening` adds more listeners. `logs` is the directory of the functions' logs, by default in the session's
    temporary home. `limits` are Lambda's unless changed. `template` names modules that one process imports once; all
    environments are forked from it. That makes cold starts faster, but memory differs from Lambda's; records say so.
    With `strict_packages`, functions don't see the host's packages, and importing one fails as on Lambda.
    `layer_packages` are the host's distributions that they see nevertheless, as if from a layer; importing one of the
    others is reported in the log and the trace. `environment` is what confines environments: processes of this host,
    or containers (`docker`) of $SLSLAB_WORKER_IMAGE, unless a function has its own image. `hosts` are other hosts that
    run the environments instead (a `slslab_ray.cluster.Cluster`). An emulator without a session creates one. It binds
    the address `listen`; `advertise` is the URL by which functions reach it, if it differs. Clients sign their requests
    with `keys`, which are random by default. A pair of keys in `variables` belongs to the owner, and functions use it,
    too; without it they get temporary keys. Hot reload uses directories below
    `code_roots`, and the ones that `packages.allow` adds.

    `id` marks everything that the emulator creates, `mark` is the environment variable by which the reaper recognises
    its processes, and `budget_mb` is the memory that its environments may take together. After entering, `endpoint` is
    its URL, `home` its temporary directory, which is removed with it, and `variables` are all that every function gets
    in addition to Lambda's own. `hierarchy` describes the control groups that confine environments, `isolation` what
    else separates them, and `packages` has the code of the functions.

    It raises HostError if the port is taken, a template's module cannot be imported, or no engine answers; RequestError
    for a template that cannot work.
    """

    def __init__(
        self,
        *,
        session: Session | None = None,
        keys: Keyring | None = None,
        variables: Mapping[str, str] | None = None,
        logs: Path | None = None,
        budget_mb: int | None = None,
        limits: Limits | None = None,
        hosts: Hosts | None = None,
        environment: str = "process",
        template: Sequence[str] = (),
        strict_packages: bool = False,
        layer_packages: Sequence[str] = (),
        code_roots: Sequence[Path] = (),
        listen: str = "127.0.0.1",
        port: int = 0,
        advertise: str | None = None,
        on_event: OnEvent | None = None,
        on_record: OnRecord | None = None,
    ) -> None:
        self.records: deque[InvocationRecord] = deque(maxlen=RECORDS_KEPT)
        self.endpoint = ""
        self.limits = limits or lambda_limits()
        self._session = session or Session()
        self._owns_session = session is None
        self.id, self.mark = self._session.id, self._session.mark
        self._variables = dict(variables or {})
        self.keys = keys or Keyring.of(self._variables)
        self._logs = logs
        self.budget_mb = budget_mb if budget_mb is not None else memory_budget_mb()
        self._hosts = hosts or self._this_host(environment, tuple(template), strict_packages, layer_packages)
        self._code_roots = code_roots
        self._address = (listen, port)
        self._advertise = advertise
        # Replaced as a whole, because the emulator's thread reads it.
        self.listeners: tuple[tuple[OnEvent | None, OnRecord | None], ...] = ((on_event, on_record),)
        self._routes: list[BaseRoute] = []

    def _enter(self, stack: ExitStack) -> None:
        raise_descriptor_limit()
        if self._owns_session:
            stack.enter_context(self._session)
        self.home = self._session.home
        stack.enter_context(self._hosts)
        self._log_events = LogEvents(self.home, self.logs, self.limits.log_tail_bytes)
        stack.callback(self._log_events.close)
        self._server = Server(listening_socket(*self._address))
        stack.callback(self._server.close)
        self.endpoint = self._server.endpoint
        self._stack = StackClient(self.endpoint, self._advertise or self.endpoint, self._variables, self.keys.owner)
        self.variables: Mapping[str, str] = self._stack.variables
        self._hosts.share(
            emulator_id=self.id,
            home=self.home / "environments",
            variables=self._stack.variables,
            credentials=lambda name: self.keys.function(name).variables(),
            open_log=self._log_events.open,
            record=self._pass_on_event,
        )
        functions = Functions(self.limits)
        self.packages = Packages(
            self.home / "functions", self.limits, self._stack.fetch, self._hosts.find_image, self.keys.owner
        )
        stack.callback(self.packages.close)
        for root in self._code_roots:
            self.packages.allow(root)
        self.service = InvocationService(
            functions, self.packages, self._hosts, self._pass_on_event, self._pass_on_record, self._stack
        )
        sources = EventSourceMappings(functions, self.service, self._stack, self._pass_on_event)

        async def finish() -> None:
            await sources.close()
            await self.service.close()
            await self._hosts.end()

        groups = (
            FunctionOperations(functions, self.packages, self._hosts.prepare, self.service.retire),
            LayerOperations(functions.layers, self.packages, self.service.remove_unused_packages),
            SettingOperations(functions, sources),
            EventInvokeConfigs(functions),
            Aliases(functions),
            PolicyOperations(functions),
            FunctionUrlOperations(functions),
            sources,
            self.service,
        )
        handlers = {name: handler for group in groups for name, handler in group.handlers().items()}
        # Environments end before the server does, so that a caller that waits for an invocation gets its answer.
        names = [] if self._advertise is None else [urlsplit(self._advertise).hostname or ""]
        served = application(handlers, [self.packages.route(), self._log_events.route(), *self._routes])
        limit = partial(body_limit, self.limits)
        urls = UrlServer(functions, self.service, self.keys)
        stack.enter_context(self._server.serving(served, finish, names, self.keys, limit, urls))
        self.wait_for(self._hosts.open(self.service.pool.admission.notify))
        self.hierarchy = self._hosts.hierarchy
        self.isolation = self._hosts.isolation

    @property
    def containers(self) -> "Containers | None":
        """What its containers share; None if its environments are processes."""
        contained = isinstance(self._hosts, LocalHost) and not isinstance(self._hosts, ProcessSandboxes)
        return self._hosts if contained else None  # type: ignore[return-value]

    @contextmanager
    def high_priority(self) -> Iterator[bool]:
        """Run the block, the session's processes, and environments that start meanwhile at the highest priority; yield
        whether the host allows that. Containers and other hosts never do: they don't inherit it."""
        host = self._hosts
        if not isinstance(host, ProcessSandboxes):
            yield False
            return
        with (
            ExitStack() as lowered,
            high_priority([*marked_processes(self.id), host.spawner.pid]) as raised,
        ):
            host.hierarchy.weigh()
            lowered.callback(host.hierarchy.weigh)
            yield raised

    @property
    def endpoints(self) -> dict[str, str]:
        """Where AWS's clients find each service: `lambda`, and what `variables` name (`s3`, `states` …)."""
        return self._stack.endpoints

    def host(self) -> dict[str, Any]:
        """Return the host's part of a run's document: cores, whether the CPU share is enforced, the confinement."""
        return self._hosts.host()

    @property
    def logs(self) -> Path:
        """The directory of the functions' logs, one file per environment; setting it affects later environments."""
        return self._logs or self.home / "logs"

    @logs.setter
    def logs(self, directory: Path) -> None:
        self._logs = self._log_events.directory = directory

    def cpu_seconds(self) -> float:
        """Return the CPU time that the emulator itself has used: its API, its clocks and its records."""
        return self._server.cpu_seconds()

    @contextmanager
    def recording(self) -> Iterator[list[InvocationRecord]]:
        """Collect the metered records of the invocations that end within the block."""
        records: list[InvocationRecord] = []
        with self.listening(on_record=records.append):
            yield records

    @contextmanager
    def listening(self, on_event: OnEvent | None = None, on_record: OnRecord | None = None) -> Iterator[None]:
        """Also call these listeners during the block, on the emulator's own thread."""
        listener = (on_event, on_record)
        self.listeners += (listener,)
        try:
            yield
        finally:
            self.listeners = tuple(other for other in self.listeners if other is not listener)

    def predictor(self, kind: str | None = None, profile: str | Path = DEFAULT_PROFILE) -> "Predictor":
        """Return a predictor of how long metered invocations take on Lambda: `predictor().predict(vars(record))`.

        `kind` is the handlers' kind of work: dense, streaming or interpreter. Without it the ranges cover all kinds.
        The host's speed is the one that `slslab calibrate --processor` last measured; nothing is measured now. If
        `slslab calibrate --cloudwatch` fitted the `profile` to REPORT lines, the profile's speed is used instead.
        """
        from slslab.predict.invocation import make_predictor
        from slslab.processor.kept import load_processor

        return make_predictor(load_processor(), kind, self.host()["cpu_share_enforced"], profile)

    @contextmanager
    def faults(self, document: Mapping[str, Any]) -> Iterator[None]:
        """Inject the faults of a plan's document during the block, in place of any other plan's; see
        docs/reliability.md. RequestError, naming the entry, if one is invalid."""
        plan = read_function_plan(document)
        pool = self.service.pool
        pool.fault = FunctionFaults(plan, self.limits.retry_after_s, self._pass_on_event).meet
        try:
            yield
        finally:
            pool.fault = None

    def add_routes(self, routes: Sequence[BaseRoute]) -> None:
        """Also serve these routes; call this before the emulator is entered."""
        self._routes += routes

    def evict(self, function: str | None = None) -> int:
        """End idle environments, of one function or all, and return how many: the next invocations are cold."""
        return self.wait_for(self.service.pool.evict(function))

    def end_environments(self) -> None:
        """End all environments, even in the middle of an invocation, and wait until everything is metered."""
        self.wait_for(self.service.end())

    def wait_for(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the emulator's own thread, such as one of an environment's, and return its result."""
        return self._server.wait_for(coroutine)

    def add_variables(self, variables: Mapping[str, str]) -> None:
        """Also give these to every environment that starts from now on (endpoints of a stack that started later)."""
        self._stack.add_variables(variables)

    def client(self, service: str, **settings: Any) -> Any:
        """Return a boto3 client of the emulator (`lambda`) or of the stack (`s3`, `stepfunctions`).

        Raises RequestError if `variables` name no endpoint for it.
        """
        return self._stack.client(service, **settings)

    def _this_host(
        self,
        environment: str,
        template: tuple[str, ...],
        strict: bool,
        layer: Sequence[str],
    ) -> LocalHost:
        if environment == "process":
            return ProcessSandboxes(
                self._session,
                self.limits,
                self.budget_mb,
                modules=template,
                strict_packages=strict,
                layer_packages=layer,
            )
        if template:
            raise RequestError("Containers cannot be forks of a template.", "leave out --template, or the containers.")
        if strict:
            raise RequestError(PACKAGES_OF_IMAGES, "leave out strict packages.")
        require("docker")
        from slslab.lambda_.container_sandbox import ContainerSandboxes  # its client is needed nowhere else

        return ContainerSandboxes(self._session, self.limits, self.budget_mb)

    def _pass_on_record(self, record: InvocationRecord) -> None:
        self.records.append(record)
        for _, on_record in self.listeners:
            if on_record is not None:
                on_record(record)

    def _pass_on_event(self, event: dict[str, Any]) -> None:
        for on_event, _ in self.listeners:
            if on_event is not None:
                on_event(event)
