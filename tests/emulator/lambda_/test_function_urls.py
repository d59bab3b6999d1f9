"""Function URLs: their configuration, who may call them, and what becomes of requests and answers."""

import base64
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.emulator.lambda_.client_answers import answer, missing
from tests.emulator.lambda_.urls import ECHO, RETURNS, ask, permit, public

from slslab.aws.clients import aws_client, signed_headers
from slslab.aws.keys import Pair
from slslab.lambda_.emulator import Emulator

pytestmark = pytest.mark.server

Deploy = Callable[..., str]
Ask = Callable[..., tuple[int, list[tuple[str, str]], bytes]]
FUNCTION = "arn:aws:lambda:us-east-1:000000000000:function"
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z")
FORBIDDEN = {
    "Message": "Forbidden. For troubleshooting Function URL authorization issues, see: "
    "https://docs.aws.amazon.com/lambda/latest/dg/urls-auth.html"
}
NO_FUNCTION, NO_RESOURCE = missing("Function does not exist"), missing("The resource you requested does not exist.")


def test_a_configuration_is_answered_as_aws_answers_it(lambda_client: Any, deploy: Deploy, emulator: Emulator) -> None:
    name = deploy(ECHO, FunctionName="configured")
    status, created = answer(lambda_client.create_function_url_config, FunctionName=name, AuthType="NONE")
    url = created["FunctionUrl"]
    assert re.fullmatch(rf"{emulator.endpoint}/lambda-url/[a-z0-9]{{32}}/", url)
    assert STAMP.fullmatch(created["CreationTime"])
    plain = {"FunctionUrl": url, "FunctionArn": f"{FUNCTION}:{name}", "AuthType": "NONE"}
    plain["CreationTime"] = created["CreationTime"]
    assert (status, created) == (201, plain)
    status, got = answer(lambda_client.get_function_url_config, FunctionName=name)
    assert STAMP.fullmatch(got["LastModifiedTime"])
    whole = plain | {"LastModifiedTime": got["LastModifiedTime"], "InvokeMode": "BUFFERED"}
    assert (status, got) == (200, whole)
    assert lambda_client.list_function_url_configs(FunctionName=name)["FunctionUrlConfigs"] == [got]
    cors = {"AllowOrigins": ["https://a.example"], "MaxAge": 5}
    change = {"FunctionName": name, "Cors": cors, "AuthType": "AWS_IAM"}
    status, updated = answer(lambda_client.update_function_url_config, **change)
    assert STAMP.fullmatch(updated.pop("LastModifiedTime"))
    assert (status, updated) == (200, plain | {"Cors": cors, "AuthType": "AWS_IAM"})
    change = {"FunctionName": name, "Cors": {}, "InvokeMode": "RESPONSE_STREAM"}
    status, updated = answer(lambda_client.update_function_url_config, **change)
    del updated["LastModifiedTime"]
    assert (status, updated) == (200, plain | {"AuthType": "AWS_IAM", "InvokeMode": "RESPONSE_STREAM"})
    assert answer(lambda_client.create_function_url_config, FunctionName=name, AuthType="NONE") == (
        409,
        (
            "ResourceConflictException",
            f"Failed to create function url config for [functionArn = {FUNCTION}:{name}]. Error message:  "
            "FunctionUrlConfig exists for this Lambda function",
        ),
    )
    assert answer(lambda_client.delete_function_url_config, FunctionName=name) == (204, {})
    assert answer(lambda_client.delete_function_url_config, FunctionName=name) == NO_RESOURCE
    assert lambda_client.list_function_url_configs(FunctionName=name)["FunctionUrlConfigs"] == []
    again = lambda_client.create_function_url_config(FunctionName=name, AuthType="NONE")
    assert again["FunctionUrl"] != url


