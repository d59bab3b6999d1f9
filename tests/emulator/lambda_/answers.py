"""Whole answers of the Lambda API, compared with AWS's: what no two answers have in common is given by a pattern."""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from botocore.awsrequest import AWSRequest
from botocore.httpsession import URLLib3Session

from slslab.aws.clients import signed_headers
from slslab.lambda_.emulator import Emulator

ARN = "arn:aws:lambda:us-east-1:000000000000:function:"
ROLE = "arn:aws:iam::000000000000:role/test"
ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+0000")
SHA256 = re.compile(r"[A-Za-z0-9+/]{43}=")
RUNTIME = re.compile(r"arn:aws:lambda:us-east-1::runtime:[0-9a-f]{64}")
ACTIVE: dict[str, Any] = {"State": "Active", "LastUpdateStatus": "Successful"}
CREATING: dict[str, Any] = {
    "State": "Pending",
    "StateReason": "The function is being created.",
    "StateReasonCode": "Creating",
}
UPDATING: dict[str, Any] = {
    "State": "Active",
    "LastUpdateStatus": "InProgress",
    "LastUpdateStatusReason": "The function is being created.",
    "LastUpdateStatusReasonCode": "Creating",
}
RUNTIME_VERSION: dict[str, Any] = {"RuntimeVersionConfig": {"RuntimeVersionArn": RUNTIME}}


def configuration(name: str, qualifier: Any = "", **changes: Any) -> dict[str, Any]:
    """Return what AWS's lists answer of a function of the least that CreateFunction takes, with these changes."""
    return {
        "Architectures": ["x86_64"],
        "CodeSha256": SHA256,
        "CodeSize": int,
        "Description": "",
        "EphemeralStorage": {"Size": 512},
        "FunctionArn": f"{ARN}{name}{qualifier}",
        "FunctionName": name,
        "Handler": "app.handler",
        "LastModified": TIME,
        "LoggingConfig": {"LogFormat": "Text", "LogGroup": f"/aws/lambda/{name}"},
        "MemorySize": 128,
        "PackageType": "Zip",
        "RevisionId": ID,
        "Role": ROLE,
        "Runtime": "python3.11",
        "SnapStart": {"ApplyOn": "None", "OptimizationStatus": "Off"},
        "Timeout": 3,
        "TracingConfig": {"Mode": "PassThrough"},
        "Version": qualifier.lstrip(":") or "$LATEST",
        **changes,
    }


class Caller:
    """Sends signed requests to the Lambda API and returns status, the error's type and the body as it came."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator

    def __call__(self, method: str, path: str, document: object = None) -> tuple[int, str, Any]:
        """Return the answer to a request with this document, or these bytes, as its body."""
        body = document if isinstance(document, bytes) else b"" if document is None else json.dumps(document).encode()
        url = self._emulator.endpoint + quote(path, safe="/:?=&")
        headers = signed_headers(self._emulator.keys.owner, method, url, body)
        answer = URLLib3Session().send(AWSRequest(method, url, headers, body).prepare())
        told = json.loads(answer.text) if answer.text else None
        return answer.status_code, answer.headers.get("x-amzn-ErrorType", ""), told


def assert_equal(answered: Any, expected: Any, at: str = "") -> None:
    """Compare an answer with AWS's in every member; a pattern or a type stands for a value that differs each time."""
    if isinstance(expected, re.Pattern):
        assert isinstance(answered, str), at
        assert expected.fullmatch(answered), f"{at}: {answered}"
    elif isinstance(expected, type):
        assert type(answered) is expected, at
    elif isinstance(expected, Mapping):
        assert isinstance(answered, Mapping), f"{at}: {answered}"
        assert sorted(answered) == sorted(expected), at
        for name, value in expected.items():
            assert_equal(answered[name], value, f"{at}.{name}")
    else:
        assert answered == expected, at
