"""Event source mappings: what AWS answers to their operations, and what becomes of a queue's messages."""

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from decimal import Decimal
from threading import Event
from typing import Any

import pytest
from tests.emulator.lambda_.client_answers import answer, invalid, missing
from tests.plugins.aws.edge.conftest import Endpoint

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.errors import ServiceError, throttled
from slslab.lambda_ import pool
from slslab.lambda_.references import function_arn
from slslab.run.bill import Bill
from slslab.run.records import InvocationRecord
from slslab.testing import create_function

pytestmark = pytest.mark.server

# Sends what it is given to a queue, and fails as the messages ask.
HANDLER = """
import json, os, boto3

def handler(event, context):
    bodies = [json.loads(record["body"]) for record in event["Records"]]
    boto3.client("sqs", endpoint_url=os.environ["ENDPOINT"]).send_message(
        QueueUrl=os.environ["TOLD"], MessageBody=json.dumps(event))
    if "raise" in bodies:
        raise ValueError("as asked")
    failed = [r["messageId"] for r, body in zip(event["Records"], bodies) if body == "fail"]
    return {"batchItemFailures": [{"itemIdentifier": found} for found in failed]}
"""
UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def arn(name: str) -> str:
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"


class Source:
    """A queue, a function for it, and the queue to which the function sends its events."""

    def __init__(self, endpoint: Endpoint, parts: ExitStack) -> None:
        self.sqs = parts.enter_context(closing(endpoint.client("sqs")))
        self.functions = parts.enter_context(closing(endpoint.client("lambda")))
        self._parts = parts
        self.url = self.queue("jobs", VisibilityTimeout="10")
        self.told = self.queue("told")
        variables = {"ENDPOINT": endpoint.url, "TOLD": self.told}
        create_function(self.functions, "worker", HANDLER, Timeout=10, Environment={"Variables": variables})

    def queue(self, name: str, **attributes: str) -> str:
        url = str(self.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])
        self._parts.callback(self.sqs.delete_queue, QueueUrl=url)
        return url

    def map(self, **members: Any) -> str:
        """Map the queue to the function until the test's end; returns the mapping's id."""
        given = {"EventSourceArn": arn("jobs"), "FunctionName": "worker", **members}
        found = str(self.functions.create_event_source_mapping(**given)["UUID"])
        self._parts.callback(self.functions.delete_event_source_mapping, UUID=found)
        return found

    def send(self, *bodies: Any) -> None:
        entries = [{"Id": str(number), "MessageBody": json.dumps(body)} for number, body in enumerate(bodies)]
        self.sqs.send_message_batch(QueueUrl=self.url, Entries=entries)

    def event(self) -> list[dict[str, Any]]:
        """The records of the next event that the function had. One that comes again is invisible for 10 s before."""
        found = (self.sqs.receive_message(QueueUrl=self.told, WaitTimeSeconds=20).get("Messages") for _ in range(3))
        (message,) = next(filter(None, found))
        self.sqs.delete_message(QueueUrl=self.told, ReceiptHandle=message["ReceiptHandle"])
        return list(json.loads(message["Body"])["Records"])

    def left(self, url: str = "") -> tuple[int, int]:
        """How many messages are visible and in flight."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=url or self.url, AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])

    def wait(self, left: tuple[int, int], url: str = "") -> None:
        deadline = time.monotonic() + 20
        while self.left(url) != left:
            assert time.monotonic() < deadline, self.left(url)
            time.sleep(0.02)


@pytest.fixture
def source(endpoint: Endpoint, lambda_client: Any) -> Iterator[Source]:  # noqa: ARG001
    with ExitStack() as parts:
        yield Source(endpoint, parts)


def test_the_tags_of_a_mapping(source: Source) -> None:
    functions = source.functions
    members = {"EventSourceArn": arn("jobs"), "FunctionName": "worker", "Enabled": False}
    refused = answer(functions.create_event_source_mapping, **members, Tags={str(n): "" for n in range(51)})
    assert refused == (400, ("InvalidParameterValueException", "Number of tags exceeds resource tag limit."))
    mapping = functions.create_event_source_mapping(**members, Tags={"a": "1", "b": "2"})
    resource = mapping["EventSourceMappingArn"]
    functions.tag_resource(Resource=resource, Tags={"b": "3", "c": "4"})
    functions.untag_resource(Resource=resource, TagKeys=["a", "z"])
    assert functions.list_tags(Resource=resource)["Tags"] == {"b": "3", "c": "4"}
    functions.delete_event_source_mapping(UUID=mapping["UUID"])
    assert answer(functions.list_tags, Resource=resource)[0] == 404


def test_the_life_of_a_mapping(source: Source) -> None:
    functions = source.functions
    created = functions.create_event_source_mapping(EventSourceArn=arn("jobs"), FunctionName="worker", Enabled=False)
    mapping, modified = created["UUID"], created.pop("LastModified")
    assert re.fullmatch(UUID, mapping)
    assert time.time() - modified.timestamp() < 60
    whole = {
        "UUID": mapping,
        "BatchSize": 10,
        "MaximumBatchingWindowInSeconds": 0,
        "EventSourceArn": arn("jobs"),
        "EventSourceMappingArn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:event-source-mapping:{mapping}",
        "FunctionArn": function_arn("worker"),
        "StateTransitionReason": "USER_INITIATED",
        "FunctionResponseTypes": [],
    }
    assert created.pop("ResponseMetadata")["HTTPStatusCode"] == 202
    assert created == {**whole, "State": "Creating"}
    code, found = answer(functions.get_event_source_mapping, UUID=mapping)
    assert (code, found | {"LastModified": 0}) == (200, {**whole, "State": "Disabled", "LastModified": 0})
    for members in ({}, {"EventSourceArn": arn("jobs")}, {"FunctionName": function_arn("worker")}):
        assert [each["UUID"] for each in functions.list_event_source_mappings(**members)["EventSourceMappings"]] == [
            mapping
        ]
    assert functions.list_event_source_mappings(EventSourceArn=arn("told"))["EventSourceMappings"] == []
    changes = {"BatchSize": 3, "ScalingConfig": {"MaximumConcurrency": 2}, "Enabled": True}
    code, found = answer(functions.update_event_source_mapping, UUID=mapping, **changes)
    assert (code, found["State"], found["BatchSize"], found["ScalingConfig"]) == (
        *(202, "Updating", 3),
        {"MaximumConcurrency": 2},
    )
    assert functions.get_event_source_mapping(UUID=mapping)["State"] == "Enabled"
    again = answer(functions.create_event_source_mapping, EventSourceArn=arn("jobs"), FunctionName="worker")
    assert again == (
        409,
        (
            "ResourceConflictException",
            f'An event source mapping with SQS arn (" {arn("jobs")} ") and function (" worker ") already exists. '
            f"Please update or delete the existing mapping with UUID {mapping}",
        ),
    )
    code, found = answer(functions.delete_event_source_mapping, UUID=mapping)
    assert (code, found["State"]) == (202, "Deleting")
    for call in (functions.get_event_source_mapping, functions.delete_event_source_mapping):
        assert answer(call, UUID=mapping) == missing("The resource you requested does not exist.")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"FunctionName": "absent"}, "Function does not exist"),
        ({"EventSourceArn": arn("absent")}, None),
        (
            {"EventSourceArn": f"arn:aws:kinesis:{REGION}:{ACCOUNT}:stream/s"},
            "slslab emulates event source mappings of SQS, not of kinesis.",
        ),
        (
            {"BatchSize": 11},
            "Maximum batch window in seconds must be greater than 0 if maximum batch size is greater than 10",
        ),
        (
            {"FilterCriteria": {"Filters": []}},
            "slslab does not emulate FilterCriteria of an event source mapping of SQS.",
        ),
        (
            {"EventSourceArn": arn("short")},
            "Queue visibility timeout: 2 seconds is less than Function timeout: 10 seconds",
        ),
    ],
)
def test_what_cannot_be_mapped(source: Source, members: dict[str, Any], message: str | None) -> None:
    source.queue("short", VisibilityTimeout="2")
    given = {"EventSourceArn": arn("jobs"), "FunctionName": "worker", **members}
    refused = answer(source.functions.create_event_source_mapping, **given)
    if message is None:
        assert refused[1][1].startswith(
            "Error occurred while ReceiveMessage. SQS Error Code: AWS.SimpleQueueService.NonExistentQueue. SQS Error "
        ), refused
    else:
        assert refused == invalid(message)
    assert source.functions.list_event_source_mappings()["EventSourceMappings"] == []


def test_a_batch_is_processed_and_deleted(source: Source, invocations: Sequence[InvocationRecord]) -> None:
    attributes = {
        "kind": {"DataType": "String", "StringValue": "test"},
        "key": {"DataType": "Binary", "BinaryValue": b"\0\xff"},
    }
    sent = source.sqs.send_message(QueueUrl=source.url, MessageBody='"work"', MessageAttributes=attributes)
    source.map()
    (record,) = source.event()
    assert record.pop("receiptHandle")
    assert re.fullmatch(r"\d{13}", record["attributes"].pop("SentTimestamp"))
    assert re.fullmatch(r"\d{13}", record["attributes"].pop("ApproximateFirstReceiveTimestamp"))
    assert record["attributes"].pop("SenderId")
    # measured: recorded from AWS
    assert record == {
        "messageId": sent["MessageId"],
        "body": '"work"',
        "attributes": {"ApproximateReceiveCount": "1"},
        "messageAttributes": {
            "kind": {"stringValue": "test", "stringListValues": [], "binaryListValues": [], "dataType": "String"},
            "key": {"binaryValue": "AP8=", "stringListValues": [], "binaryListValues": [], "dataType": "Binary"},
        },
        "md5OfBody": sent["MD5OfMessageBody"],
        "md5OfMessageAttributes": sent["MD5OfMessageAttributes"],
        "eventSource": "aws:sqs",
        "eventSourceARN": arn("jobs"),
        "awsRegion": REGION,
    }
    source.wait((0, 0))
    assert [each.invocation_type for each in invocations] == ["RequestResponse"]


# A message of 70 KB is two requests, when the source receives it and when the function sends its event. JSON escapes
# each quote once for the body (20 KB) and again for the event (40 KB). The request has 80 KB, which don't count.
@pytest.mark.parametrize(("sent", "requests"), [("x" * 70_000, 2), ('"' * 10_000, 1)])
def test_a_function_pays_for_its_requests_to_queues_and_for_its_event_source(
    source: Source, invocations: Sequence[InvocationRecord], bill: Callable[..., Bill], sent: str, requests: int
) -> None:
    began = time.monotonic()
    source.send(sent)
    source.map()
    assert source.event()
    source.wait((0, 0))
    assert len(invocations) == 1
    lines = {line.item: line for line in bill().lines}
    assert lines["SQS requests"].quantity == requests
    # The source also deletes it, and polls while the queue is idle.
    polls = lines["SQS requests of event sources"]
    assert 0 <= polls.quantity - (requests + 1) <= (time.monotonic() - began) / 4
    assert polls.amount == polls.quantity * Decimal("0.0000004")


def test_a_batch_is_gathered_for_its_window(source: Source) -> None:
    source.map(BatchSize=12, MaximumBatchingWindowInSeconds=20)
    source.send(*range(10))
    source.send(*range(10, 12))
    assert sorted(json.loads(record["body"]) for record in source.event()) == list(range(12))


def test_what_fails_comes_again_and_then_to_the_dead_letters(source: Source) -> None:
    letters = source.queue("letters")
    policy = json.dumps({"deadLetterTargetArn": arn("letters"), "maxReceiveCount": 2})
    source.sqs.set_queue_attributes(QueueUrl=source.url, Attributes={"RedrivePolicy": policy})
    source.map()
    source.send("raise")
    counts = [source.event()[0]["attributes"]["ApproximateReceiveCount"] for _ in range(2)]
    assert counts == ["1", "2"]
    source.wait((1, 0), letters)
    assert source.left() == (0, 0)


def test_only_the_failed_messages_of_a_batch_come_again(source: Source) -> None:
    source.send("one", "fail", "two")
    source.map(FunctionResponseTypes=["ReportBatchItemFailures"])
    first = source.event()
    assert sorted(json.loads(record["body"]) for record in first) == ["fail", "one", "two"]
    (again,) = source.event()
    assert (again["body"], again["attributes"]["ApproximateReceiveCount"]) == ('"fail"', "2")


def test_a_throttled_batch_stays_in_its_queue(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    throttles = Event()

    def throttle(reason: str, retry_after_s: int) -> ServiceError:
        throttles.set()
        return throttled(reason, retry_after_s)

    monkeypatch.setattr(pool, "throttled", throttle)
    source.functions.put_function_concurrency(FunctionName="worker", ReservedConcurrentExecutions=0)
    source.map()
    source.send("later")
    assert throttles.wait(20)
    assert sum(source.left()) == 1
    source.functions.delete_function_concurrency(FunctionName="worker")
    (record,) = source.event()
    assert int(record["attributes"]["ApproximateReceiveCount"]) > 1


def test_a_disabled_mapping_takes_no_message(source: Source) -> None:
    mapping = source.map()
    source.send("before")
    assert source.event()[0]["body"] == '"before"'
    source.wait((0, 0))
    # Its next poll is under way, or about to be.
    source.functions.update_event_source_mapping(UUID=mapping, Enabled=False)
    source.send("later")
    assert source.left() == (1, 0)
    source.functions.update_event_source_mapping(UUID=mapping, Enabled=True)
    assert source.event()[0]["body"] == '"later"'


def test_at_most_so_many_batches_at_once(source: Source, invocations: Sequence[InvocationRecord]) -> None:
    slow = "import time\ndef handler(event, context):\n    time.sleep(0.2)\n"
    create_function(source.functions, "slow", slow, Timeout=10)
    # One environment could take all batches while another one still starts.
    with ThreadPoolExecutor(2) as starting:
        list(starting.map(lambda _: source.functions.invoke(FunctionName="slow"), range(2)))
    source.map(FunctionName="slow", BatchSize=1, ScalingConfig={"MaximumConcurrency": 2})
    source.send(*range(8))
    source.wait((0, 0))
    spans = sorted((record.start_ns, record.end_ns) for record in invocations if record.function == "slow")[2:]
    assert len(spans) == 8
    at_once = [sum(start <= begin < end for start, end in spans) for begin, _ in spans]
    assert max(at_once) == 2


# What a function returns, and whether that accepts its message.
ANSWERS: tuple[tuple[Any, bool], ...] = (
    ({"batchItemFailures": [{"itemIdentifier": ""}]}, False),
    ({"batchItemFailures": [{"itemIdentifier": None}]}, False),
    ({"batchItemFailures": [{"bad": 1}]}, False),
    ("text", False),
    (None, True),
    ({}, True),
    ({"batchItemFailures": []}, True),
    ({"batchItemFailures": None}, True),
)


def test_what_an_answer_says_of_failures(source: Source, invocations: Sequence[InvocationRecord]) -> None:
    """A message that an answer does not accept stays in flight until its time-out."""
    source.sqs.set_queue_attributes(QueueUrl=source.url, Attributes={"VisibilityTimeout": "60"})
    answers = "import json\ndef handler(event, context):\n    return json.loads(event['Records'][0]['body'])\n"
    create_function(source.functions, "answers", answers, Timeout=10)
    source.map(FunctionName="answers", BatchSize=1, FunctionResponseTypes=["ReportBatchItemFailures"])
    left = 0
    for done, (returned, accepted) in enumerate(ANSWERS, 1):
        source.send(returned)
        deadline = time.monotonic() + 20
        while len([record for record in invocations if record.function == "answers"]) < done:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        left += not accepted
        source.wait((0, left))
