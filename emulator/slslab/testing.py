"""pytest plugin: Lambda, S3 and Step Functions for the tests of a handler, with the cost of each test.

Registered by entry point, so that installing slslab is enough. docs/testing.md describes the fixtures. Override
`emulator_settings` to change the emulator.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import chain, count
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from slslab.errors import RequestError, SlslabError
from slslab.installation import require

if TYPE_CHECKING:  # pytest imports this module at every start, even if no test uses it
    from slslab.lambda_.emulator import Emulator
    from slslab.run.bill import Bill
    from slslab.run.predictions import Requests
    from slslab.run.records import InvocationRecord
    from slslab.stack.assembly import EmbeddedStack
    from slslab.stack.object_store import EmbeddedObjectStore
    from slslab.stack.state_machines import EmbeddedStateMachines

ROLE, BOOK = "arn:aws:iam::000000000000:role/test", "aws-us-east-1"
OPTION, REPORT = "--slslab-report", "slslab_report"
# Only the emulator's own Python has the packages that are installed next to it.
RUNTIME = f"python3.{sys.version_info[1]}"
DEFAULTS = {"Runtime": RUNTIME, "Handler": "app.handler", "Role": ROLE, "MemorySize": 1769, "Timeout": 10}


@dataclass(frozen=True)
class Answer:
    """The result of a synchronous invocation: the payload as JSON, the error or None, and the log's tail."""

    status: int
    error: str | None
    payload: Any
    log: str
    request_id: str


class FunctionFailed(AssertionError):
    """An invocation failed; `answer` is its result. The message has the function's error, its traceback and its log."""

    def __init__(self, function: str, answer: Answer) -> None:
        failure = answer.payload if isinstance(answer.payload, dict) else {"errorMessage": answer.payload}
        stack = failure.get("stackTrace") or []
        text = f"{function}: {failure.get('errorType', answer.error)}: {failure.get('errorMessage', '')}"
        if stack:
            text += "\nTraceback of the function:\n" + "".join(map(str, stack)).rstrip()
        super().__init__(f"{text}\nThe end of its log:\n{answer.log.rstrip()}")
        self.answer = answer


@pytest.fixture(scope="session")
def emulator_settings() -> dict[str, Any]:
    """Return arguments of `slslab.Emulator`; override this fixture to change them."""
    return {}


