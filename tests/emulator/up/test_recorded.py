"""What the reading commands show of one's own functions on `slslab up`, while it runs and after it."""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import redis
from tests import commands

from slslab.aws.clients import aws_client
from slslab.aws.keys import Pair
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import load_profile
from slslab.run.bill import load_book
from slslab.run.directory import RunDirectory
from slslab.testing import ROLE, create_function
from slslab_lab.pages.live.views import Views

pytestmark = pytest.mark.server

# s; what is within a moment on a host that others load.
MOMENT_S = 10
RUN = Path(__file__).parents[3] / "results" / "lambdaml-table1" / "lr-s3"

HANDLER = """
import boto3, yaml

def handler(event, context):
    if "error" in event:
        raise ValueError(event["error"])
    s3 = boto3.client("s3")
    for number in range(3):
        s3.put_object(Bucket="bucket", Key=str(number), Body=b"body")
    s3.get_object(Bucket="bucket", Key="0")["Body"].read()
    return len(s3.list_objects_v2(Bucket="bucket")["Contents"])
"""
TENSORS = "SLSLAB_TENSOR_URLS"
NOT_OF_A_SERVICE = (
    "architecture model dataset workers batch_size batches epochs memory_mb seed plan parameters gradient_bytes loss "
    "accuracy updates replicas_equal epochs_trained phases per_worker lambda bytes overheads torch package"
).split()


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    return commands.state_in(tmp_path)


def slslab(state: dict[str, str], *arguments: object) -> commands.Done:
    return commands.slslab(*arguments, variables=state)


