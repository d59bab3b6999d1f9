"""All services behind one address: each answers its own clients, streams, and refuses whom it does not know."""

import http.client
import json
import os
import socket
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import localstack_client.session
import psutil
import pytest
from botocore.exceptions import ClientError
from tests.emulator.lambda_.client_answers import answer
from tests.plugins.aws.edge.conftest import Endpoint

from slslab.aws.arns import REGION
from slslab.aws.clients import HTTP, signed_headers
from slslab.aws.keys import Pair
from slslab.errors import HostError
from slslab.lambda_.emulator import Emulator
from slslab.stack.object_store import EmbeddedObjectStore
from slslab.testing import ROLE, create_function
from slslab_aws.edge.application import service_of
from slslab_aws.servers import Edge

pytestmark = pytest.mark.server

ECHO = "def handler(event, context):\n    return event\n"
MACHINE = {
    "QueryLanguage": "JSONata",
    "StartAt": "Sum",
    "States": {"Sum": {"Type": "Pass", "Output": "{% $sum($states.input.terms) %}", "End": True}},
}
MB = 1_000_000


@pytest.fixture
def bucket(endpoint: Endpoint) -> Iterator[str]:
    with closing(endpoint.client("s3")) as s3:
        s3.create_bucket(Bucket="through")
        yield "through"
        for found in s3.list_objects_v2(Bucket="through").get("Contents", []):
            s3.delete_object(Bucket="through", Key=found["Key"])
        s3.delete_bucket(Bucket="through")


def connection(endpoint: Endpoint) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(endpoint.url).netloc)


def test_a_function_made_here_is_the_one_of_the_direct_port(endpoint: Endpoint, lambda_client: Any) -> None:
    with closing(endpoint.client("lambda")) as here:
        create_function(here, "echo", ECHO)
        assert json.load(here.invoke(FunctionName="echo", Payload=b'{"a": 1}')["Payload"]) == {"a": 1}
        direct = lambda_client.get_function(FunctionName="echo")["Configuration"]
        assert here.get_function(FunctionName="echo")["Configuration"] == direct
        code = here.get_function(FunctionName="echo")["Code"]["Location"]
    assert code.startswith(endpoint.url), "the archive is at the address that was asked"
    assert HTTP.open(code).read()[:2] == b"PK"


def test_a_state_machine_made_here_is_the_one_of_the_direct_port(endpoint: Endpoint) -> None:
    with closing(endpoint.client("stepfunctions")) as here:
        arn = here.create_state_machine(name="sum", definition=json.dumps(MACHINE), roleArn=ROLE)["stateMachineArn"]
        with closing(endpoint.emulator.client("stepfunctions")) as direct:
            assert direct.describe_state_machine(stateMachineArn=arn)["name"] == "sum"
        run = here.start_execution(stateMachineArn=arn, input='{"terms": [1, 2, 3]}')["executionArn"]
        deadline = time.monotonic() + 20
        while (found := here.describe_execution(executionArn=run))["status"] == "RUNNING":
            assert time.monotonic() < deadline
        assert found["output"] == "6"
        here.delete_state_machine(stateMachineArn=arn)


@pytest.mark.parametrize("size", [0, 1, 300_000, 13 * MB])
def test_an_object_goes_through_unchanged(endpoint: Endpoint, bucket: str, size: int) -> None:
    body, key = os.urandom(size), "a key/with spaces+plus%percent/ümlaut~"
    with closing(endpoint.client("s3")) as here, closing(endpoint.emulator.client("s3")) as direct:
        here.put_object(Bucket=bucket, Key=key, Body=body, Metadata={"name": "value"})
        found = here.get_object(Bucket=bucket, Key=key)
        assert found["Body"].read() == body
        assert (found["ContentLength"], found["Metadata"]) == (size, {"name": "value"})
        assert direct.get_object(Bucket=bucket, Key=key)["Body"].read() == body
        assert here.head_object(Bucket=bucket, Key=key)["ContentLength"] == size
        if size:
            part = here.get_object(Bucket=bucket, Key=key, Range="bytes=0-0")
            assert (part["Body"].read(), part["ContentRange"]) == (body[:1], f"bytes 0-0/{size}")
        presigned = here.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": key})
        assert HTTP.open(presigned).read() == body
        assert here.delete_object(Bucket=bucket, Key=key)["ResponseMetadata"]["HTTPStatusCode"] == 204


def test_a_large_object_passes_in_pieces(endpoint: Endpoint, bucket: str, tmp_path: Path) -> None:
    size = 150 * MB
    with (tmp_path / "large").open("wb") as file:
        file.truncate(size)
    with closing(endpoint.client("s3")) as here:
        here.head_bucket(Bucket=bucket)  # the process has started
        before = peak_bytes(endpoint)
        with (tmp_path / "large").open("rb") as file:
            here.put_object(Bucket=bucket, Key="large", Body=file)
        read = sum(len(piece) for piece in here.get_object(Bucket=bucket, Key="large")["Body"].iter_chunks(MB))
    assert read == size
    assert peak_bytes(endpoint) - before < 40 * MB