@pytest.mark.parametrize(
    ("operation", "members", "expected"),
    [
        ("create", {"FunctionName": "none", "AuthType": "NONE"}, NO_FUNCTION),
        ("create", {"FunctionName": "bare", "AuthType": "NONE", "Qualifier": "none"}, NO_FUNCTION),
        ("update", {"FunctionName": "none"}, NO_FUNCTION),
        ("update", {"FunctionName": "bare", "Qualifier": "none"}, NO_FUNCTION),
        ("update", {"FunctionName": "bare"}, NO_RESOURCE),
        ("get", {"FunctionName": "none"}, NO_RESOURCE),
        ("get", {"FunctionName": "bare"}, NO_RESOURCE),
        ("get", {"FunctionName": "bare", "Qualifier": "none"}, NO_RESOURCE),
        ("delete", {"FunctionName": "none"}, NO_RESOURCE),
        ("delete", {"FunctionName": "bare", "Qualifier": "none"}, NO_RESOURCE),
        (
            "get",
            {"FunctionName": "bare:one", "Qualifier": "two"},
            (
                400,
                (
                    "InvalidParameterValueException",
                    "The derived qualifier from the function name does not match the specified qualifier.",
                ),
            ),
        ),
        *(
            (
                "get",
                {"FunctionName": "bare", "Qualifier": qualifier},
                (
                    400,
                    (
                        "ValidationException",
                        f"1 validation error detected: Value '{qualifier}' at 'qualifier' failed to satisfy "
                        r"constraint: Member must satisfy regular expression pattern: ((?!^\d+$)^[0-9a-zA-Z-_]+$)",
                    ),
                ),
            )
            for qualifier in ("1", "$LATEST")
        ),
    ],
)
def test_what_has_no_url_has_aws_errors(
    lambda_client: Any, deploy: Deploy, operation: str, members: dict[str, Any], expected: tuple[int, Any]
) -> None:
    deploy(ECHO, FunctionName="bare")
    assert answer(getattr(lambda_client, f"{operation}_function_url_config"), **members) == expected
    assert answer(lambda_client.list_function_url_configs, FunctionName="none") == NO_FUNCTION


def test_an_event_has_the_form_of_aws(lambda_client: Any, deploy: Deploy) -> None:
    url = public(lambda_client, deploy(ECHO))
    host, url_id = urlsplit(url).netloc, urlsplit(url).path.split("/")[2]
    headers = {"X-Own": "Value", "Cookie": "a=1; b=2", "Content-Type": "application/json", "User-Agent": "agent"}
    path = "pa2%Fth/1?multi=foo&multi=%2Fbar&empty="
    status, sent, body = ask(url + path, "POST", headers, b'{"x": 1}')
    assert status == 200
    returned = json.loads(body)
    event, told = returned["event"], dict(sent)
    assert told["x-amzn-requestid"] == returned["id"] == event["requestContext"]["requestId"]
    now, epoch = event["requestContext"].pop("time"), event["requestContext"].pop("timeEpoch")
    assert re.fullmatch(r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000", now)
    assert epoch > 1_700_000_000_000
    assert event["headers"].pop("x-amzn-trace-id") == told["x-amzn-trace-id"]
    assert event == {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": "/pa2%Fth/1",
        "rawQueryString": "multi=foo&multi=%2Fbar&empty=",
        "cookies": ["a=1", "b=2"],
        "headers": {
            "content-length": "8",
            "content-type": "application/json",
            "cookie": "a=1; b=2",
            "host": host,
            "accept-encoding": "identity",
            "user-agent": "agent",
            "x-forwarded-for": "127.0.0.1",
            "x-forwarded-port": host.partition(":")[2],
            "x-forwarded-proto": "http",
            "x-own": "Value",
        },
        "queryStringParameters": {"multi": "foo,/bar", "empty": ""},
        "requestContext": {
            "accountId": "anonymous",
            "apiId": url_id,
            "domainName": host,
            "domainPrefix": url_id,
            "http": {
                "method": "POST",
                "path": "/pa2%Fth/1",
                "protocol": "HTTP/1.1",
                "sourceIp": "127.0.0.1",
                "userAgent": "agent",
            },
            "requestId": returned["id"],
            "routeKey": "$default",
            "stage": "$default",
        },
        "body": '{"x": 1}',
        "isBase64Encoded": False,
    }


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("text/plain; charset=utf-8", "Grüße".encode(), "Grüße"),
        ("application/xml", b"<x/>", "<x/>"),
        ("application/json", b"\xff", None),
        ("application/x-www-form-urlencoded", b"a=1", None),
        ("multipart/form-data; boundary=x", b"--x--", None),
        (None, b"bytes", None),
    ],
)
def test_a_body_is_text_or_base64(
    lambda_client: Any, deploy: Deploy, content_type: str | None, body: bytes, text: str | None
) -> None:
    url = public(lambda_client, deploy(ECHO))
    _, _, returned = ask(url, "PUT", {"Content-Type": content_type} if content_type else {}, body)
    event = json.loads(returned)["event"]
    encoded = base64.b64encode(body).decode() if text is None else text
    assert (event["body"], event["isBase64Encoded"]) == (encoded, text is None)


