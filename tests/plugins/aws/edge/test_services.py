"""moto's services behind the endpoint: what hangs together on AWS does so here, and nothing has a shadow."""

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from tests.emulator.lambda_.client_answers import answer
from tests.plugins.aws.edge.conftest import Endpoint

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.clients import signed_headers
from slslab.lambda_.references import function_arn
from slslab.testing import ROLE, create_function

pytestmark = pytest.mark.server

PATTERN = json.dumps({"source": ["tests"]})
TRUST = json.dumps({"Version": "2012-10-17", "Statement": []})
# Keeps what it is given where the test can read it.
TELL = """
import json, os, boto3

def handler(event, context):
    boto3.client("sqs", endpoint_url=os.environ["ENDPOINT"]).send_message(
        QueueUrl=os.environ["QUEUE"], MessageBody=json.dumps(event))
"""


class Services:
    """Clients of all services at the endpoint, a queue, and a function that puts its events there."""

    def __init__(self, endpoint: Endpoint, parts: ExitStack) -> None:
        for name in ("sqs", "sns", "events", "logs", "dynamodb", "iam", "cloudformation"):
            setattr(self, name, parts.enter_context(closing(endpoint.client(name))))
        self.url = self.sqs.create_queue(QueueName="told")["QueueUrl"]
        self.queue_arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:told"
        parts.callback(self.sqs.delete_queue, QueueUrl=self.url)

    def __getattr__(self, name: str) -> Any:  # for type checkers
        raise AttributeError(name)

    def receive(self) -> Any:
        """The next message, as JSON."""
        found = self.sqs.receive_message(QueueUrl=self.url, WaitTimeSeconds=20)["Messages"]
        assert len(found) == 1
        self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=found[0]["ReceiptHandle"])
        return json.loads(found[0]["Body"])


@pytest.fixture
def services(endpoint: Endpoint) -> Iterator[Services]:
    with ExitStack() as parts:
        yield Services(endpoint, parts)


@pytest.fixture
def teller(endpoint: Endpoint, services: Services, lambda_client: Any) -> str:
    variables = {"ENDPOINT": endpoint.url, "QUEUE": services.url}
    create_function(lambda_client, "teller", TELL, Environment={"Variables": variables})
    return function_arn("teller")


@pytest.fixture
def topic(services: Services) -> Iterator[str]:
    arn = services.sns.create_topic(Name="topic")["TopicArn"]
    yield arn
    services.sns.delete_topic(TopicArn=arn)


def test_a_topic_calls_the_emulated_function(services: Services, teller: str, topic: str) -> None:
    subscription = services.sns.subscribe(TopicArn=topic, Protocol="lambda", Endpoint=teller)["SubscriptionArn"]
    attributes = {"kind": {"DataType": "String", "StringValue": "test"}}
    published = services.sns.publish(TopicArn=topic, Message="hello", Subject="greeting", MessageAttributes=attributes)
    (record,) = services.receive()["Records"]
    assert {name: record[name] for name in ("EventSource", "EventVersion", "EventSubscriptionArn")} == {
        "EventSource": "aws:sns",
        "EventVersion": "1.0",
        "EventSubscriptionArn": subscription,
    }
    told = record["Sns"]
    assert (told["Message"], told["Subject"], told["TopicArn"]) == ("hello", "greeting", topic)
    assert (told["Type"], told["MessageId"]) == ("Notification", published["MessageId"])
    assert told["MessageAttributes"] == {"kind": {"Type": "String", "Value": "test"}}
    # documented: with-sns.html
    assert {"SigningCertUrl", "UnsubscribeUrl", "Signature", "SignatureVersion", "Timestamp"} <= told.keys()