def peak_bytes(endpoint: Endpoint) -> int:
    assert endpoint.edge.pid is not None
    status = Path(f"/proc/{endpoint.edge.pid}/status").read_text()
    return 1024 * int(dict(line.split(":", 1) for line in status.splitlines())["VmHWM"].split()[0])


def test_a_client_that_goes_away_ends_its_request_behind_it(endpoint: Endpoint, bucket: str) -> None:
    with closing(endpoint.client("s3")) as here:
        here.put_object(Bucket=bucket, Key="large", Body=bytes(100 * MB))
        here.get_object(Bucket=bucket, Key="large")["Body"].close()
    sockets = psutil.Process(endpoint.edge.pid).net_connections
    behind = urlsplit(endpoint.emulator.endpoints["s3"]).port

    def reading() -> int:
        return sum(bool(found.raddr) and found.raddr[1] == behind for found in sockets("tcp"))

    deadline = time.monotonic() + 10
    while reading() > 1:  # one may wait for the next request
        assert time.monotonic() < deadline, "the rest of the object is still being read"
        time.sleep(0.02)


def test_an_upload_whose_client_goes_away_leaves_no_object(endpoint: Endpoint, bucket: str) -> None:
    url = f"{endpoint.url}/{bucket}/half"
    headers = signed_headers(endpoint.emulator.keys.owner, "PUT", url, headers={"Content-Length": str(10 * MB)})
    with closing(connection(endpoint)) as half:
        half.putrequest("PUT", f"/{bucket}/half", skip_accept_encoding=True)
        for name, value in (headers | {"Content-Length": str(10 * MB)}).items():
            if name.lower() != "host":
                half.putheader(name, value)
        half.endheaders()
        half.send(bytes(MB))
    with closing(endpoint.client("s3")) as here:
        assert here.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


@pytest.mark.usefixtures("lambda_client")
def test_a_function_url_is_called_through_it(endpoint: Endpoint) -> None:
    with closing(endpoint.client("lambda")) as here:
        create_function(here, "open", "def handler(event, context):\n    return event['rawPath']\n")
        url = here.create_function_url_config(FunctionName="open", AuthType="NONE")["FunctionUrl"]
        for action, condition in (
            ("lambda:InvokeFunctionUrl", {"FunctionUrlAuthType": "NONE"}),
            ("lambda:InvokeFunction", {"InvokedViaFunctionUrl": True}),
        ):
            here.add_permission(FunctionName="open", StatementId=action[7:], Action=action, Principal="*", **condition)
    assert url.startswith(endpoint.url)
    assert HTTP.open(f"{url}some/path").read() == b"/some/path"


def test_who_asks_is_told(endpoint: Endpoint) -> None:
    with closing(endpoint.client("sts")) as sts:
        found = sts.get_caller_identity()
        assert (found["Account"], found["Arn"]) == ("000000000000", "arn:aws:iam::000000000000:root")
        code, (kind, message) = answer(sts.assume_role, RoleArn=ROLE, RoleSessionName="session")
        assert (code, kind) == (400, "InvalidAction")
        assert "sts:AssumeRole" in message
    with closing(endpoint.client("sts", endpoint.emulator.keys.function("trainer"))) as sts:
        assert sts.get_caller_identity()["Arn"] == "arn:aws:sts::000000000000:assumed-role/function/trainer"
        assert answer(sts.decode_authorization_message, EncodedMessage="a" * MB)[0] == 413


@pytest.mark.parametrize(
    ("header", "query", "service"),
    [
        (b"AWS4-HMAC-SHA256 Credential=a/20260101/r/sqs/aws4_request, SignedHeaders=host", b"", "sqs"),
        (b"", b"a=b&X-Amz-Credential=a%2F20260101%2Fr%2Fsqs%2Faws4_request&c=d", "sqs"),
        (b"Credential=" * 40_000, b"", "s3"),
        (b"", b"X-Amz-Credential=a%2F20260101%2F" * 2_000, "s3"),
    ],
    ids=["header", "query", "a long header", "a long query"],
)
def test_the_service_of_a_request_is_soon_found(header: bytes, query: bytes, service: str) -> None:
    scope = {"headers": [(b"authorization", header)] if header else [], "query_string": query, "path": "/"}
    began = time.process_time()
    assert service_of(scope) == service
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("service", "call"),
    [
        ("lambda", lambda client: client.list_functions()),
        ("s3", lambda client: client.list_buckets()),
        ("stepfunctions", lambda client: client.list_state_machines()),
        ("sqs", lambda client: client.list_queues()),
        ("dynamodb", lambda client: client.list_tables()),
        ("iam", lambda client: client.list_roles()),
        ("sts", lambda client: client.get_caller_identity()),
    ],
)
def test_no_service_answers_strange_keys(endpoint: Endpoint, service: str, call: Callable[[Any], Any]) -> None:
    owner = endpoint.emulator.keys.owner
    for pair in (Pair("AKIASTRANGER", "secret"), Pair(owner.key_id, "wrong")):
        with closing(endpoint.client(service, pair)) as client, pytest.raises(ClientError) as refused:
            call(client)
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 403)
        assert refused.value.response["Error"]["Code"] in {
            *("UnrecognizedClientException", "InvalidSignatureException", "InvalidAccessKeyId"),
            "SignatureDoesNotMatch",
        }