def test_without_a_body_there_is_none_in_the_event(lambda_client: Any, deploy: Deploy) -> None:
    url = public(lambda_client, deploy(ECHO))
    event = json.loads(ask(url)[2])["event"]
    assert "body" not in event
    assert "queryStringParameters" not in event
    assert (event["isBase64Encoded"], event["rawPath"], event["headers"]["content-length"]) == (False, "/", "0")


def test_responses_arrive_as_they_were_returned(lambda_client: Any, deploy: Deploy) -> None:
    url = public(lambda_client, deploy(RETURNS))
    returned = {"statusCode": 201, "headers": {"X-Grüße".replace("üß", "us"): "Grüße"}, "cookies": ["a=1"], "body": "x"}
    body = json.dumps(returned).encode()
    status, headers, text = ask(url, "POST", {"Content-Type": "text/plain"}, body)
    assert (status, text) == (201, b"x")
    assert ("set-cookie", "a=1") in headers
    assert ("x-gruse", "Grüße".encode().decode("latin-1")) in headers
    assert ask(url, "POST", {"Content-Type": "text/plain"}, b"not json")[::2] == (502, b"Internal Server Error")
    status, headers, text = ask(url, "HEAD", {"Content-Type": "text/plain"})
    assert (status, text) == (502, b"")


@pytest.mark.parametrize(
    "missing_one", [(), ("s0",), ("s1",), ("s0", "s1")], ids=["both", "only the second", "only the first", "none"]
)
def test_a_public_url_needs_both_permissions(
    lambda_client: Any, deploy: Deploy, missing_one: tuple[str, ...], invocations: Any
) -> None:
    name = deploy(ECHO)
    url = public(lambda_client, name)
    for sid in missing_one:
        lambda_client.remove_permission(FunctionName=name, StatementId=sid)
    status, headers, body = ask(url)
    assert status == (403 if missing_one else 200)
    assert len(invocations) == (0 if missing_one else 1)
    if missing_one:
        assert json.loads(body) == FORBIDDEN
        assert dict(headers)["x-amzn-errortype"] == "AccessDeniedException"


def test_a_permission_for_signed_requests_opens_no_public_url(lambda_client: Any, deploy: Deploy) -> None:
    name = deploy(ECHO)
    url = lambda_client.create_function_url_config(FunctionName=name, AuthType="NONE")["FunctionUrl"]
    permit(lambda_client, name, auth_type="AWS_IAM")
    assert ask(url)[0] == 403
    lambda_client.update_function_url_config(FunctionName=name, AuthType="AWS_IAM")
    assert ask(url)[0] == 403, "it is not signed"


def test_a_signed_url_verifies_who_asks(lambda_client: Any, deploy: Deploy, emulator: Emulator) -> None:
    name = deploy(ECHO)
    url = lambda_client.create_function_url_config(FunctionName=name, AuthType="AWS_IAM")["FunctionUrl"]
    owner, function = emulator.keys.owner, emulator.keys.function("caller")

    def signed(pair: Pair, body: bytes = b"", sent: bytes | None = None) -> tuple[int, Any]:
        headers = signed_headers(pair, "POST", url, body, {"content-type": "text/plain"})
        status, _, answered = ask(url, "POST", headers, body if sent is None else sent)
        return status, json.loads(answered)

    status, returned = signed(owner, b"body")
    assert status == 200
    event = returned["event"]
    assert event["body"] == "body"
    assert event["requestContext"]["accountId"] == "000000000000"
    assert event["requestContext"]["authorizer"] == {
        "iam": {
            "accessKey": owner.key_id,
            "accountId": "000000000000",
            "callerId": "000000000000",
            "cognitoIdentity": None,
            "principalOrgId": None,
            "userArn": "arn:aws:iam::000000000000:root",
            "userId": "000000000000",
        }
    }
    assert not {"authorization", "x-amz-security-token"} & event["headers"].keys()
    status, refused = signed(owner, b"body", b"other")
    assert (status, refused["Message"][:30]) == (403, "The request signature we calcu")
    assert signed(Pair("AKIAUNKNOWN", "secret"))[0] == 403
    assert ask(url, "POST")[0] == 403
    assert json.loads(ask(url, "POST")[2]) == FORBIDDEN
    assert signed(function) == (403, FORBIDDEN)
    permit(lambda_client, name, "arn:aws:sts::000000000000:assumed-role/function/caller", "AWS_IAM")
    status, returned = signed(function)
    assert status == 200
    assert returned["event"]["requestContext"]["authorizer"]["iam"]["userId"] == "caller"
    assert signed(emulator.keys.function("another")) == (403, FORBIDDEN)
    other = aws_client("s3", emulator.endpoint, owner).generate_presigned_url("list_buckets")
    status, _, refusal = ask(f"{url}?{urlsplit(other).query}")
    assert status == 403, refusal