def test_a_rule_calls_the_emulated_function_and_a_queue(services: Services, teller: str) -> None:
    services.events.put_rule(Name="rule", EventPattern=PATTERN)
    targets = [{"Id": "function", "Arn": teller}, {"Id": "queue", "Arn": services.queue_arn}]
    gone = {"Id": "gone", "Arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:absent"}
    services.events.put_targets(Rule="rule", Targets=[gone, *targets])
    services.events.put_rule(Name="scheduled", ScheduleExpression="rate(1 day)")
    services.events.put_targets(Rule="scheduled", Targets=targets)
    entry = {"Source": "tests", "DetailType": "kind", "Detail": '{"a": 1}'}
    services.events.put_events(Entries=[entry, {**entry, "Source": "others"}])
    received = sorted((services.receive() for _ in targets), key=lambda event: len(event))
    assert len(received) == len(targets), "the target that is gone keeps the event from no other"
    for event in received:
        assert (event["source"], event["detail-type"], event["detail"]) == ("tests", "kind", {"a": 1})
        # documented: eb-events-structure.html
        assert event.keys() == {
            *("version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail")
        }
        assert time.strptime(event["time"], "%Y-%m-%dT%H:%M:%SZ")
    assert services.sqs.receive_message(QueueUrl=services.url).get("Messages") is None, "no other event was sent on"
    services.events.disable_rule(Name="rule")
    services.events.put_events(Entries=[entry])
    assert services.sqs.receive_message(QueueUrl=services.url).get("Messages") is None, "a disabled rule sends nothing"
    for rule in ("rule", "scheduled"):
        services.events.remove_targets(Rule=rule, Ids=["gone", "function", "queue"])
        services.events.delete_rule(Name=rule)


def test_a_rule_writes_to_a_log_group(services: Services) -> None:
    arn = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/aws/events/all:*"
    services.logs.create_log_group(logGroupName="/aws/events/all")
    services.events.put_rule(Name="logging", EventPattern=PATTERN)
    services.events.put_targets(Rule="logging", Targets=[{"Id": "log", "Arn": arn, "InputPath": "$.detail"}])
    services.events.put_events(Entries=[{"Source": "tests", "DetailType": "kind", "Detail": '{"a": 1}'}])
    (event,) = services.logs.filter_log_events(logGroupName="/aws/events/all")["events"]
    assert json.loads(event["message"]) == {"a": 1}
    services.events.remove_targets(Rule="logging", Ids=["log"])
    services.events.delete_rule(Name="logging")


@pytest.mark.exhaustive
def test_a_schedule_calls_the_emulated_function(services: Services, teller: str) -> None:
    """Once a minute, which is the shortest rate there is."""
    services.events.put_rule(Name="clock", ScheduleExpression="cron(* * * * ? *)")
    services.events.put_targets(Rule="clock", Targets=[{"Id": "function", "Arn": teller}])
    began = time.time()
    while not (found := services.sqs.receive_message(QueueUrl=services.url, WaitTimeSeconds=20).get("Messages")):
        assert time.time() - began < 90
    event = json.loads(found[0]["Body"])
    assert (event["detail-type"], event["source"], event["time"][16:]) == ("Scheduled Event", "aws.events", ":00Z")
    services.events.remove_targets(Rule="clock", Ids=["function"])
    services.events.delete_rule(Name="clock")