def test_a_presigned_request_is_for_s3(endpoint: Endpoint) -> None:
    owner, request = endpoint.emulator.keys.owner, botocore.awsrequest.AWSRequest("GET", f"{endpoint.url}/")
    botocore.auth.SigV4QueryAuth(botocore.credentials.Credentials(owner.key_id, owner.secret), "sqs", REGION).add_auth(
        request
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        HTTP.open(str(request.url))
    with refused.value:
        assert (refused.value.code, b"signed in their headers" in refused.value.read()) == (400, True)


def test_a_function_may_use_queues_and_not_make_roles(endpoint: Endpoint) -> None:
    pair = endpoint.emulator.keys.function("trainer")
    with closing(endpoint.client("sqs", pair)) as sqs, closing(endpoint.client("iam", pair)) as iam:
        assert sqs.list_queues()["ResponseMetadata"]["HTTPStatusCode"] == 200
        code, (kind, message) = answer(iam.list_roles)
    assert (code, kind) == (403, "AccessDeniedException")
    assert "assumed-role/function/trainer is not authorized to perform: iam:*" in message


@pytest.mark.parametrize(
    ("service", "call", "words"),
    [
        ("cloudformation", lambda client: client.list_stacks(), "slslab deploy template.yaml"),
        ("ec2", lambda client: client.describe_instances(), "It has lambda, s3, states and dynamodb, events"),
        ("kinesis", lambda client: client.list_streams(), "slslab does not emulate kinesis"),
        ("apigateway", lambda client: client.get_rest_apis(), "slslab does not emulate apigateway"),
    ],
)
def test_other_services_are_refused_by_name(
    endpoint: Endpoint, service: str, call: Callable[[Any], Any], words: str
) -> None:
    with closing(endpoint.client(service)) as client:
        code, (kind, message) = answer(lambda: call(client))
    assert (code, kind) == (501, "UnknownOperationException")
    assert words in message


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"Host": "evil.example"}, "This server is not called 'evil.example'"),
        ({"Origin": "http://evil.example"}, "another web site's page"),
        ({"Sec-Fetch-Site": "cross-site"}, "another web site's page"),
    ],
)
def test_no_web_page_of_others_reaches_a_service(endpoint: Endpoint, headers: dict[str, str], words: str) -> None:
    with closing(connection(endpoint)) as page:
        page.request("GET", "/", headers=headers)
        answered = page.getresponse()
        assert (answered.status, words in answered.read().decode()) == (403, True)


def test_a_port_that_is_taken_is_told_with_its_holder(emulator: Emulator, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(HostError, match=rf"The port {port} is taken by .* \(process {os.getpid()}\)") as error,
            Edge(port, tmp_path, emulator.endpoints, emulator.keys, emulator.mark),
        ):
            pass
    assert "--edge-port" in str(error.value.hint)


def test_services_that_have_ended_are_named(
    emulator: Emulator, object_store: EmbeddedObjectStore, tmp_path: Path
) -> None:
    endpoints = {"lambda": emulator.endpoint, "s3": object_store.endpoint}
    with (
        Edge(0, tmp_path, endpoints, emulator.keys, emulator.mark) as edge,
        closing(Endpoint(edge, emulator).client("sqs")) as sqs,
    ):
        services = edge.services
        assert sqs.list_queues()["ResponseMetadata"]["HTTPStatusCode"] == 200
        assert services.pid is not None
        process = psutil.Process(services.pid)
        process.kill()
        process.wait()
        code, (kind, message) = answer(sqs.list_queues)
        assert (code, kind) == (503, "ServiceUnavailable")
        assert "The emulated sqs does not answer" in message
        pids = [services.pid, edge.pid]
    assert not any(psutil.pid_exists(pid) for pid in pids if pid is not None)
    assert list(tmp_path.iterdir()) == []


def test_localstacks_client_finds_all_services(
    endpoint: Endpoint, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    owner = endpoint.emulator.keys.owner
    session = localstack_client.session.Session(
        aws_access_key_id=owner.key_id,
        aws_secret_access_key=owner.secret,
        localstack_host=f"localhost:{urlsplit(endpoint.url).port}",
    )
    with closing(session.client("s3")) as s3, closing(session.client("sqs")) as sqs:
        s3.put_object(Bucket=bucket, Key="key", Body=b"body")
        assert s3.get_object(Bucket=bucket, Key="key")["Body"].read() == b"body"
        url = sqs.create_queue(QueueName="theirs")["QueueUrl"]
        assert sqs.list_queues()["QueueUrls"] == [url]
        sqs.delete_queue(QueueUrl=url)
    with closing(session.client("lambda")) as functions:
        assert functions.list_functions()["Functions"] == []