class Service:
    """A service in the background, and clients of it."""

    def __init__(self, state: dict[str, str], clients: ExitStack) -> None:
        self.state = state
        self.described: dict[str, Any] = slslab(state, "status", "--json").document
        self.variables: dict[str, str] = slslab(state, "env", "--json").document["variables"]
        pair = Pair.of(self.variables)
        assert pair is not None
        endpoints = self.described["endpoints"]
        self.functions, self.s3, self.states = (
            clients.enter_context(closing(aws_client(name, endpoints[part], pair)))
            for name, part in (("lambda", "lambda"), ("s3", "s3"), ("stepfunctions", "states"))
        )

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = slslab(self.state, "show", "up", "--json").document
        return document

    def billed_ms(self) -> list[int]:
        """The billed durations of the REPORT lines in the service's own log."""
        log = Path(self.state["SLSLAB_STATE"], "up.log").read_text()
        return [int(found) for found in re.findall(r"REPORT .*Billed Duration: (\d+) ms", log)]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service in the background, which the second test that uses it ends."""
    state = commands.state_in(tmp_path_factory.mktemp("up"))
    started = slslab(state, "up", "--detach", "--port", "0", "--s3-port", "0", "--edge-port", "0", "--json").document
    with ExitStack() as clients:
        yield Service(state, clients)
    slslab(state, "down")
    os.waitpid(started["pid"], 0)


def execute(service: Service) -> None:
    """Run a state machine of two states; one calls the function."""
    function = service.functions.get_function(FunctionName="own")["Configuration"]["FunctionArn"]
    definition = {
        "StartAt": "Call",
        "States": {
            "Call": {"Type": "Task", "Resource": function, "Next": "Pass"},
            "Pass": {"Type": "Pass", "End": True},
        },
    }
    machine = service.states.create_state_machine(name="m", definition=json.dumps(definition), roleArn=ROLE)
    execution = service.states.start_execution(stateMachineArn=machine["stateMachineArn"], input="{}")
    while service.states.describe_execution(executionArn=execution["executionArn"])["status"] == "RUNNING":
        pass


def check_bill(cost: dict[str, Any], billed_ms: list[int], counts: dict[str, int], host_s: Decimal | None) -> None:
    """Compare a bill with the arithmetic by hand: prices of us-east-1, a memory size of 1,769 MB."""
    quantities = {
        "Lambda duration, x86_64": (Decimal(sum(billed_ms) * 1769) / (1024 * 1000), Decimal("0.0000166667")),
        "Lambda requests": (Decimal(len(billed_ms)), Decimal("0.0000002")),
        "S3 PUT requests": (Decimal(counts["object.put"]), Decimal("0.000005")),
        "S3 LIST requests": (Decimal(counts["object.list"]), Decimal("0.000005")),
        "S3 GET requests": (Decimal(counts["object.get"]), Decimal("0.0000004")),
        "S3 DELETE requests": (Decimal(counts.get("object.delete", 0)), Decimal(0)),
        "Step Functions state transitions": (Decimal(counts["transition"]), Decimal("0.000025")),
    }
    lines = {line["item"]: line for line in cost["lines"]}
    host = lines.pop("Host m5.large", None)
    assert (host is None) == (host_s is None)
    total = Decimal(host["amount"]) if host else Decimal(0)
    for item, (quantity, price) in quantities.items():
        if quantity:
            assert Decimal(lines.pop(item)["amount"]) == quantity * price, item
            total += quantity * price
    assert not lines
    assert Decimal(cost["total"]) == total
    if host is not None:
        # EC2 bills whole seconds, and at least 60.
        assert (host["assumed"], Decimal(host["quantity"])) == (True, host_s)


def test_commands_that_need_a_plan_say_so(service: Service, tmp_path: Path) -> None:
    for command in (["replay", "up"], ["ask", "waiting", "up"], ["export", "up", "--to", "csv", "--out", tmp_path]):
        done = slslab(service.state, *command)
        assert (done.code, done.out) == (2, "")
        assert "has no plan" in done.err
        assert "Hint: " in done.err
    done = slslab(service.state, "compare", "up", RUN)
    assert done.code == 2
    assert done.err == "Error: up was recorded by `slslab up`.\nHint: compare runs: slslab runs\n"


def test_it_shows_what_ones_own_functions_did(service: Service, tmp_path: Path) -> None:
    create_function(service.functions, "own", HANDLER)
    service.s3.create_bucket(Bucket="bucket")
    answer = service.functions.invoke(FunctionName="own", Payload=b"{}")
    assert answer["Payload"].read() == b"3"
    failed = service.functions.invoke(FunctionName="own", Payload=b'{"error": "on purpose"}')
    assert failed["FunctionError"] == "Unhandled"
    execute(service)

    shown = service.document()
    assert not shown.keys() & set(NOT_OF_A_SERVICE)
    assert (shown["run"], shown["status"], shown["error"]) == ("up", "running", None)
    assert shown["stack"] == service.described["stack"]
    counts = {"object.put": 1 + 2 * 3, "object.get": 2, "object.list": 2, "transition": 2}
    assert shown["counts"] == counts
    (function,) = shown["functions"]
    assert (shown["invocations"], shown["cold_starts"]) == (function["invocations"], function["cold_starts"]) == (3, 1)
    assert (function["function"], function["memory_mb"], function["errors"]) == ("own", 1769, 1)
    assert shown["reports"]["endings"] == {"ValueError": 1, "success": 2}
    assert shown["billed_seconds"] * 1000 == sum(service.billed_ms())
    assert function["reports"]["init_ms"]["min"] > 0
    assert shown["orchestration_seconds"] >= 0
    assert shown["host_imports"] == {"own": ["yaml"]}
    # No one has used a database.
    check_bill(shown["cost"], service.billed_ms(), counts, None)
    bill = slslab(service.state, "bill", "up", "--json").document
    assert bill["host"] == shown["cost"]
    check_predicted(shown, bill)

    # What was done since is shown, too.
    with redis.Redis.from_url(service.variables[TENSORS]) as database:
        database.set("key", 1)
        assert database.get("key") == b"1"
        database.delete("key")
    service.s3.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": str(number)} for number in range(3)]})
    service.s3.delete_bucket(Bucket="bucket")
    counts |= {"object.delete": 2, "tensor.set": 1, "tensor.get": 1, "tensor.delete": 1}
    # An answer comes before what is recorded of it.
    deadline = time.monotonic() + MOMENT_S
    while service.document()["counts"] != counts and time.monotonic() < deadline:
        time.sleep(0.1)
    for _ in range(2):
        shown = service.document()
        assert shown["counts"] == counts
        check_bill(shown["cost"], service.billed_ms(), counts, Decimal(60))

    table = slslab(service.state, "show", "up").out
    assert "own imported yaml from this machine, not from its package." in " ".join(table.split())
    words_of_up = ("functions since", "— running", "own", "1 ValueError, 2 success", "object.put", "Host m5.large")
    for words in (*words_of_up, "On AWS Lambda (us-east-1, modelled): ", "This host's seconds, priced".lower()):
        assert words in table
    for words in ("accuracy", "training loss", "epochs", "worker"):
        assert words not in table
    page = tmp_path / "page.html"
    slslab(service.state, "report", "up", "--out", page, "--json").document  # noqa: B018
    check_page(page.read_text())
    views = Views(Path(service.state["SLSLAB_RUNS"]), load_book("aws-us-east-1"))
    check_page(views.page(RunDirectory(Path(service.described["record"])), "/up"))
    assert "up" in views.table()

    (log,) = slslab(service.state, "logs", "up", "own", "--json").document["logs"]
    assert (log["function"], log["environment"]) == ("own", "own-0001")
    assert log["text"].count("REPORT RequestId: ") == 3
    assert slslab(service.state, "logs", service.described["record"]).out == log["text"]
    billed_ms = service.billed_ms()
    assert slslab(service.state, "down").code == 0
    gone = slslab(service.state, "logs", "up")
    assert (gone.code, gone.out) == (2, "")
    assert gone.err.startswith("Error: `slslab down` removes the logs of `slslab up`.\nHint: ")
    ended = service.document()
    assert ended["status"] == "done"
    assert {**ended, "seconds": None, "status": None} == {**shown, "seconds": None, "status": None}
    check_bill(slslab(service.state, "bill", "up", "--json").document["host"], billed_ms, counts, Decimal(60))
    narrow = slslab(service.state, "show", "up", "--kind", "interpreter", "--json").document["predicted"]
    assert narrow["kind"] == "interpreter"
    assert not any("kind of work is unknown" in note for note in narrow["notes"])
    check_report_lines(service, tmp_path)
    assert "up" in slslab(service.state, "runs").out


def check_predicted(shown: dict[str, Any], bill: dict[str, Any]) -> None:
    """What the handler's requests take on Lambda is by the profile: three puts, a get and a list, twice."""
    predicted = shown["predicted"]
    assert bill["total"] == predicted["cost"]["total"]
    assert bill["range"]["low"] < float(bill["total"]) < bill["range"]["high"]
    assert {line["item"] for line in bill["lines"]} == {line["item"] for line in shown["cost"]["lines"]}
    operations = {name: load_profile(DEFAULT_PROFILE).operation(f"object.{name}") for name in ("put", "get", "list")}
    latency_ms = {name: operation.latency_ms.value for name, operation in operations.items()}
    asked_s = 2 * (3 * latency_ms["put"] + latency_ms["get"] + latency_ms["list"]) / 1000
    assert predicted["parts"]["requests"] == pytest.approx(asked_s, rel=0.001)
    assert predicted["processor"]["form"] == "not anchored"
    assert "slslab calibrate --processor" in predicted["notes"][0]
    (function,) = shown["functions"]
    assert bill["functions"] == [function]
    puts = next(line for line in function["predicted"]["cost"]["lines"] if line["item"] == "S3 PUT requests")
    assert puts["quantity"] == "6", "three in each of two invocations"
    assert function["predicted"]["billed_seconds"] == predicted["billed_seconds"]
    assert function["predicted"]["init_ms"]["value"] > 0


