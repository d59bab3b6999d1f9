"""The hostile inputs of `hostile.py`: requests of each service that try to use up its memory or time."""

import base64
import io
import json
import os
import re
import struct
import time
import uuid
import zipfile
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from itertools import islice, product
from typing import Any
from urllib.parse import unquote, urlsplit

import pika
import redis

from hostile_clients import (
    JSON_TARGETS,
    MB,
    Case,
    Target,
    api,
    at_once,
    called,
    endless,
    http,
    raw,
    silent,
)
from hostile_s3 import BUCKET, S3, UNSIGNED, prepare_s3, small_s3
from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.clients import aws_client, signed_headers
from slslab.testing import DEFAULTS, ROLE, packaged

DEEP = b"[" * 100_000 + b"]" * 100_000

# --- HTTP requests to each service's own path and operation

INVOKE = "/2015-03-31/functions/echo/invocations"
PATHS = {"lambda": INVOKE, "edge": INVOKE, "s3": f"/{BUCKET}/raw"}
OPERATION = {"states": ("states", "ListStateMachines"), "s3": ("s3", ""), "aws": ("sqs", "ListQueues")}


def head(target: Target, *more: str, body: bytes = b"") -> bytes:
    """Return the head of a signed request without its length."""
    service, operation = OPERATION.get(target.kind, ("lambda", ""))
    url = target.url + PATHS.get(target.kind, "/")
    named = {"X-Amz-Target": f"{JSON_TARGETS[service]}.{operation}"} if operation else {}
    method = "PUT" if service == "s3" else "POST"
    headers = signed_headers(target.pair, method, url, body, UNSIGNED if service == "s3" else named, service)
    lines = [f"{method} {urlsplit(url).path} HTTP/1.1", f"Host: {urlsplit(url).netloc}"]
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items()), *more]).encode() + b"\r\n\r\n"


def whole(body: Callable[[], bytes]) -> Callable[[Target], str]:
    """Return a function that sends a whole request with this body."""

    def send(target: Target) -> str:
        made = body()
        return raw(target, [head(target, f"Content-Length: {len(made)}", body=made), made])

    return send


def unfinished(line: str, pieces: Callable[[], Iterable[bytes]]) -> Callable[[Target], str]:
    """Return a function that sends a signed head with this line, and then pieces of a body."""
    return lambda target: raw(target, (piece for part in ([head(target, line)], pieces()) for piece in part))


def spelled(target: Target) -> str:
    """Sign a header of 300 KB under 8,000 names that differ only by case."""
    spellings = product(*zip("abcdefghijklm", "ABCDEFGHIJKLM", strict=True))
    names = ";".join("".join(letters) for letters in islice(spellings, 8_000))
    signed = re.sub(rb"SignedHeaders=[^,]+", b"SignedHeaders=host;" + names.encode(), head(target))
    return raw(target, [signed.removesuffix(b"\r\n"), b"abcdefghijklm: " + b"a" * 300_000 + b"\r\n\r\n"])


GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = "Transfer-Encoding: chunked"
HTTP = [
    Case("a header of 16 MB", lambda t: raw(t, [GET + b"X: ", b"a" * 16 * MB])),
    Case("a header without end", lambda t: raw(t, (p for s in ([GET + b"X: "], endless(b"a" * MB)) for p in s))),
    Case("a million headers", lambda t: raw(t, [GET, b"X: a\r\n" * 1_000_000])),
    Case("a path of 16 MB", lambda t: raw(t, [b"GET /", b"a" * 16 * MB, b" HTTP/1.1\r\n\r\n"])),
    Case("a head of ten bytes a second", lambda t: raw(t, endless(b"X", 0.1))),
    Case("a body that claims 10^15 bytes", unfinished("Content-Length: 1000000000000000", list)),
    Case("a body of ten bytes a second", unfinished("Content-Length: 100000", lambda: endless(b"a", 0.1))),
    Case("chunks without end", unfinished(CHUNKED, lambda: endless(b"%x\r\n%s\r\n" % (MB, b"a" * MB)))),
    Case("10^6 chunks of one byte", unfinished(CHUNKED, lambda: [b"1\r\na\r\n" * 1_000_000, b"0\r\n\r\n"])),
    Case("a chunk of 2^70 bytes", unfinished(CHUNKED, lambda: [b"%x\r\n" % 2**70])),
    Case("500 silent connections", silent(500)),
    Case("500 half heads", silent(500, GET)),
    Case("requests without end, answers unread", lambda t: raw(t, endless((GET + b"\r\n") * 1000))),
    Case("random bytes", lambda t: raw(t, [os.urandom(MB)])),
    Case("8,000 names of a signed header", spelled),
    Case("20 bodies of 6 MB at once", at_once(whole(lambda: b'"' + b"a" * 5_900_000 + b'"'), 20)),
]
JSON = [
    Case("JSON 10^5 deep", whole(lambda: DEEP)),
    Case("an object 10^5 deep", whole(lambda: b'{"a":' * 100_000 + b"1" + b"}" * 100_000)),
    Case("JSON of 10^6 members", whole(lambda: json.dumps({str(n): n for n in range(400_000)}).encode()[:5_900_000])),
    Case("a number of 10^6 digits", whole(lambda: b'{"a":' + b"9" * 1_000_000 + b"}")),
]

# --- The endpoint of all services

END = b"\r\n\r\n"
CREDENTIAL = b"X-Amz-Credential=a%2F20260101%2F"
EDGE = [
    Case(
        "40,000 credentials in a header",
        lambda t: raw(t, [GET, b"Authorization: ", b"Credential=" * 40_000, b"\r\n\r\n"]),
    ),
    Case(
        "2,000 credentials in a query",
        lambda t: raw(t, [b"GET /?", CREDENTIAL * 2_000, b" HTTP/1.1\r\nHost: localhost", END]),
    ),
    Case("sts: 10^7 parameters", lambda t: http(t, "POST", "/", b"a&" * 10_000_000, "sts")),
]

# --- Lambda

