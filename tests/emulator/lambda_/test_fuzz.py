"""Requests with fields of all kinds: each is answered, and none by an error of the emulator's own (500)."""

import base64
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slslab.aws.clients import signed_headers
from slslab.aws.requests import input_shape
from slslab.lambda_.emulator import Emulator
from slslab.stack.state_machines import EmbeddedStateMachines
from slslab.testing import ROLE, create_function, packaged

pytestmark = pytest.mark.server

FUNCTIONS = "/2015-03-31/functions"
EVENTS = "/2019-09-25/functions/f/event-invoke-config"
ARN = "arn:aws:lambda:us-east-1:000000000000:function:f"
HANDLER = "def handler(event, context):\n    return event\n"
# Method, path, and the operation in the model; {} stands for a name.
OPERATIONS = [
    ("POST", FUNCTIONS, "CreateFunction"),
    ("PUT", FUNCTIONS + "/{}/code", "UpdateFunctionCode"),
    ("PUT", FUNCTIONS + "/{}/configuration", "UpdateFunctionConfiguration"),
    ("POST", FUNCTIONS + "/{}/versions", "PublishVersion"),
    ("POST", FUNCTIONS + "/{}/aliases", "CreateAlias"),
    ("PUT", FUNCTIONS + "/f/aliases/{}", "UpdateAlias"),
    ("PUT", "/2017-10-31/functions/{}/concurrency", "PutFunctionConcurrency"),
    ("PUT", EVENTS, "PutFunctionEventInvokeConfig"),
    ("POST", EVENTS, "UpdateFunctionEventInvokeConfig"),
    ("POST", "/2017-03-31/tags/{}", "TagResource"),
]
QUERIES = ("Qualifier", "FunctionVersion", "MaxItems", "Marker", "MasterRegion", "tagKeys")
READS = [
    FUNCTIONS,
    FUNCTIONS + "/{}",
    FUNCTIONS + "/{}/versions",
    FUNCTIONS + "/f/aliases",
    EVENTS + "/list",
    "/2017-03-31/tags/{}",
]
HEADERS = ("X-Amz-Invocation-Type", "X-Amz-Log-Type", "X-Amz-Client-Context", "X-Amzn-Trace-Id")
# What has found something somewhere, among anything else.
WORDS = (
    f"f {ARN} {ARN}:1 $LATEST {ROLE} app.handler .. ../.. / /proc hot-reload code Zip Image x86_64 python3.11 UEsFBg=="
)
TEXTS = st.sampled_from([*WORDS.split(), "", "a\0b", "\ud800", "\n", "x" * 64, "x" * 200, "1", "-1"]) | st.text(
    max_size=20
)
NUMBERS = st.sampled_from([0, 1, -1, 128, 512, 900, 10_240, 2**31, 2**63, 10**30, 0.5, 1e308]) | st.integers()
ANY = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
GOOD = {
    "FunctionName": "made",
    "Runtime": "python3.11",
    "Role": ROLE,
    "Handler": "app.handler",
    "Code": {"ZipFile": base64.b64encode(packaged(HANDLER)).decode()},
    "FunctionVersion": "$LATEST",
    "Name": "live",
    "Tags": {"key": "value"},
}


