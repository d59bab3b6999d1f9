"""A run in memory: its architecture's own driver, handlers, channels and faults, on the emulator's own service.

What the product finds in the operating system and in AWS is replaced where it asks for it: the time, threads, boto3's
clients, servers of channels, a process's death and its trace. Everything else is the product's.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.lambdaml_space import Silent
from tests.memory.clock import BEGIN_NS, Clock, Event, Pool, Strand, wait
from tests.memory.functions import Lambda
from tests.memory.processes import KEPT, Api, Kernel
from tests.memory.queues import Connection, Server
from tests.memory.stores import KEYED, S3, Tables, Wait
from tests.memory.tensors import PLACE, Databases, Stream, compiled_once

from slslab.run.bill import load_book
from slslab.run.log import metered
from slslab.run.run import Run
from slslab.run.table import tabulate
from slslab.tensordb.executions import Report, reporter
from slslab_lab.runs.on_lambda import play
from slslab_lab.runs.planning import architectures
from slslab_lab.runs.recorder import Recorder
from slslab_lab.runs.system import host_meter
from slslab_workers.architecture import Cloud, Outcome, RunFailed
from slslab_workers.channels import dynamodb
from slslab_workers.channels.channel import Channel
from slslab_workers.channels.choice import OPENERS
from slslab_workers.channels.endpoints import QUEUE_URL, TENSOR_URLS
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import environment_client
from slslab_workers.channels.queues import Queues
from slslab_workers.channels.stream import Stream as ServerStream
from slslab_workers.faults.plan import FaultPlan
from slslab_workers.plan import Plan, PlanError
from slslab_workers.spirt.peer import _step_functions
from slslab_workers.training import gradients
from slslab_workers.training.samples import Samples

# Half of a request to S3, and to a server, s, drawn evenly between.
S3_S, SERVER_S = (0.002, 0.012), (0.0001, 0.001)
# Within how many seconds after a driver its threads must end.
LEFT_S = 30
# Of a run's document: it is not compared with anything.
HOST: Mapping[str, Any] = {
    **dict.fromkeys(("cores", "cpu_share_enforced", "own_cpu_seconds", "package")),
    **{"stack": {}, "confinement": "one process, in memory"},
}
DRIVER = "slslab_workers.driver.deployment"
# What does not change from run to run is read from the disk once.
versions = cache(version)


# Where workers connect to a broker, and where the emulator draws ids.
MODULES_WITH_QUEUES = ("kubeml.function", "mlless.handlers", "spirt.peer", "training.lifetime")
MODULES_WITH_IDS = ("events", "functions", "invocation", "log_events")


@dataclass(frozen=True)
class Ran:
    """What a run left: the input of `slslab check`, what the driver returned or raised, and the seconds until then.

    `died` says which invocations met a death, and of what kind. `ended_ns` is when the driver ended. `left` names its
    threads that still run, and buckets, tables, functions, queues and state machines that it has not removed; `keys`
    are the run's leftovers in databases. `executions` are state machines' executions, by name.
    """

    recorded: Run
    outcome: Outcome | None
    failure: BaseException | None
    seconds: float
    died: Mapping[str, str]
    ended_ns: int
    left: tuple[str, ...]
    keys: tuple[str, ...]
    executions: Mapping[str, Any]


def run(plan: Plan, seed: int, home: Path, limit_s: float) -> Ran:
    """Run a plan, in an order and with latencies that the seed decides, for so long at most; functions
    keep their logs and clocks below `home`."""
    random = Random(seed)
    clock, log = Clock(random), _Log()
    writer: Any = log
    recorder = Recorder(writer, plan, Silent())
    architecture = architectures()[plan.architecture]
    requirements = architecture.requirements(plan)
    if requirements.state_machines:
        _state_machines()  # what is imported for the first time may keep the time that Python tells

    async def drive() -> tuple[Strand, int]:
        record_hosts = host_meter(requirements, recorder.event)
        places = {QUEUE_URL: "memory:", TENSOR_URLS: databases.urls}
        cloud = Cloud(clients.__getitem__, recorder.driver_event, places)
        driver = Strand(clock, partial(architecture.drive, plan, cloud, Silent()))
        await asyncio.wait([driver.done], timeout=limit_s)
        ended_ns = clock.now_ns
        record_hosts()
        await system.end()
        while clock.strands and clock.now_ns < ended_ns + LEFT_S * 10**9:
            await asyncio.sleep(0.1)
        return driver, ended_ns

    def pause(between: tuple[float, float]) -> Wait:
        return lambda: clock.sleep(random.uniform(*between))

    started: Mapping[str, Any] = {}
    machines: Callable[[], Sequence[Any]] = tuple
    with clock.as_time():
        s3 = S3(pause(S3_S))
        faults = FaultPlan(0, ()) if plan.faults is None else FaultPlan.from_document(plan.faults)
        kernel = Kernel(clock, random, faults)
        system = Lambda(kernel, recorder, home, s3.store)
        tables = Tables(pause(SERVER_S))
        clients: dict[str, Any] = {"s3": s3, "lambda": system, "dynamodb": tables}
        server, databases = Server(), Databases(requirements.tensor_databases, pause(SERVER_S), _reporter(recorder))
        if requirements.state_machines:
            states = _state_machines().StateMachines(pause(S3_S), system.invoke, recorder.event)
            clients["stepfunctions"], started, machines = states, states.started, states.machines.registry.machines
        with _replaced(clock, random, kernel, clients, server, databases):
            try:
                driver, ended_ns = clock.loop.run_until_complete(drive())
                left = (
                    *("a thread of the driver" for _ in clock.strands),
                    *s3.buckets,
                    *tables.tables,
                    *system.names(),
                    *server.queues,
                    *(machine.arn for machine in machines()),
                )
            finally:
                clock.close()
                databases.end_scripts()
    failure = RunFailed("Hung", "it did not end") if driver.gone else driver.done.exception()
    outcome = driver.done.result() if failure is None else None
    recorded = _recorded(plan, log, outcome, failure, (ended_ns - BEGIN_NS) / 1e9)
    return Ran(
        recorded,
        outcome,
        failure,
        (ended_ns - BEGIN_NS) / 1e9,
        kernel.died,
        ended_ns,
        left,
        databases.keys(plan.run),
        started,
    )


def _state_machines() -> ModuleType:
    """Import the module of state machines once, which takes seconds because of its interpreter."""
    return import_module("tests.memory.state_machines")


def _reporter(recorder: Recorder) -> Report:
    """Return what writes to the trace what scripts in databases took."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLSLAB_TRACE_FD", "")
        patch.setattr("slslab.host.service_process.environment_sink", lambda: recorder.event)
        return reporter()