FUNCTIONS = {
    "echo": "def handler(event, context):\n    return event\n",
    "many": "def handler(event, context):\n    return list(range(10**7))\n",
    "deep": "def handler(event, context):\n    x = []\n    for _ in range(900): x = [x]\n    return x\n",
    "loud": "def handler(event, context):\n    while True: print('x' * 1000)\n",
    "large": "def handler(event, context):\n    return 'x' * 10**9\n",
    "memory": "def handler(event, context):\n    return len(bytearray(10**12)) + len([0] * 10**10)\n",
    "files": "def handler(event, context):\n    open('/tmp/x', 'wb').write(bytes(10**9))\n",
}


def create(target: Target, name: str, archive: bytes, **more: Any) -> str:
    """Create a function."""
    members = {**DEFAULTS, "FunctionName": name, "Code": {"ZipFile": base64.b64encode(archive).decode()}, **more}
    return http(target, "POST", "/2015-03-31/functions", json.dumps(members).encode())


def invoke(target: Target, name: str, payload: bytes = b"{}", kind: str = "RequestResponse") -> str:
    """Invoke a function."""
    path, headers = f"/2015-03-31/functions/{name}/invocations", {"X-Amz-Invocation-Type": kind}
    return http(target, "POST", path, payload, "lambda", 100, **headers)


def prepare_lambda(target: Target) -> None:
    """Create the functions."""
    for name, source in FUNCTIONS.items():
        create(target, name, packaged(source), Timeout=5)


def archive(entries: int, size: int) -> bytes:
    """Return a zip archive with this many entries of zeros."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for number in range(entries):
            file.writestr(f"{number}.py", bytes(size))
    return made.getvalue()


def configured(**members: Any) -> Callable[[Target], str]:
    """Return a function that changes a function's configuration."""
    path = "/2015-03-31/functions/echo/configuration"
    return lambda target: http(target, "PUT", path, json.dumps(members).encode())


LAMBDA = [
    *(Case(f"a function: {name}", partial(invoke, name=name)) for name in FUNCTIONS if name != "echo"),
    Case("a payload 10^5 deep", partial(invoke, name="echo", payload=DEEP)),
    Case("a payload of 10^6 items", partial(invoke, name="echo", payload=json.dumps([1] * 1_000_000).encode())),
    Case(
        "200 events of 250 KB at once",
        at_once(partial(invoke, name="echo", payload=b'"%s"' % (b"a" * 250_000), kind="Event"), 200),
    ),
    Case("an archive of 1 GB of zeros", lambda t: create(t, "zeros", archive(1, 10**9))),
    Case("an archive of 60,000 files", lambda t: create(t, "entries", archive(60_000, 1))),
    Case("an archive of random bytes", lambda t: create(t, "random", os.urandom(4 * MB))),
    Case("10^5 variables", configured(Environment={"Variables": {f"a{n}": "1" for n in range(100_000)}})),
    Case("a handler of 10^6 characters", configured(Handler="a." * 500_000)),
    Case("a role for its pattern", configured(Role="arn:aws:iam::000000000000:role/" + "a/" * 2000 + "!")),
    Case("a description of 4 MB", configured(Description="a" * 4 * MB)),
    Case("10^5 layers", configured(Layers=[f"arn:aws:lambda:{REGION}:{ACCOUNT}:layer:a:{n}" for n in range(100_000)])),
    Case(
        "10^5 tags",
        lambda t: http(
            t,
            "POST",
            f"/2017-03-31/tags/arn:aws:lambda:{REGION}:{ACCOUNT}:function:echo",
            json.dumps({"Tags": {str(n): "" for n in range(100_000)}}).encode(),
        ),
    ),
    Case(
        "a filter pattern 10^4 deep",
        lambda t: http(
            t,
            "POST",
            "/2015-03-31/event-source-mappings",
            json.dumps(
                {
                    "FunctionName": "echo",
                    "EventSourceArn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:q",
                    "FilterCriteria": {"Filters": [{"Pattern": '{"a":' * 10_000 + "[1]" + "}" * 10_000}]},
                }
            ).encode(),
        ),
    ),
    Case(
        "10^4 query parameters",
        lambda t: http(t, "GET", "/2015-03-31/functions?" + "&".join(f"a{n}=1" for n in range(10_000))),
    ),
]

# --- Step Functions


def execute(target: Target, states: Any, data: str = "{}", limit_s: float = 30, **machine: Any) -> str:
    """Create a machine, run it and return how it ended; delete it."""
    name = f"hostile-{uuid.uuid4()}"
    definition = states if isinstance(states, str) else json.dumps({"StartAt": "A", "States": states, **machine})
    arn = f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:{name}"
    members = {"name": name, "definition": definition, "roleArn": ROLE}
    made = api(target, "states", "CreateStateMachine", members)
    if not made.startswith("200"):
        return f"refused: {made}"
    try:
        started = api(target, "states", "StartExecution", {"stateMachineArn": arn, "name": "e", "input": data})
        if not started.startswith("200"):
            return f"not started: {started}"
        execution, end = arn.replace("stateMachine", "execution") + ":e", time.monotonic() + limit_s
        while time.monotonic() < end:
            # The last event, without its data, says why.
            last = {"executionArn": execution, "reverseOrder": True, "maxResults": 1, "includeExecutionData": False}
            found = api(target, "states", "DescribeExecution", {"executionArn": execution}, 1000)
            if '"RUNNING"' not in found:
                status = next(
                    (word for word in ("SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED") if word in found), found
                )
                return f"{status} {api(target, 'states', 'GetExecutionHistory', last, 300)[-200:]}"
            time.sleep(0.02)
        return f"runs for more than {limit_s:g} s; deleted"
    finally:
        api(target, "states", "DeleteStateMachine", {"stateMachineArn": arn})


def jsonata(expression: str) -> Callable[[Target], str]:
    """Return a function that evaluates a JSONata expression in a Pass state."""
    state = {"Type": "Pass", "Output": {"x": f"{{% {expression} %}}"}, "End": True}
    return lambda target: execute(target, {"A": state}, QueryLanguage="JSONata")


def template(expression: str, data: Any = "x") -> Callable[[Target], str]:
    """Return a function that evaluates a path or an intrinsic function in a Pass state with this `$.d`."""
    state = {"Type": "Pass", "Parameters": {"x.$": expression}, "End": True}
    return lambda target: execute(target, {"A": state}, json.dumps({"d": data}))