def member(shape: Any) -> st.SearchStrategy[Any]:
    """Values of a member of the model: mostly of its type, also of any other."""
    kind, rules = shape.type_name, shape.metadata
    own: st.SearchStrategy[Any] = ANY
    if kind == "structure":
        own = st.fixed_dictionaries({}, optional={name: member(below) for name, below in shape.members.items()})
    elif kind == "map":
        own = st.dictionaries(TEXTS, member(shape.value), max_size=3)
    elif kind == "list":
        own = st.lists(member(shape.member), max_size=3)
    elif kind in ("integer", "long", "double"):
        edges = [rules.get("min", 0) - 1, rules.get("min", 0), rules.get("max", 1), rules.get("max", 1) + 1]
        own = st.sampled_from(edges) | NUMBERS
    elif kind == "boolean":
        own = st.booleans()
    elif kind in ("string", "blob"):
        own = st.sampled_from(rules["enum"]) | TEXTS if "enum" in rules else TEXTS
    return own | ANY


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, bytes]:
    """Return method, path and body of a request to change something; most of its members are right."""
    method, path, operation = draw(st.sampled_from(OPERATIONS))
    shape = input_shape("lambda", operation)
    good = {name: GOOD[name] for name in shape.members if name in GOOD}
    names = draw(st.lists(st.sampled_from(sorted(shape.members)), max_size=3))
    document = good | {name: draw(member(shape.members[name])) for name in names}
    for name in draw(st.lists(st.sampled_from(sorted(document)), max_size=1)):
        del document[name]
    encoded = json.dumps(document).encode()
    body = draw(
        st.sampled_from([encoded] * 9 + [encoded[: len(encoded) // 2], b"", b"null", b"[]", b"\xff", b"{" * 9999])
    )
    return method, addressed(draw, path), body


def addressed(draw: st.DrawFn, path: str) -> str:
    return path.replace("{}", quote(draw(st.just("f") | TEXTS).encode("utf-8", "replace"), safe=""))


@st.composite
def reads(draw: st.DrawFn) -> str:
    """Path and query of a request to read something."""
    query = draw(st.dictionaries(st.sampled_from(QUERIES), TEXTS, max_size=2))
    pairs = {name: value.encode("utf-8", "replace") for name, value in query.items()}
    return addressed(draw, draw(st.sampled_from(READS))) + ("?" + urlencode(pairs) if pairs else "")


class Caller:
    """Sends signed requests over one connection; every answer must be an error of the client's or none."""

    def __init__(self, endpoint: str, keys: Any) -> None:
        self._endpoint, self._keys = endpoint, keys
        self.connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=30)

    def __call__(self, method: str, path: str, body: bytes = b"", **headers: str) -> int:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        signed = signed_headers(self._keys.owner, method, self._endpoint + path, body, given)
        try:
            self.connection.request(method, path, body, signed)
            answer = self.connection.getresponse()
            told = answer.read()
        except BaseException:
            self.connection.close()
            raise
        assert answer.status < 500, told
        assert answer.status < 300 or {"message", "Message"} & json.loads(told).keys()
        return answer.status


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """A caller of an emulator of its own, which has the function `f`."""
    root = tmp_path_factory.mktemp("code")
    with Emulator(code_roots=[root]) as emulator:
        client = emulator.client("lambda")
        create_function(client, "f", HANDLER)
        client.close()
        caller = Caller(emulator.endpoint, emulator.keys)
        yield caller
        caller.connection.close()


FUZZ = settings(max_examples=150, derandomize=True, suppress_health_check=list(HealthCheck), database=None)


@given(request=requests())
@FUZZ
def test_no_change_is_an_error_of_the_emulator(call: Caller, request: tuple[str, str, bytes]) -> None:
    call(*request)
    call("DELETE", f"{FUNCTIONS}/made")


@given(path=reads())
@FUZZ
def test_no_read_is_an_error_of_the_emulator(call: Caller, path: str) -> None:
    call("GET", path)


@given(
    name=st.just("f") | TEXTS,
    query=st.dictionaries(st.just("Qualifier"), TEXTS),
    headers=st.dictionaries(
        st.sampled_from(HEADERS), st.sampled_from(["DryRun", "Event", "Tail", "x", "bnVsbA==", "é"])
    ),
    body=st.sampled_from([b"", b"{", b"\xff", b"[" * 99_999, b"NaN", b'"\\ud800"', b"1" * 5000]),
)
@settings(FUZZ, max_examples=60)
def test_no_invocation_is_an_error_of_the_emulator(
    call: Caller, name: str, query: dict[str, str], headers: dict[str, str], body: bytes
) -> None:
    path = f"{FUNCTIONS}/{quote(name.encode('utf-8', 'replace'), safe='')}/invocations"
    pairs = urlencode({key: value.encode("utf-8", "replace") for key, value in query.items()})
    call("POST", path + "?" + pairs, body, **{"X-Amz-Invocation-Type": "DryRun"} | headers)


STATES = (
    *("CreateStateMachine", "UpdateStateMachine", "ListStateMachines", "StartExecution", "StopExecution"),
    *("ListExecutions", "DescribeExecution", "GetExecutionHistory", "SendTaskSuccess", "SendTaskFailure"),
)
MACHINE = '{"StartAt": "A", "States": {"A": {"Type": "Pass", "End": true}}}'
GOOD_STATES = {
    "definition": MACHINE,
    "roleArn": ROLE,
    "name": "machine",
    "stateMachineArn": "arn:aws:states:us-east-1:000000000000:stateMachine:machine",
    "executionArn": "arn:aws:states:us-east-1:000000000000:execution:machine:e",
}


@given(data=st.data())
@FUZZ
def test_nothing_is_an_error_of_step_functions(
    emulator: Emulator, state_machines: EmbeddedStateMachines, data: st.DataObject
) -> None:
    operation = data.draw(st.sampled_from(STATES))
    shape = input_shape("stepfunctions", operation)
    good = {name: GOOD_STATES[name] for name in shape.members if name in GOOD_STATES}
    names = data.draw(st.lists(st.sampled_from(sorted(shape.members)), max_size=3))
    call_states(
        emulator, state_machines, operation, good | {name: data.draw(member(shape.members[name])) for name in names}
    )


def call_states(
    emulator: Emulator, state_machines: EmbeddedStateMachines, operation: str, document: dict[str, Any]
) -> int:
    """Call Step Functions, which may answer anything but an error of its own."""
    caller = Caller(state_machines.endpoint, emulator.keys)
    target = {"X-Amz-Target": f"AWSStepFunctions.{operation}", "Content-Type": "application/x-amz-json-1.0"}
    try:
        return caller("POST", "/", json.dumps(document).encode(), **target)
    finally:
        caller.connection.close()


@pytest.mark.parametrize(
    ("operation", "document"),
    [
        ("ListExecutions", {}),
        ("SendTaskSuccess", {"taskToken": "t", "output": "[" * 99_999}),
        ("StartExecution", {"stateMachineArn": GOOD_STATES["stateMachineArn"], "input": "[" * 99_999}),
        ("StartExecution", {"stateMachineArn": GOOD_STATES["stateMachineArn"], "input": "\ud800"}),
        ("CreateStateMachine", {"name": "m", "roleArn": ROLE, "definition": "\ud800"}),
    ],
)
def test_what_once_was_an_error_of_step_functions_is_one_of_the_request(
    emulator: Emulator, state_machines: EmbeddedStateMachines, operation: str, document: dict[str, Any]
) -> None:
    assert call_states(emulator, state_machines, operation, document) == 400


@pytest.mark.parametrize("path", [f"{FUNCTIONS}/%2F", f"{FUNCTIONS}//", "/%00", "/%ff"])
def test_a_path_that_nothing_has_is_told_in_awss_form(call: Caller, path: str) -> None:
    assert call("GET", path) == 404


@pytest.mark.parametrize("begin", [b"GET /", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: "])
def test_a_head_without_an_end_is_cut_off(emulator: Emulator, begin: bytes) -> None:
    """uvicorn's parser would take it all, and copy it with every piece."""
    address = urlsplit(emulator.endpoint)
    with socket.create_connection((address.hostname, address.port or 0), timeout=60) as client:
        client.sendall(begin)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            client.sendall(b"a" * 100 * 2**20)