def check_report_lines(service: Service, folder: Path) -> None:
    """The times of AWS's REPORT lines take the place of this machine's factors."""
    log = folder / "reports.txt"
    line = "Duration: 1500.00 ms\tBilled Duration: 1500 ms\tMemory Size: 1769 MB\tMax Memory Used: 90 MB"
    log.write_text(f"REPORT RequestId: a\t{line}\nREPORT RequestId: b\t{line}\tInit Duration: 700.00 ms\n")
    calibrated = slslab(service.state, "calibrate", "--cloudwatch", log, "--run", "up", "--json").document
    assert (calibrated["function"], calibrated["run"], calibrated["lines"]["fitted"]) == ("own", "up", 2)
    assert calibrated["path"] == str(Path(service.described["record"]) / "own.aws.toml")
    shown = service.document()
    (function,) = shown["functions"]
    # The invocation that failed here is none of theirs.
    assert calibrated["duration_ms"]["after"] == pytest.approx(1500, rel=0.01)
    assert function["predicted"]["init_ms"]["value"] == pytest.approx(calibrated["init_ms"]["after"], rel=0.01)
    assert shown["predicted"]["notes"][0].startswith(
        "The speed of own on Lambda is measured: REPORT lines of reports.txt"
    )
    again = slslab(service.state, "calibrate", "--cloudwatch", log, "--run", "up")
    assert again.code == 2
    assert "own.aws.toml exists already." in again.err


def check_page(page: str) -> None:
    for words in ("Functions on slslab up", "card-functions", "object.put", "S3 PUT requests", "ValueError"):
        assert words in page
    for words in ("None", "seed", "minibatch", "training loss", "accuracy,", "? on ?"):
        assert words not in re.sub(r"<script.*?</script>|<style.*?</style>", "", page, flags=re.DOTALL), words


def test_without_a_record_the_error_tells_where_it_was_looked_for(state: dict[str, str]) -> None:
    done = slslab(state, "show", "up")
    assert done.code == 2
    assert f"`slslab up` hasn't recorded anything in {state['SLSLAB_RUNS']}." in done.err
    # What `slslab up --stack compose` keeps.
    Path(state["SLSLAB_STATE"]).mkdir()
    Path(state["SLSLAB_STATE"], "compose.json").write_text('{"command": [], "variables": {"KEY": "value"}}')
    done = slslab(state, "bill", "up")
    assert done.code == 2
    assert "A stack in containers records only runs" in done.err
    assert "Hint: use `slslab up` without --stack compose" in done.err