def machine(states: Any, data: str = "{}") -> Callable[[Target], str]:
    """Return a function that runs a machine."""
    return lambda target: execute(target, states, data)


def described(states: Any) -> Callable[[Target], str]:
    """Return a function that creates a machine, describes it and deletes it."""
    name = f"hostile-{uuid.uuid4()}"
    definition = json.dumps({"StartAt": "A", "States": states})
    arn = {"stateMachineArn": f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:{name}"}

    def send(target: Target) -> str:
        api(target, "states", "CreateStateMachine", {"name": name, "definition": definition, "roleArn": ROLE})
        answer = api(target, "states", "DescribeStateMachine", arn)
        api(target, "states", "DeleteStateMachine", arn)
        return answer

    return send


def nested(depth: int, inner: Any, wrap: Callable[[Any], Any]) -> Any:
    """Wrap a value this many times."""
    for _ in range(depth):
        inner = wrap(inner)
    return inner


def mapped(depth: int) -> Any:
    """Return a state that maps over its input, and over each item again."""
    state: Any = {"Type": "Pass", "End": True}
    for level in range(depth):
        inner = {"StartAt": f"B{level}", "States": {f"B{level}": state}}
        state = {"Type": "Map", "ItemsPath": "$$.Execution.Input.d", "Iterator": inner, "End": True}
    return state


PASS = {"Type": "Pass", "End": True}
# AWS refuses a machine that has no end.
LOOP: dict[str, dict[str, Any]] = {
    "A": {"Type": "Pass", "Next": "B"},
    "B": {"Type": "Choice", "Choices": [{"Variable": "$.x", "IsPresent": True, "Next": "C"}], "Default": "A"},
    "C": {"Type": "Pass", "End": True},
}
CHOICE = {"Variable": "$.d", "StringMatches": "*a" * 5_000 + "b"}
STATES = [
    *(
        Case(f"JSONata: {name}", jsonata(expression))
        for name, expression in {
            "$sum([1..10^7])": "$sum([1..10000000])",
            "874,000 items 100 times": "[1..100].[1..874000]",
            "a pattern that backtracks": "$match('" + "a" * 40 + "b', /(a+)+$/)",
            "endless recursion": "($f := function($x){$f($x + 1)}; $f(1))",
            "recursion that branches": "($f := function($x){$f($x) + $f($x)}; $f(1))",
            "a text that doubles": "$reduce([1..100], function($x, $_){$x & $x}, 'ab')",
            "$pad of 10^9": "$pad('', 1000000000)",
            "an array that doubles": "$reduce([1..100], function($x, $_){$append($x, $x)}, [1])",
            "a sort of 300,000": "$sort([1..300000], function($a, $b){$a % 7 < $b % 7})",
            "10^4 parentheses": "(" * 10_000 + "1" + ")" * 10_000,
            "10^4 operators": "+".join("1" * 10_000),
            "a picture of 10^5 characters": "$formatNumber(1, '" + "#" * 100_000 + "')",
            "$formatInteger in words": "$formatInteger(1e300, 'w')",
            "$replace that grows": "$replace($pad('', 100000, 'a'), 'a', $pad('', 10000, 'b'))",
            "$power": "$power(10, 300) * $power(10, 300)",
            "$parse of a deep text": "$parse($join([1..100000].'['))",
            "a product of 10^10 pairs": "$count([1..100000].($x := $; [1..100000].($ * $x)))",
        }.items()
    ),
    Case("20 endless expressions at once", at_once(jsonata("$sum([1..800000].$sum([1..800000]))"), 20)),
    *(
        Case(f"JSONPath: {name}", template(expression, data))
        for name, expression, data in (
            ("a filter's pattern backtracks", "$.d[?(@.a =~ /(a+)+$/)]", [{"a": "a" * 40 + "b"}]),
            ("100 filters' patterns backtrack", "$.d[?(@.a =~ /(a+)+$/)]", [{"a": "a" * 40 + "b"}] * 100),
            ("deep scans in each other", "$" + "..*" * 8, nested(60, 1, lambda inner: [inner, inner, 1][1:])),
            ("a scan of 10^4 items in filters", "$..[?(@..a)]", [{"a": 1} for n in range(10_000)]),
            ("ArrayRange of 10^9", "States.ArrayRange(0, 1000000000, 1)", 1),
            ("Array of 10^5", "States.Array(" + ",".join("1" * 100_000) + ")", 1),
            (
                "Format with 10^4 places",
                "States.Format('" + "{}" * 10_000 + "'" + ", $.d" * 10_000 + ")",
                "x" * 200_000,
            ),
            ("StringToJson 10^5 deep", "States.StringToJson($.d)", "[" * 100_000),
            ("ArrayPartition of 80,000", "States.ArrayPartition($.d, 1)", [1] * 80_000),
            ("ArrayUnique of 30,000", "States.ArrayUnique($.d)", list(range(30_000))),
            (
                "ArrayContains 9 times",
                "States.Array(" + ",".join(["States.ArrayContains($.d, -1)"] * 9) + ")",
                [1] * 80_000,
            ),
            ("StringSplit of 250 KB", "States.StringSplit($.d, 'ab')", "ab" * 120_000),
        )
    ),
    Case(
        "Choice: a pattern of 10^4 parts",
        machine(
            {"A": {"Type": "Choice", "Choices": [CHOICE | {"Next": "B"}], "Default": "B"}, "B": PASS},
            json.dumps({"d": "a" * 200_000}),
        ),
    ),
    Case(
        "a text of 200,000 quotes, described",
        described({"A": {**PASS, "Parameters": {"aPath": "'" + r"\'" * 200_000}}}),
    ),
    Case("a definition 10^5 deep", lambda t: execute(t, DEEP.decode())),
    Case(
        "Parallel 90 deep",
        machine(
            {
                "A": nested(
                    90,
                    PASS,
                    lambda inner: {
                        "Type": "Parallel",
                        "Branches": [{"StartAt": (name := f"B{uuid.uuid4()}"), "States": {name: inner}}],
                        "End": True,
                    },
                )
            }
        ),
    ),
    Case(
        "And 300 deep",
        machine(
            {
                "A": {
                    "Type": "Choice",
                    "Choices": [nested(300, CHOICE, lambda inner: {"And": [inner]}) | {"Next": "B"}],
                    "Default": "B",
                },
                "B": PASS,
            },
            json.dumps({"d": "a"}),
        ),
    ),
    Case(
        "10,000 states",
        machine({**{f"A{n or ''}": {"Type": "Pass", "Next": f"A{n + 1}"} for n in range(9_999)}, "A9999": PASS}),
    ),
    Case(
        "5,000 branches",
        machine(
            {
                "A": {
                    "Type": "Parallel",
                    "Branches": [{"StartAt": f"B{n}", "States": {f"B{n}": PASS}} for n in range(5_000)],
                    "End": True,
                }
            }
        ),
    ),
    Case("10^9 iterations of nested Maps", machine({"A": mapped(3)}, json.dumps({"d": [1] * 1_000}))),
    Case("a Map over 80,000 items", machine({"A": mapped(1)}, json.dumps({"d": [1] * 80_000}))),
    Case("an endless loop", machine(LOOP)),
    Case("20 endless loops at once", at_once(machine(LOOP), 20)),
    Case("Array of 10^5 texts of 200 KB", template("States.Array(" + ",".join(["$.d"] * 100_000) + ")", "x" * 200_000)),
    Case("200 executions at once", at_once(machine({"A": {"Type": "Wait", "Seconds": 1, "End": True}}), 200)),
    Case(
        "a Wait of 99999999 s",
        lambda t: execute(t, {"A": {"Type": "Wait", "Seconds": 99_999_999, "End": True}}, limit_s=3),
    ),
    Case("an input of 10^5 arrays in each other", lambda t: execute(t, {"A": PASS}, DEEP.decode())),
    Case(
        "variables that double",
        machine(
            {
                "A": {"Type": "Pass", "Assign": {"v": "a" * 200_000}, "Next": "B"},
                "B": {"Type": "Pass", "Assign": {"v.$": "States.Format('{}{}', $v, $v)"}, "Next": "C"},
                "C": {**LOOP["B"], "Default": "B", "Choices": [{"Variable": "$.x", "IsPresent": True, "Next": "D"}]},
                "D": PASS,
            }
        ),
    ),
    Case(
        "validation of 10^4 expressions",
        called(
            "states",
            "ValidateStateMachineDefinition",
            {
                "definition": json.dumps(
                    {
                        "QueryLanguage": "JSONata",
                        "StartAt": "A",
                        "States": {"A": {"Type": "Pass", "End": True, "Output": ["{% $f(1 + 2 * 3) %}"] * 10_000}},
                    }
                )
            },
        ),
    ),
]

# --- tensordb: RESP, Lua and TorchScript


def database(target: Target) -> Any:
    """Return a client."""
    return redis.Redis.from_url(target.url, socket_timeout=35)


def commands(*several: tuple[Any, ...]) -> Callable[[Target], str]:
    """Return a function that runs commands in order and deletes what they stored."""

    def send(target: Target) -> str:
        with closing(database(target)) as client:
            try:
                return str([client.execute_command(*words) for words in several][-1])[:100]
            except redis.TimeoutError:
                return "no answer in 35 s"
            except redis.ResponseError as error:
                return str(error)
            finally:
                client.flushdb()

    return send


def lua(script: str) -> Callable[[Target], str]:
    """Return a function that runs a script for up to 10 s and removes it from the database."""

    def run(client: Any) -> str:
        try:
            return str(client.eval(script, 0))[:100]
        except redis.ResponseError as error:
            return str(error)
        except redis.TimeoutError:
            client.script_kill()
            began = time.monotonic()
            while True:
                try:
                    client.ping()
                    return f"no answer in 10 s; ended {time.monotonic() - began:.1f} s after SCRIPT KILL"
                except redis.RedisError:
                    time.sleep(0.1)

    def send(target: Target) -> str:
        with closing(redis.Redis.from_url(target.url, socket_timeout=10)) as client:
            answer = run(client)
            client.script_flush()
            return answer

    return send


def resp(pieces: Callable[[], Iterable[bytes]]) -> Callable[[Target], str]:
    """Return a function that sends bytes after AUTH."""

    def send(target: Target) -> str:
        password = unquote(urlsplit(target.url).password or "").encode()
        stream = target.connect()
        stream.sendall(b"*2\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n" % (len(password), password))
        assert stream.recv(100) == b"+OK\r\n"
        return raw(target, pieces(), stream)

    return send


def torch(body: str) -> Callable[[Target], str]:
    """Return a function that stores and runs a TorchScript function."""
    source = f"def f(tensors: List[Tensor], keys: List[str], args: List[str]):\n    {body}\n"
    store = ("AI.SCRIPTSTORE", "s", "CPU", "ENTRY_POINTS", 1, "f", "SOURCE", source)
    return commands(store, ("AI.SCRIPTEXECUTE", "s", "f", "KEYS", 1, "k", "OUTPUTS", 1, "t"))


MULTI, PING, EXEC = (b"*1\r\n$%d\r\n%s\r\n" % (len(word), word) for word in (b"MULTI", b"PING", b"EXEC"))
BULK = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n"
LARGE = ("SET", "large", b"a" * 100 * MB)
TENSORDB = [
    Case("a bulk string of 10^18 bytes", resp(lambda: [BULK % 10**18])),
    Case("a bulk string of 512 MB that does not come", resp(lambda: [BULK % (512 * MB)])),
    Case("40 bulk strings of 512 MB that do not come", at_once(resp(lambda: [BULK % (512 * MB), b"a"]), 40)),
    Case("an array of 10^9", resp(lambda: [b"*1000000000\r\n"])),
    Case("an array of 10^6 small arguments", resp(lambda: [b"*1000000\r\n", b"$1\r\na\r\n" * 1_000_000])),
    Case("a request of 2 GB", resp(lambda: [b"*1000000\r\n", *([b"$%d\r\n%s\r\n" % (MB, b"a" * MB)] * 2000)])),
    Case("a line without end", resp(lambda: endless(b"a" * MB))),
    Case("ten bytes a second", resp(lambda: endless(b"*", 0.1))),
    Case("arrays in arrays", resp(lambda: [b"*1\r\n" * 1_000_000])),
    Case("random bytes", resp(lambda: [os.urandom(MB)])),
    Case("commands without end, answers unread", resp(lambda: endless(b"*1\r\n$4\r\nINFO\r\n" * 1_000))),
    Case(
        "100 MB asked for without end, unread",
        lambda t: (
            commands(LARGE, ("PING",))(t),
            database(t).set("large", b"a" * 100 * MB),
            resp(lambda: endless(b"*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n" * 100))(t),
            database(t).flushdb(),
        )[2],
    ),
    Case("500 silent connections", silent(500)),
    Case("10^6 queued in a transaction", resp(lambda: [MULTI, PING * 1_000_000, EXEC])),
    Case("KEYS with 10^4 stars", commands(("SET", "a" * 20_000, 1), ("KEYS", "*a" * 10_000 + "b"))),
    Case("KEYS with 10^7 question marks", commands(("SET", "a", 1), ("KEYS", "?" * 10_000_000))),
    Case("SETRANGE at 10^12", commands(("SETRANGE", "k", 10**12, "a"), ("GET", "k"))),
    Case("RPUSH of 100 MB 100 times", commands(*[("RPUSH", "k", b"a" * 100 * MB)] * 100)),
    Case("a tensor of 10^6 × 10^6", commands(("AI.TENSORSET", "t", "FLOAT", 10**6, 10**6, "BLOB", b"a"))),
    Case("a tensor of 2^62 × 4", commands(("AI.TENSORSET", "t", "FLOAT", 2**62, 4, "VALUES", 1))),
    *(
        Case(f"Lua: {name}", lua(script))
        for name, script in {
            "an endless loop": "while true do end",
            "an endless loop that catches errors": "while true do pcall(function() while true do end end) end",
            "a table without end": "local t = {} while true do t[#t + 1] = {} end",
            "10^7 items": "local t = {} for i = 1, 10000000 do t[i] = i end return t",
            "string.rep of 10^10": "return #string.rep('a', 10000000000)",
            "a text that doubles": "local s = 'a' while true do s = s .. s end",
            "a pattern that backtracks": "return string.find(('a'):rep(21), ('a?'):rep(21) .. ('a'):rep(21) .. 'b')",
            "endless recursion": "local function f() return 1 + f() end return f()",
            "a reply 10^5 deep": "local t = {} for i = 1, 100000 do t = {t} end return t",
            "cjson 10^5 deep": "return cjson.decode(string.rep('[', 100000))",
            "10^6 commands": "for i = 1, 1000000 do redis.call('GET', i) end",
            "a pattern for ever": "return string.find(('a'):rep(50), ('a?'):rep(50) .. ('a'):rep(50) .. 'b')",
            "a sort of long strings": "local s, t = ('a'):rep(1e8), {} for i = 1, 1e5 do t[i] = s end table.sort(t)",
            "gsub that grows": "return #string.gsub(string.rep('a', 100000), 'a', string.rep('b', 100000))",
            "10^6 coroutines": "local t = {} for i = 1, 1000000 do t[i] = coroutine.create(function() end) end",
            "string.format of 10^9": "return #string.format('%099d', 1) + #table.concat({string.rep('a', 1000000000)})",
        }.items()
    ),
    Case("a script of 100 MB", lua("return " + "(" * 100 + "1" + ")" * 100 + " " * 100 * MB)),
    Case("a script of 10^5 parentheses", lua("return " + "(" * 100_000 + "1" + ")" * 100_000)),
    Case("TorchScript: zeros of 10^12", torch("return torch.zeros([1000000000000])")),
    Case(
        "TorchScript: 12 s of work",
        torch("t = torch.ones([1])\n    for i in range(4000000):\n        t = t + 1\n    return t"),
    ),
    Case("TorchScript: 10^4 parentheses", torch("return " + "(" * 10_000 + "torch.ones([1])" + ")" * 10_000)),
]

# --- moto's services

QUEUE = f"http://127.0.0.1/{ACCOUNT}/q"
EMPTY = f"http://127.0.0.1/{ACCOUNT}/empty"
TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:t"


def prepare_aws(target: Target) -> None:
    """Create a queue, a topic, a table and a log group."""
    for name in ("q", "empty"):
        api(target, "sqs", "CreateQueue", {"QueueName": name})
    api(target, "sns", "CreateTopic", {"Name": "t"})
    key = {"KeySchema": [{"AttributeName": "k", "KeyType": "HASH"}], "BillingMode": "PAY_PER_REQUEST"}
    attributes = [{"AttributeName": "k", "AttributeType": "S"}]
    api(target, "dynamodb", "CreateTable", {"TableName": "t", "AttributeDefinitions": attributes, **key})
    api(target, "dynamodb", "PutItem", {"TableName": "t", "Item": {"k": {"S": "a"}, "v": {"S": "a" * 300_000}}})
    api(target, "logs", "CreateLogGroup", {"logGroupName": "g"})
    api(target, "logs", "CreateLogStream", {"logGroupName": "g", "logStreamName": "s"})
    events = [{"timestamp": int(time.time() * 1000) + n, "message": "a" * 200_000} for n in range(4)]
    api(target, "logs", "PutLogEvents", {"logGroupName": "g", "logStreamName": "s", "logEvents": events})


def several(*calls: Callable[[Target], str]) -> Callable[[Target], str]:
    """Return a function that makes calls in order and returns the last answer."""
    return lambda target: [send(target) for send in calls][-1]


def put_item(**item: Any) -> Callable[[Target], str]:
    """Return a function that puts an item."""
    return called("dynamodb", "PutItem", {"TableName": "t", "Item": {"k": {"S": "b"}, **item}})


def scan(expression: str, **values: Any) -> Callable[[Target], str]:
    """Return a function that scans the table with a filter."""
    given = {f":{name}": value for name, value in {"v": {"S": "a"}, **values}.items()}
    members = {"TableName": "t", "FilterExpression": expression, "ExpressionAttributeValues": given}
    return called("dynamodb", "Scan", members)


def rule(pattern: Any, detail: Any) -> Callable[[Target], str]:
    """Return a function that puts a rule, sends an event and deletes the rule."""
    entry = {"Source": "s", "DetailType": "d", "Detail": json.dumps(detail)}
    return several(
        called("events", "PutRule", {"Name": "r", "EventPattern": json.dumps(pattern)}),
        called(
            "events", "PutTargets", {"Rule": "r", "Targets": [{"Id": "q", "Arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:q"}]}
        ),
        called("events", "PutEvents", {"Entries": [entry]}),
    )


def subscribe(policy: Any, message: str) -> Callable[[Target], str]:
    """Return a function that subscribes with a filter policy on the body, and publishes."""
    members = {"TopicArn": TOPIC, "Protocol": "sqs", "Endpoint": f"arn:aws:sqs:{REGION}:{ACCOUNT}:q"}
    named = {
        "FilterPolicyScope": "MessageBody",
        "FilterPolicy": policy if isinstance(policy, str) else json.dumps(policy),
    }
    for number, (name, value) in enumerate(named.items(), 1):
        members |= {f"Attributes.entry.{number}.key": name, f"Attributes.entry.{number}.value": value}
    return several(
        called("sns", "Subscribe", members), called("sns", "Publish", {"TopicArn": TOPIC, "Message": message})
    )


def log_filter(pattern: str) -> Callable[[Target], str]:
    """Return a function that filters the log."""
    return called("logs", "FilterLogEvents", {"logGroupName": "g", "filterPattern": pattern})


STARS = "*a" * 500 + "b"
WILD = json.dumps({"a": "a" * 100_000})
AWS = [
    *(
        Case(f"{service}: JSON 10^5 deep", called(service, operation, DEEP))
        for service, operation in (
            ("sqs", "ListQueues"),
            ("dynamodb", "Scan"),
            ("events", "ListRules"),
            ("logs", "DescribeLogGroups"),
        )
    ),
    Case("sqs: a body of 20 MB", called("sqs", "SendMessage", {"QueueUrl": QUEUE, "MessageBody": "a" * 20_000_000})),
    Case(
        "sqs: 10^5 attributes",
        called(
            "sqs",
            "SendMessage",
            {
                "QueueUrl": QUEUE,
                "MessageBody": "a",
                "MessageAttributes": {f"a{n}": {"DataType": "String", "StringValue": "a"} for n in range(100_000)},
            },
        ),
    ),
    Case(
        "sqs: a batch of 10^5",
        called(
            "sqs",
            "SendMessageBatch",
            {"QueueUrl": QUEUE, "Entries": [{"Id": str(n), "MessageBody": "a"} for n in range(100_000)]},
        ),
    ),
    Case(
        "sqs: 200 receivers wait 10 s",
        at_once(called("sqs", "ReceiveMessage", {"QueueUrl": EMPTY, "WaitTimeSeconds": 10}), 200),
    ),
    Case(
        "sqs: 10^9 messages, 10^9 s",
        called("sqs", "ReceiveMessage", {"QueueUrl": QUEUE, "MaxNumberOfMessages": 10**9, "WaitTimeSeconds": 10**9}),
    ),
    Case("sqs: a name of 10^6 characters", called("sqs", "CreateQueue", {"QueueName": "a" * 1_000_000})),
    Case(
        "sqs: a prefix that backtracks",
        several(
            called("sqs", "CreateQueue", {"QueueName": "a" * 70}),
            called("sqs", "ListQueues", {"QueueNamePrefix": "(a+)+$b"}),
        ),
    ),
    Case(
        "events: a prefix that backtracks",
        several(
            called("events", "PutRule", {"Name": "a" * 60, "ScheduleExpression": "rate(1 day)"}),
            called("events", "ListRules", {"NamePrefix": "(a+)+$b"}),
        ),
    ),
    Case(
        "sns: member 10^9 of a list",
        called("sns", "PublishBatch", {"TopicArn": TOPIC, "PublishBatchRequestEntries.member.1000000000.Id": "a"}),
    ),
    Case(
        "sns: 10^5 members",
        called(
            "sns",
            "PublishBatch",
            {"TopicArn": TOPIC, **{f"PublishBatchRequestEntries.member.{n}.Id": "a" for n in range(100_000)}},
        ),
    ),
    Case("sns: a filter policy 10^4 deep", subscribe('{"a":' * 10_000 + "[1]" + "}" * 10_000, WILD)),
    Case("sns: a filter policy of 10^5 values", subscribe({"a": [str(n) for n in range(100_000)]}, WILD)),
    Case("sns: a filter policy with wildcards", subscribe({"a": [{"wildcard": STARS}, {"suffix": "b"}]}, WILD)),
    Case("sns: a message 10^5 deep", called("sns", "Publish", {"TopicArn": TOPIC, "Message": DEEP.decode()})),
    Case("dynamodb: a number of 10^6 digits", put_item(v={"N": "9" * 1_000_000})),
    Case(
        "dynamodb: a number of 10^(10^9)",
        several(
            put_item(v={"N": "1E+1000000000"}),
            called(
                "dynamodb",
                "UpdateItem",
                {
                    "TableName": "t",
                    "Key": {"k": {"S": "b"}},
                    "UpdateExpression": "SET v = v + :n",
                    "ExpressionAttributeValues": {":n": {"N": "1"}},
                },
            ),
        ),
    ),
    Case("dynamodb: an item 300 deep", put_item(v=nested(300, {"S": "a"}, lambda inner: {"L": [inner]}))),
    Case("dynamodb: an item of 16 MB", put_item(v={"S": "a" * 16_000_000})),
    Case("dynamodb: 10^4 parentheses", scan("(" * 10_000 + "k = :v" + ")" * 10_000)),
    Case("dynamodb: 10^4 conditions", scan(" OR ".join(["contains(v, :v)"] * 10_000))),
    Case("dynamodb: NOT 10^4 times", scan("NOT " * 10_000 + "k = :v")),
    Case("dynamodb: IN of 10^5", scan("k IN (" + ",".join([":v"] * 100_000) + ")")),
    Case(
        "dynamodb: a projection of 10^5 names",
        called(
            "dynamodb", "Scan", {"TableName": "t", "ProjectionExpression": ",".join(f"a{n}" for n in range(100_000))}
        ),
    ),
    Case(
        "dynamodb: a path 10^5 deep",
        called(
            "dynamodb",
            "UpdateItem",
            {
                "TableName": "t",
                "Key": {"k": {"S": "c"}},
                "UpdateExpression": "SET a" + ".a" * 100_000 + " = :v",
                "ExpressionAttributeValues": {":v": {"S": "a"}},
            },
        ),
    ),
    Case(
        "dynamodb: PartiQL of 10^5",
        called(
            "dynamodb",
            "ExecuteStatement",
            {"Statement": 'SELECT * FROM "t" WHERE ' + " OR ".join(["k = 'a'"] * 20_000)},
        ),
    ),
    Case(
        "dynamodb: PartiQL 10^4 deep",
        called(
            "dynamodb",
            "ExecuteStatement",
            {"Statement": 'SELECT * FROM "t" WHERE ' + "(" * 10_000 + "k = 'a'" + ")" * 10_000},
        ),
    ),
    Case("events: wildcards", rule({"detail": {"a": [{"wildcard": STARS}]}}, {"a": "a" * 200_000})),
    Case(
        "events: a pattern 500 deep",
        rule({"detail": nested(300, ["a"], lambda inner: {"a": inner})}, nested(300, "a", lambda inner: {"a": inner})),
    ),
    Case(
        "events: $or of 8 in 8 in 8 …",
        rule({"detail": nested(3, {"a": [{"prefix": "b"}]}, lambda inner: {"$or": [inner] * 4})}, {"a": "a"}),
    ),
    Case(
        "events: $or in one another by 30 fields",
        rule({"detail": {"$or": [{f"f{n}": [{"exists": True}]} for n in range(60)]}}, {"a": ["a"] * 10_000}),
    ),
    Case("events: 10^5 values in an event", rule({"detail": {"a": ["b"]}}, {"a": ["a"] * 50_000})),
    Case(
        "events: a schedule that never comes",
        called("events", "PutRule", {"Name": "s", "ScheduleExpression": "cron(0 0 30 2 ? *)"}),
    ),
    Case(
        "events: a schedule of 10^6 values",
        called(
            "events",
            "PutRule",
            {"Name": "s", "ScheduleExpression": "cron(" + ",".join(["0-59/1"] * 200_000) + " * * * ? *)"},
        ),
    ),
    Case(
        "events: a rate of 10^100",
        called("events", "PutRule", {"Name": "s", "ScheduleExpression": f"rate({10**100} days)"}),
    ),
    Case(
        "events: a path of 10^5 in a target",
        called(
            "events",
            "PutTargets",
            {
                "Rule": "r",
                "Targets": [{"Id": "p", "Arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:q", "InputPath": "$" + ".a" * 100_000}],
            },
        ),
    ),
    Case("logs: a pattern that backtracks", log_filter("%(a+)+$b%")),
    Case("logs: quoted patterns 10^4", log_filter('?"a" ' * 10_000)),
    Case("logs: a JSON pattern 10^4 deep", log_filter("{" + "(" * 10_000 + "$.a = 1" + ")" * 10_000 + "}")),
    Case(
        "logs: 10^5 events",
        called(
            "logs",
            "PutLogEvents",
            {
                "logGroupName": "g",
                "logStreamName": "s",
                "logEvents": [{"timestamp": int(time.time() * 1000), "message": "a"} for _ in range(100_000)],
            },
        ),
    ),
    Case(
        "logs: an Insights query that backtracks",
        called(
            "logs",
            "StartQuery",
            {
                "logGroupName": "g",
                "startTime": 0,
                "endTime": 10**10,
                "queryString": "filter @message like /(a+)+$b/ | " * 100,
            },
        ),
    ),
    Case(
        "iam: a policy 10^4 deep",
        called("iam", "CreatePolicy", {"PolicyName": "p", "PolicyDocument": '{"a":' * 10_000 + "1" + "}" * 10_000}),
    ),
    Case(
        "iam: a policy of 10^5 statements",
        called(
            "iam",
            "CreatePolicy",
            {
                "PolicyName": "p",
                "PolicyDocument": json.dumps(
                    {
                        "Version": "2012-10-17",
                        "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}] * 100_000,
                    }
                ),
            },
        ),
    ),
]

# --- RabbitMQ: frames of AMQP 0-9-1, numbered by its specification


def text(value: bytes) -> bytes:
    """Return a short string."""
    return bytes([len(value)]) + value


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Return a frame."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, number: int, name: int, payload: bytes = b"") -> bytes:
    """Return a method's frame."""
    return frame(1, channel, struct.pack(">HH", number, name) + payload)


def login(target: Target) -> bytes:
    """Return the frames that open a connection and channel 1."""
    parts = urlsplit(target.url)
    plain = f"\0{parts.username}\0{parts.password}".encode()
    start = struct.pack(">I", 0) + text(b"PLAIN") + struct.pack(">I", len(plain)) + plain + text(b"en_US")
    tune = struct.pack(">HIH", 2047, 131072, 0)
    opened = method(0, 10, 40, text(b"/") + b"\0\0")
    return b"AMQP\0\0\x09\x01" + method(0, 10, 11, start) + method(0, 10, 31, tune) + opened + method(1, 20, 10, b"\0")


def declare(name: bytes, table: bytes = b"", channel: int = 1) -> bytes:
    """Return the declaration of a queue that ends with its connection."""
    return method(channel, 50, 10, b"\0\0" + text(name) + b"\x04" + struct.pack(">I", len(table)) + table)


def publish(exchange: bytes, key: bytes, size: int, *bodies: bytes) -> bytes:
    """Return a message of this size with these pieces of body."""
    sent = method(1, 60, 40, b"\0\0" + text(exchange) + text(key) + b"\0")
    return sent + frame(2, 1, struct.pack(">HHQH", 60, 0, size, 0)) + b"".join(frame(3, 1, body) for body in bodies)


def amqp(pieces: Callable[[], Iterable[bytes]]) -> Callable[[Target], str]:
    """Return a function that logs in and sends frames."""
    return lambda target: raw(target, (piece for part in ([login(target)], pieces()) for piece in part))


def table(depth: int) -> bytes:
    """Return a table nested in itself this many times."""
    inner = b""
    for _ in range(depth):
        inner = text(b"a") + b"F" + struct.pack(">I", len(inner)) + inner
    return inner


WORDS = b".".join([b"a"] * 100)
HASHES = b".".join([b"#"] * 60 + [b"b"])
BIND = method(1, 50, 20, b"\0\0" + text(b"q") + text(b"amq.topic") + text(HASHES) + b"\0" + struct.pack(">I", 0))
RABBITMQ = [
    Case("another protocol", lambda t: raw(t, [GET + b"\r\n"])),
    Case("random bytes", lambda t: raw(t, [os.urandom(MB)])),
    Case("500 silent connections", silent(500)),
    Case("500 half handshakes", silent(500, b"AMQP\0\0\x09\x01")),
    Case(
        "a frame of 4 GB before the login",
        lambda t: raw(t, [b"AMQP\0\0\x09\x01", struct.pack(">BHI", 1, 0, 2**32 - 1), *[b"a" * MB] * 50]),
    ),
    Case("a login of ten bytes a second", lambda t: raw(t, endless(b"A", 0.1))),
    Case("a frame of 4 GB", amqp(lambda: [struct.pack(">BHI", 3, 1, 2**32 - 1), *endless(b"a" * MB)])),
    Case("a frame without its end", amqp(lambda: [struct.pack(">BHI", 1, 1, 10) + b"a" * 11])),
    Case("an unknown class", amqp(lambda: [method(1, 65535, 65535)])),
    Case("an unknown kind of frame", amqp(lambda: [frame(200, 1, b"a")])),
    Case("bodies without a header", amqp(lambda: endless(frame(3, 1, b"a" * 100_000)))),
    Case(
        "1 GB of a message that claims 2^63 bytes",  # docs/services.md describes what would be worse
        amqp(lambda: [publish(b"", b"q", 2**63), *[frame(3, 1, b"a" * 100_000)] * 10_000]),
    ),
    Case(
        "10 messages of 100 MB at once",
        at_once(amqp(lambda: [publish(b"", b"q", 100 * MB), *[frame(3, 1, b"a" * 100_000)] * 1_000]), 10),
    ),
    Case("2,000 channels", amqp(lambda: [method(number, 20, 10, b"\0") for number in range(2, 2_048)])),
    Case("65,535 channels", amqp(lambda: [method(number, 20, 10, b"\0") for number in range(2, 65_536)])),
    Case("5,000 queues", amqp(lambda: [declare(b"q%d" % number) for number in range(5_000)])),
    Case("a table 5,000 deep", amqp(lambda: [declare(b"d", table(5_000))])),
    Case(
        "a table that claims 4 GB",
        amqp(lambda: [method(1, 50, 10, b"\0\0" + text(b"x") + b"\x04" + struct.pack(">I", 2**32 - 1))]),
    ),
    Case(
        "10^5 messages without a reader",
        amqp(lambda: [declare(b"q"), *[publish(b"", b"q", 10_000, b"a" * 10_000)] * 100_000]),
    ),
    Case(
        "a binding of 60 wildcards", amqp(lambda: [declare(b"q"), BIND, *[publish(b"amq.topic", WORDS, 1, b"a")] * 100])
    ),
    Case(
        "10^6 requests for nothing, answers unread",
        amqp(lambda: [declare(b"q"), *[method(1, 60, 70, b"\0\0" + text(b"q") + b"\0") * 1000] * 1000]),
    ),
]

CASES = {
    "lambda": [*HTTP, *JSON, *LAMBDA],
    "states": [*HTTP, *JSON, *STATES],
    "s3": [*HTTP, *S3],
    "tensordb": TENSORDB,
    "aws": AWS,
    "edge": [*HTTP, *JSON, *EDGE],
    "rabbitmq": RABBITMQ,
}
PREPARE: dict[str, Callable[[Target], None]] = {"lambda": prepare_lambda, "s3": prepare_s3, "aws": prepare_aws}


def small_states(target: Target) -> Callable[[], object]:
    """Return a function that runs a machine with an expression to its end."""
    state = {"Type": "Pass", "Output": "{% 1 + 1 %}", "End": True}
    definition = json.dumps({"QueryLanguage": "JSONata", "StartAt": "A", "States": {"A": state}})
    client = aws_client("stepfunctions", target.url, target.pair)
    arn = client.create_state_machine(name="small", definition=definition, roleArn=ROLE)["stateMachineArn"]

    def run() -> None:
        execution = client.start_execution(stateMachineArn=arn)["executionArn"]
        while (status := client.describe_execution(executionArn=execution)["status"]) == "RUNNING":
            time.sleep(0.01)
        assert status == "SUCCEEDED", status

    return run


def small_lambda(target: Target) -> Callable[[], object]:
    """Return a function that lists the functions."""
    client = aws_client("lambda", target.url, target.pair)
    return lambda: client.list_functions(MaxItems=1)


def small_tensordb(target: Target) -> Callable[[], object]:
    """Return a function that sets and gets a value; the answer that a script is running counts, too."""
    client = database(target)

    def ask() -> None:
        try:
            client.set("small", 1)
            client.get("small")
        except redis.ResponseError as error:
            if not str(error).startswith("BUSY"):
                raise

    return ask


def small_aws(target: Target) -> Callable[[], object]:
    """Return a function that lists the queues."""
    client = aws_client("sqs", target.url, target.pair)
    return lambda: client.list_queues(MaxResults=1)


def small_rabbitmq(target: Target) -> Callable[[], object]:
    """Return a function that sends a message and reads it."""
    channel = pika.BlockingConnection(pika.URLParameters(target.url)).channel()
    queue = channel.queue_declare("", exclusive=True).method.queue

    def ask() -> None:
        channel.basic_publish("", queue, b"a")
        while channel.basic_get(queue, auto_ack=True)[0] is None:
            time.sleep(0.01)

    return ask


SMALL: dict[str, Callable[[Target], Callable[[], object]]] = {
    "lambda": small_lambda,
    "states": small_states,
    "s3": small_s3,
    "tensordb": small_tensordb,
    "aws": small_aws,
    "edge": small_lambda,
    "rabbitmq": small_rabbitmq,
}