def test_the_url_of_an_alias_outlives_it_but_serves_nothing(lambda_client: Any, deploy: Deploy) -> None:
    name = deploy(ECHO, FunctionName="aliased")
    lambda_client.publish_version(FunctionName=name)
    alias = {"FunctionName": name, "Name": "live", "FunctionVersion": "1"}
    lambda_client.create_alias(**alias)
    created = lambda_client.create_function_url_config(FunctionName=name, Qualifier="live", AuthType="NONE")
    assert created["FunctionArn"] == f"{FUNCTION}:aliased:live"
    url = created["FunctionUrl"]
    permit(lambda_client, name)
    assert ask(url)[0] == 403, "the function's policy is not the alias's"
    permit(lambda_client, name, Qualifier="live")
    assert ask(url)[0] == 200
    lambda_client.delete_alias(FunctionName=name, Name="live")
    assert ask(url)[0] == 403
    assert lambda_client.get_function_url_config(FunctionName=name, Qualifier="live")["FunctionUrl"] == url
    lambda_client.create_alias(**alias)
    assert ask(url)[0] == 403, "its policy went with it"
    permit(lambda_client, name, Qualifier="live")
    assert ask(url)[0] == 200
    lambda_client.delete_function(FunctionName=name)
    assert ask(url)[0] == 403


def test_a_url_has_a_host_of_its_own_and_leads_nowhere_else(lambda_client: Any, deploy: Deploy) -> None:
    url = public(lambda_client, deploy(ECHO))
    parts = urlsplit(url)
    host = f"{parts.path.split('/')[2]}.lambda-url.us-east-1.localhost:{parts.port}"
    root = f"http://{parts.netloc}"
    status, _, body = ask(f"{root}/any/path", headers={"Host": host, "Origin": "https://elsewhere.example"})
    assert status == 200
    event = json.loads(body)["event"]
    assert (event["rawPath"], event["requestContext"]["domainName"]) == ("/any/path", host)
    # There it is the function that answers, whatever the path.
    status, _, body = ask(f"{root}/2015-03-31/functions", headers={"Host": host})
    assert json.loads(body)["event"]["rawPath"] == "/2015-03-31/functions"
    for wrong in ("evil.example", f"{host}.evil.example", f"x{host}", "lambda-url.us-east-1.localhost"):
        assert ask(url, headers={"Host": wrong})[0] == 403
    for unknown in (f"{'a' * 32}/", "", "../2015-03-31/functions"):
        status, _, body = ask(f"{root}/lambda-url/{unknown}")
        assert (status, json.loads(body)) == (403, FORBIDDEN)
    elsewhere = {"Origin": "https://elsewhere.example"}
    assert ask(f"{root}/2015-03-31/functions", headers=elsewhere)[0] == 403
    assert b"web site" in ask(f"{root}/2015-03-31/functions", headers=elsewhere)[2]


def test_a_body_beyond_the_limit_is_refused(lambda_client: Any, deploy: Deploy, invocations: Any) -> None:
    url = public(lambda_client, deploy(ECHO))
    status, headers, body = ask(url, "POST", {"Content-Type": "text/plain"}, b"x" * 6_291_457)
    assert (status, dict(headers)["x-amzn-errortype"]) == (413, "RequestEntityTooLargeException")
    message = "Request must be smaller than 6291456 bytes for the InvokeFunction operation"
    assert json.loads(body) == {"Message": message}
    assert len(invocations) == 0


def test_a_throttled_function_says_so(lambda_client: Any, deploy: Deploy) -> None:
    name = deploy(ECHO)
    url = public(lambda_client, name)
    lambda_client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    status, headers, body = ask(url)
    assert (status, dict(headers)["x-amzn-errortype"]) == (429, "TooManyRequestsException")
    assert json.loads(body)["Reason"] == "ReservedFunctionConcurrentInvocationLimitExceeded"