@pytest.mark.parametrize(
    ("service", "operation", "members", "words"),
    [
        ("cloudformation", "create_stack", {"StackName": "s", "TemplateBody": "{}"}, "slslab deploy template.yaml"),
        (
            "events",
            "put_targets",
            {"Rule": "r", "Targets": [{"Id": "1", "Arn": f"arn:aws:kinesis:{REGION}:{ACCOUNT}:stream/s"}]},
            "must be one of lambda, states, sqs, logs",
        ),
        (
            "events",
            "put_targets",
            {
                "Rule": "r",
                "Targets": [
                    {"Id": "1", "Arn": function_arn("f"), "InputTransformer": {"InputTemplate": "x"}},
                ],
            },
            "InputTransformer of a target",
        ),
        ("events", "create_archive", {"ArchiveName": "a", "EventSourceArn": "b"}, "no events are kept"),
        ("events", "put_rule", {"Name": "r", "ScheduleExpression": "rate(1 minutes)"}, "is not a rate, such as"),
        ("events", "put_rule", {"Name": "r", "EventPattern": '{"a": [{"like": "b"}]}'}, "'like' was unexpected"),
        (
            "logs",
            "put_subscription_filter",
            {"logGroupName": "g", "filterName": "f", "filterPattern": "", "destinationArn": function_arn("none")},
            "nothing is delivered",
        ),
        (
            "logs",
            "create_export_task",
            {"logGroupName": "g", "fromTime": 0, "to": 1, "destination": "b"},
            "moto's own S3",
        ),
        ("dynamodb", "export_table_to_point_in_time", {"TableArn": "a", "S3Bucket": "b"}, "moto's own S3"),
        ("sns", "publish", {"PhoneNumber": "+15555550100", "Message": "m"}, "no message leaves this host"),
    ],
)
def test_what_would_be_a_shadow_is_refused_by_name(
    services: Services, service: str, operation: str, members: dict[str, Any], words: str
) -> None:
    code, (_, message) = answer(getattr(getattr(services, service), operation), **members)
    assert code in (400, 501)
    assert words in message


def test_a_message_to_a_function_that_is_gone_is_published_all_the_same(
    services: Services, teller: str, topic: str, lambda_client: Any
) -> None:
    for protocol, endpoint in (("lambda", teller), ("sqs", services.queue_arn)):
        services.sns.subscribe(TopicArn=topic, Protocol=protocol, Endpoint=endpoint)
    lambda_client.delete_function(FunctionName="teller")
    published = services.sns.publish(TopicArn=topic, Message="hello")
    assert services.receive()["MessageId"] == published["MessageId"]


def test_no_topic_sends_to_a_function_that_is_not_there_or_away(services: Services, topic: str) -> None:
    absent = answer(services.sns.subscribe, TopicArn=topic, Protocol="lambda", Endpoint=function_arn("absent"))
    assert absent[1][0] == "InvalidParameter"
    mail = answer(services.sns.subscribe, TopicArn=topic, Protocol="email", Endpoint="a@example.com")
    assert "messages go to sqs and lambda here, not to email" in mail[1][1]


def test_motos_own_lambda_does_not_answer_even_at_the_socket(endpoint: Endpoint) -> None:
    async def ask(service: str) -> tuple[int, bool]:
        scope = f"AWS4-HMAC-SHA256 Credential=key/20260101/{REGION}/{service}/aws4_request, SignedHeaders=host"
        connector = aiohttp.UnixConnector(endpoint.edge.services.path)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get("http://services/2015-03-31/functions", headers={"Authorization": scope}) as answered,
        ):
            return answered.status, "There is no" in await answered.text()

    for service in ("lambda", "states", "s3", "cloudformation", "apigateway"):
        assert asyncio.run(ask(service)) == (501, True)


@pytest.mark.parametrize(
    ("service", "target", "body", "status", "error"),
    [
        ("sqs", "AmazonSQS.NoSuch", b"{}", 400, "UnknownOperationException"),
        ("events", "AWSEvents.__init__", b"{}", 400, "UnknownOperationException"),
        ("sqs", "AmazonSQS.ListMessageMoveTasks", b"{}", 400, "NotImplemented"),
        ("sqs", "AmazonSQS.ListQueues", b"[1]", 400, "SerializationException"),
        ("sqs", "AmazonSQS.ListQueues", b"[" * 100_000, 400, "SerializationException"),
        ("sns", "", b"Action=NoSuch&Version=2010-03-31", 400, "InvalidAction"),
        ("iam", "", b"", 400, "InvalidAction"),
        ("iam", "", b"Action=SimulateCustomPolicy&Version=2010-05-08", 400, "NotImplemented"),
        ("dynamodb", "DynamoDB_20120810.GetItem", b"{}", 500, "InternalFailure"),
    ],
)
def test_what_is_no_operation_or_has_none_is_refused_in_one_sentence(
    endpoint: Endpoint, service: str, target: str, body: bytes, status: int, error: str
) -> None:
    url = endpoint.url
    headers = (
        {"Content-Type": "application/x-amz-json-1.0"}
        if target
        else {"Content-Type": "application/x-www-form-urlencoded"}
    )
    headers |= {"X-Amz-Target": target} if target else {}
    signed = signed_headers(endpoint.emulator.keys.owner, "POST", url, body, headers, service)
    with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        connection.request("POST", "/", body, signed)
        answered = connection.getresponse()
        text = answered.read().decode()
    assert (answered.status, error in text, "Traceback" in text) == (status, True, False)