class CostReport:
    """What `--slslab-report` adds to a session: each invocation's record, by the test in which it ended, and the files.

    With pytest-xdist every worker has the records of its own tests, and hands them over at its end.
    """

    def __init__(self, config: pytest.Config, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._output: dict[str, Any] | None = getattr(config, "workeroutput", None)
        self._test = ""
        self._invoked: list[tuple[str, dict[str, Any]]] = []
        self._requests: list[dict[str, Any]] = []
        self._enforced: bool | None = None
        self._workers: set[str] = set()
        self._answer = ""
        # Replace the files of an earlier session, and find out now whether they can be written.
        self._write("The session has not come to its end, or was killed.")

    def record(self, record: InvocationRecord) -> None:
        """Take the record of an invocation that has just ended."""
        self._invoked.append((self._test, record.as_document()))

    def describe_host(self, enforced: bool, requests: Sequence[dict[str, Any]]) -> None:
        """Record whether the host enforces the CPU share, and the requests that AWS bills, as events."""
        self._enforced = enforced
        self._requests += requests

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Assign invocations that end from now on to this test."""
        self._test = nodeid

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Expect the records of a worker."""
        self._workers.add(node.gateway.id)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the records of a worker; a crashed worker doesn't send any."""
        handed_over = getattr(node, "workeroutput", {}).get(REPORT)
        if handed_over is not None:
            invoked, requests, enforced = json.loads(handed_over)
            self._invoked += invoked
            self._requests += requests
            self._enforced = enforced if enforced is not None else self._enforced
            self._workers.discard(node.gateway.id)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Write the files, or hand the records over."""
        if self._output is not None:
            self._output[REPORT] = json.dumps((self._invoked, self._requests, self._enforced))
            return
        lost = f"The records of {len(self._workers)} of pytest-xdist's workers, which crashed, are missing."
        try:
            self._write(*([lost] if self._workers else []))
        except SlslabError as error:
            pytest.exit(f"{error.message} Hint: {error.hint}", returncode=pytest.ExitCode.INTERNAL_ERROR)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the cost, and where the figures are."""
        terminalreporter.write_line(f"{self._answer} See {', '.join(map(str, self._paths))}.")

    def _write(self, *warnings: str) -> None:
        if self._output is not None:
            return
        from slslab.predict.invocation import make_predictor
        from slslab.processor.kept import load_processor
        from slslab.report.html.page import make_page, write_page
        from slslab.report.sessions import session_document, session_page
        from slslab.run.predictions import requests_of

        predictor = make_predictor(load_processor(), None, self._enforced)
        document = session_document(self._invoked, predictor, requests_of(self._requests), warnings)
        self._answer = document["answer"]
        for path in self._paths:
            html = path.suffix == ".html"
            write_page(path, make_page(session_page(document)) if html else json.dumps(document, indent=1) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes costs."""
    parser.getgroup("slslab").addoption(
        OPTION,
        action="append",
        default=[],
        metavar="FILE",
        help="what the session's functions did and cost, as a page (FILE.html) or for programs (FILE.json); repeatable",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Fail before any test if a report can't be written."""
    paths = [config.invocation_params.dir / path for path in config.getoption(OPTION)]
    try:
        for path in paths:
            if path.suffix not in (".html", ".json"):
                raise RequestError(f"{OPTION} {path.name} is neither HTML nor JSON.", "give FILE.html or FILE.json.")
            if path.suffix == ".html":
                require("jinja2")
        if paths:
            config.pluginmanager.register(CostReport(config, paths), REPORT)
    except SlslabError as error:
        raise pytest.UsageError(f"{error.message} Hint: {error.hint}") from error


@dataclass(frozen=True)
class _Shared:
    """The session's stack; `asked` are functions' requests to S3 and SQS as events, complete after `stack.settle()`."""

    stack: EmbeddedStack
    asked: list[dict[str, Any]]

    def requests(self) -> Requests:
        """Return the requests of each function to S3 and SQS until now."""
        from slslab.run.predictions import requests_of

        self.stack.settle()
        return requests_of(self.asked)


@pytest.fixture(scope="session")
def _shared(emulator_settings: dict[str, Any]) -> Iterator[_Shared]:
    """Make the stack of the whole test session; its parts start when a test uses them."""
    from slslab.aws.keys import Keyring
    from slslab.stack.assembly import EmbeddedStack

    asked: list[dict[str, Any]] = []

    def on_request(event: dict[str, Any]) -> None:
        if event["function"]:
            asked.append(event)

    keys = emulator_settings.get("keys") or Keyring.of(emulator_settings.get("variables") or {})
    with EmbeddedStack(session=emulator_settings.get("session"), keys=keys, on_request=on_request) as stack:
        yield _Shared(stack, asked)


@pytest.fixture(scope="session")
def emulator(request: pytest.FixtureRequest, _shared: _Shared, emulator_settings: dict[str, Any]) -> Iterator[Emulator]:
    """Run one emulator for the whole test session."""
    from slslab.lambda_.emulator import Emulator

    report: CostReport | None = request.config.pluginmanager.get_plugin(REPORT)
    own = {"session": _shared.stack.session, "keys": _shared.stack.keys}
    running = _shared.stack.start_emulator(Emulator(**emulator_settings | own))
    assert _shared.stack.access_log is not None
    with running.listening(_shared.stack.access_log.take, report.record if report else None):
        yield running
        if report is not None:
            _shared.stack.settle()
            report.describe_host(running.host()["cpu_share_enforced"], _shared.asked)


@pytest.fixture
def lambda_faults(emulator: Emulator) -> Iterator[Callable[..., None]]:
    """Return a function that injects faults for the rest of the test, each a table [[fault]] of docs/reliability.md:
    `lambda_faults({"kind": "throttle", "function": name, "invocation": 0}, seed=1)`."""
    with ExitStack() as injected:

        def inject(*faults: dict[str, Any], seed: int = 0) -> None:
            injected.enter_context(emulator.faults({"seed": seed, "fault": faults}))

        yield inject


@pytest.fixture(scope="session")
def object_store(_shared: _Shared, emulator: Emulator) -> EmbeddedObjectStore:
    """Run one S3 server for the whole test session; functions find it through AWS_ENDPOINT_URL_S3."""
    store = _shared.stack.start_object_store()
    emulator.add_variables(_shared.stack.client_environment())
    return store


@pytest.fixture(scope="session")
def state_machines(_shared: _Shared, emulator: Emulator) -> EmbeddedStateMachines:  # noqa: ARG001
    """Run one Step Functions for the whole test session; functions find it through AWS_ENDPOINT_URL_SFN."""
    states = _shared.stack.start_state_machines()
    states.ready()
    return states


@pytest.fixture(scope="session")
def aws_endpoint(
    _shared: _Shared,
    emulator: Emulator,
    object_store: EmbeddedObjectStore,  # noqa: ARG001
    state_machines: EmbeddedStateMachines,  # noqa: ARG001
) -> Any:
    """Run one endpoint of all services for the whole test session; functions find it through AWS_ENDPOINT_URL."""
    edge = _shared.stack.start_edge()
    emulator.add_variables(edge.client_environment())
    return edge


@pytest.fixture
def lambda_client(emulator: Emulator) -> Iterator[Any]:
    """Yield a boto3 Lambda client; the functions and layers that the test leaves are deleted after it."""
    client = emulator.client("lambda")
    yield client
    pages = list(client.get_paginator("list_functions").paginate())
    for function in [function for page in pages for function in page["Functions"]]:
        client.delete_function(FunctionName=function["FunctionName"])
    for page in list(client.get_paginator("list_layers").paginate()):
        for layer in page["Layers"]:
            for number in range(1, layer["LatestMatchingVersion"]["Version"] + 1):
                client.delete_layer_version(LayerName=layer["LayerName"], VersionNumber=number)
    client.close()


@pytest.fixture
def s3_client(emulator: Emulator, object_store: EmbeddedObjectStore) -> Iterator[Any]:  # noqa: ARG001
    """Yield a boto3 S3 client; the buckets that the test leaves are deleted after it."""
    client = emulator.client("s3")
    yield client
    for bucket in [entry["Name"] for entry in client.list_buckets()["Buckets"]]:
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            for entry in page.get("Contents", []):
                client.delete_object(Bucket=bucket, Key=entry["Key"])
        client.delete_bucket(Bucket=bucket)
    client.close()


@pytest.fixture
def states_client(emulator: Emulator, state_machines: EmbeddedStateMachines) -> Iterator[Any]:  # noqa: ARG001
    """Yield a boto3 Step Functions client; the state machines that the test leaves are deleted after it."""
    client = emulator.client("stepfunctions")
    yield client
    pages = list(client.get_paginator("list_state_machines").paginate())
    for machine in [machine for page in pages for machine in page["stateMachines"]]:
        client.delete_state_machine(stateMachineArn=machine["stateMachineArn"])
    client.close()


@pytest.fixture
def deploy(request: pytest.FixtureRequest, emulator: Emulator, lambda_client: Any) -> Callable[..., str]:
    """Return a function that creates a Lambda function and returns its name, from its directory or the test's name.

    The code is the directory of a handler, used in place, or the text of a module, packaged as `app.py`. Text without
    spaces names a directory. Further arguments are CreateFunction's (`MemorySize`, `Timeout`, `Handler`, by default
    `app.handler`, …). RequestError for a directory that doesn't exist.
    """
    created: set[str] = set()

    def unused(text: str) -> str:
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:56].strip("-") or "function"
        return next(each for each in chain([name], (f"{name}-{n}" for n in count(2))) if each not in created)

    def create(code: Path | str, **settings: Any) -> str:
        __tracebackhide__ = True
        # Any handler's source has a space or line break.
        code = Path(code) if os.path.isdir(code) or len(str(code).split()) == 1 else code
        if isinstance(code, Path):
            if not code.is_dir():
                what = "isn't a directory" if code.exists() else "doesn't exist"
                raise RequestError(f"{code.absolute()} {what}.", "give deploy the directory of the handler's module.")
            emulator.packages.allow(code)
        of = code.resolve().name if isinstance(code, Path) else request.node.name
        name = str(settings.pop("FunctionName", "") or unused(of))
        create_function(lambda_client, name, code, **settings)
        created.add(name)
        return name

    return create


@pytest.fixture
def invoke(lambda_client: Any) -> Callable[..., Answer]:
    """Return a function that invokes a Lambda function synchronously with a JSON event; it returns an `Answer`.

    FunctionFailed if the function failed, unless `check` is false. Further arguments are Invoke's (`Qualifier` …).
    """

    def call(name: str, event: Any = None, *, check: bool = True, **settings: Any) -> Answer:
        __tracebackhide__ = True
        response = lambda_client.invoke(FunctionName=name, LogType="Tail", Payload=json.dumps(event), **settings)
        answer = Answer(
            response["StatusCode"],
            response.get("FunctionError"),
            json.loads(response["Payload"].read() or b"null"),
            base64.b64decode(response["LogResult"]).decode(errors="replace"),
            response["ResponseMetadata"]["RequestId"],
        )
        if check and answer.error is not None:
            raise FunctionFailed(name, answer)
        return answer

    return call


@pytest.fixture
def invocations(emulator: Emulator) -> Iterator[Sequence[InvocationRecord]]:
    """Yield the metered records of the test's invocations, in the order in which they ended."""
    with emulator.recording() as records:
        yield records


@pytest.fixture
def bill(_shared: _Shared, invocations: Sequence[InvocationRecord]) -> Callable[..., Bill]:
    """Return a function that computes the bill of the test's invocations and their requests, by a price book."""

    def compute(prices: str = BOOK) -> Bill:
        from slslab.predict.invocation import billed
        from slslab.run.bill import Usage, compute_bill, load_book
        from slslab.run.predictions import assign

        records = [record.as_document() for record in invocations]
        asked = billed(chain.from_iterable(assign(records, _shared.requests())))
        return compute_bill(Usage(records, asked), load_book(prices))

    return compute


@pytest.fixture
def assert_cost_below(
    emulator: Emulator, _shared: _Shared, invocations: Sequence[InvocationRecord]
) -> Callable[..., None]:
    """Return a check of an amount in USD, best as text; it fails if the test may cost as much or more on Lambda.

    The upper end of the cost's 80 % range must be below the amount, so nine of ten tests that pass cost less on Lambda.
    `kind` is the handlers' kind of work (dense, streaming, interpreter), which narrows the range. The cost includes
    the functions' requests to S3 and SQS, unless `lambda_only` is true.
    """

    def check(amount: str | float, prices: str = BOOK, kind: str | None = None, lambda_only: bool = False) -> None:
        from slslab.report.sessions import read_usd, too_expensive
        from slslab.run.bill import load_book
        from slslab.run.predictions import bill_of, predict

        most = read_usd(amount)
        records = [record.as_document() for record in invocations]
        book, predicted = load_book(prices), predict(records, _shared.requests(), emulator.predictor(kind))
        bill = bill_of(book) if lambda_only else predicted.bill(book)
        found = predicted.document(bill)
        if read_usd(found["cost"]["range"]["high"]) >= most:
            pytest.fail(too_expensive(found, bill(records), amount), pytrace=False)

    return check


@pytest.fixture
def tune(emulator: Emulator, _shared: _Shared, lambda_client: Any) -> Callable[..., dict[str, Any]]:
    """Return a function that finds which memory size suits a function for an event, as `slslab tune --json` prints it.

    `slslab.tune.document.tune_in_test` has its settings. The function keeps its size.
    """

    from slslab.tune.document import tune_in_test

    return partial(tune_in_test, emulator, lambda_client, _shared.requests)


@pytest.fixture
def assert_memory_size(tune: Callable[..., dict[str, Any]]) -> Callable[..., None]:
    """Return a check of a function's memory size; it fails if another one is surely cheaper for an event on Lambda.

    That is if the range of its cost ÷ the least cost is above 1 + `at_most`. Settings are as for `tune`.
    """
    from slslab.tune.document import find_fault

    def check(function: str, event: Any = None, at_most: float = 0.05, **settings: Any) -> None:
        if (fault := find_fault(tune(function, event, **settings), at_most)) is not None:
            pytest.fail(fault, pytrace=False)

    return check


def create_function(client: Any, name: str, code: Path | str, **settings: Any) -> None:
    """Create a function with defaults that suit a test; `code` and `settings` as for the fixture `deploy`.

    The client's emulator must allow a directory (`code_roots`, `packages.allow`).
    """
    if isinstance(code, Path):
        package: dict[str, Any] = {"S3Bucket": "hot-reload", "S3Key": str(code.resolve())}
    else:
        package = {"ZipFile": packaged(code)}
    client.create_function(FunctionName=name, Code=package, **DEFAULTS | settings)


def packaged(source: str) -> bytes:
    """Return a Lambda package (zip) with one module, app.py."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("app.py", dedent(source))
    return buffer.getvalue()