def _recorded(plan: Plan, log: "_Log", outcome: Outcome | None, failure: BaseException | None, seconds: float) -> Run:
    """Return the run as `slslab check` reads it, with the document that it would have left."""
    failed = failure if isinstance(failure, RunFailed | None) else RunFailed(type(failure).__name__, str(failure))
    events = tabulate([{"record": "header", "run": plan.run, "clock": "virtual"}, *log.records])
    records, book = metered(log.records, "invocation"), load_book(plan.prices)
    run = Run(plan=plan, events=events, invocations=records)
    made = run.describe(HOST, outcome, failed, seconds, book)
    run = run.replace(document=made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slslab_lab.replay.modelled.SIZES", ())  # other memory sizes take most of a document's time
        made["lambda"] = play(run, book)
    return run


def learnt_alone(plan: Plan) -> str | None:
    """Return the fingerprint of what one process learns of a plan; None if it cannot tell what a run does."""
    replicas = architectures()[plan.architecture].replicas()
    assert replicas is not None
    try:
        replicas.check(plan)
    except PlanError:
        return None
    alone = replicas(plan, Samples(plan))
    for _ in range(plan.epochs):
        alone.train_epoch()
    return gradients.sha256(alone.parameters())


@contextmanager
def read_once() -> Iterator[None]:
    """Have versions read once for all blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slslab.run.run.version", versions)
        yield


@contextmanager
def _replaced(
    clock: Clock, random: Random, kernel: Kernel, clients: Mapping[str, Any], server: Server, databases: Databases
) -> Iterator[None]:
    """Patch the product's outside world; `server` is the message broker's."""
    values: dict[str, tuple[bytes, bytes]] = {}

    def pause() -> None:
        clock.sleep(random.uniform(*SERVER_S))

    def opened(kind: Any, _bucket: str, objects: Any, _plan: Plan) -> Any:
        return kind(values, objects.tracer, pause)

    def queues(_url: str, tracer: Tracer) -> Queues:
        return Queues(Connection(server, clock, pause), tracer)

    def connect(title: str, host: str, *rest: Any) -> Any:
        return Stream(databases, title, host, *rest) if host == PLACE else ServerStream(title, host, *rest)

    pool = partial(Pool, clock)
    ids = SimpleNamespace(uuid4=lambda: uuid.UUID(int=random.getrandbits(128), version=4))
    replaced = {
        # Threads of drivers.
        f"{DRIVER}.ThreadPoolExecutor": pool,
        f"{DRIVER}.threading": SimpleNamespace(Event=partial(Event, clock)),
        f"{DRIVER}.wait": partial(wait, clock),
        "slslab_workers.driver.job.ThreadPoolExecutor": pool,
        "slslab_workers.gradssharding.driver.ThreadPoolExecutor": pool,
        "slslab_workers.kubeml.driver.ThreadPoolExecutor": pool,
        # AWS, and the code of functions, which nobody unpacks.
        "boto3.session.Session": lambda: SimpleNamespace(client=lambda service, **_: clients[service]),
        f"{DRIVER}.package": lambda *_modules: b"",
        # Connections to a broker, and to databases.
        f"{DRIVER}.open_queues": queues,
        **{f"slslab_workers.{module}.open_queues": queues for module in MODULES_WITH_QUEUES},
        "slslab_workers.channels.stream.Stream": connect,
        "slslab_workers.spirt.peer.socket": databases,
        "slslab.tensordb.scripts.compile_script": compiled_once,
        "slslab.tensordb.executions.time": SimpleNamespace(
            monotonic=clock.time, monotonic_ns=clock.time_ns, thread_time_ns=clock.time_ns
        ),
        # A process: its Runtime API, its trace, its death, and what its modules keep.
        "slslab.lambda_.environment.RuntimeApi": Api,
        "slslab_workers.channels.events.environment_sink": kernel.sink,
        "slslab_workers.channels.injection._die": kernel.die,
        **{f"{module.__name__}.{name}": begin() for module, name, begin in KEPT},
        # What decides in which order the records of failed events are read, and other ids.
        "slslab.lambda_.events.datetime": SimpleNamespace(now=lambda tz: datetime.fromtimestamp(clock.monotonic(), tz)),
        **{f"slslab.lambda_.{module}.uuid": ids for module in MODULES_WITH_IDS},
    }
    if "stepfunctions" in clients:
        replaced |= _state_machines().replaced(clock)
    _forget_clients()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in replaced.items():
            patch.setattr(name, value)
        patch.setattr(Tracer, "fault", kernel.before_event)
        patch.setattr(Channel, "fault", kernel.before_request)
        patch.setattr(Channel, "copies", kernel.copies)
        for channel, kind in KEYED.items():
            patch.setitem(OPENERS, channel, partial(opened, kind))
        for variable in ("SLSLAB_CLOCK_FILE", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", QUEUE_URL):
            patch.setenv(variable, "")
        patch.setenv(TENSOR_URLS, databases.urls)
        try:
            yield
        finally:
            _forget_clients()


def _forget_clients() -> None:
    """Forget the clients that an environment keeps."""
    environment_client.cache_clear()
    dynamodb.environment_client.cache_clear()
    _step_functions.cache_clear()


class _Log:
    """A trace log in memory."""

    def __init__(self) -> None:
        self.records: list[Mapping[str, Any]] = []

    def write(self, record: Mapping[str, Any]) -> None:
        self.records.append(record)