def test_a_receiver_is_woken_by_the_message(services: Services) -> None:
    received: list[Any] = []
    waiting = threading.Thread(target=lambda: received.append(services.receive()))
    waiting.start()
    # Others are served while it waits.
    assert services.sqs.get_queue_attributes(QueueUrl=services.url, AttributeNames=["All"])["Attributes"]
    services.sqs.send_message(QueueUrl=services.url, MessageBody='"hello"')
    waiting.join(15)
    assert received == ["hello"]


def test_a_message_that_is_not_deleted_comes_again_and_then_to_the_dead_letters(services: Services) -> None:
    letters = services.sqs.create_queue(QueueName="letters")["QueueUrl"]
    policy = {"deadLetterTargetArn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:letters", "maxReceiveCount": 2}
    services.sqs.set_queue_attributes(
        QueueUrl=services.url, Attributes={"RedrivePolicy": json.dumps(policy), "VisibilityTimeout": "1"}
    )
    services.sqs.send_message(QueueUrl=services.url, MessageBody="again")
    for _ in range(2):
        found = services.sqs.receive_message(QueueUrl=services.url, WaitTimeSeconds=10)["Messages"]
        assert found[0]["Body"] == "again"
    services.sqs.receive_message(QueueUrl=services.url, WaitTimeSeconds=2)
    assert services.sqs.receive_message(QueueUrl=letters, WaitTimeSeconds=5)["Messages"][0]["Body"] == "again"
    services.sqs.delete_queue(QueueUrl=letters)


def test_tables_and_roles_keep_what_they_are_given(services: Services) -> None:
    services.dynamodb.create_table(
        TableName="table",
        KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    item = {"key": {"S": "k"}, "value": {"B": b"\x00\xff"}}
    services.dynamodb.put_item(TableName="table", Item=item)
    assert services.dynamodb.get_item(TableName="table", Key={"key": {"S": "k"}})["Item"] == item
    services.dynamodb.delete_table(TableName="table")
    arn = services.iam.create_role(RoleName="worker", AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]
    assert arn == ROLE.replace("test", "worker")
    services.iam.delete_role(RoleName="worker")


def test_a_topic_gets_the_records_and_the_dead_letters_of_events(
    services: Services, topic: str, endpoint: Endpoint, lambda_client: Any
) -> None:
    services.sns.subscribe(
        TopicArn=topic, Protocol="sqs", Endpoint=services.queue_arn, Attributes={"RawMessageDelivery": "true"}
    )
    failing = "def handler(event, context):\n    raise ValueError('as asked')\n"
    create_function(lambda_client, "failing", failing, DeadLetterConfig={"TargetArn": topic})
    lambda_client.put_function_event_invoke_config(
        FunctionName="failing", MaximumRetryAttempts=0, DestinationConfig={"OnFailure": {"Destination": topic}}
    )
    with closing(endpoint.client("lambda")) as here:
        here.invoke(FunctionName="failing", InvocationType="Event", Payload=b'{"n": 1}')
    letter, record = sorted((services.receive() for _ in range(2)), key=len)
    assert letter == {"n": 1}
    assert record["requestContext"]["condition"] == "RetriesExhausted"
    assert record["responsePayload"]["errorMessage"] == "as asked"
