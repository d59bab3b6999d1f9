"""The bytes of messages that SQS bills."""

from base64 import b64encode
from typing import Any

import pytest

from slslab.aws.queue_messages import payload_bytes

TEXT = {"DataType": "String", "StringValue": "ü"}
BINARY = {"DataType": "Binary", "BinaryValue": b64encode(bytes(100)).decode()}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"QueueUrl": "http://queue", "MessageBody": '"' * 40_000}, 40_000),
        ({"MessageBody": "ü", "MessageAttributes": {"kind": TEXT, "blob": BINARY}}, 2 + (4 + 6 + 2) + (4 + 6 + 100)),
        ({"Entries": [{"Id": "0", "MessageBody": "one"}, {"Id": "1", "MessageBody": "three"}]}, 8),
        ({"Messages": [{"Body": "one", "ReceiptHandle": "long", "MessageAttributes": {"kind": TEXT}}]}, 3 + 12),
        ({"MessageBody": "x", "MessageSystemAttributes": {"AWSTraceHeader": TEXT}}, 1),
        ({"Entries": [{"Id": "0", "ReceiptHandle": "long"}]}, 0),
        ({"MessageBody": "\ud800"}, 3),
        ({}, 0),
        ([], 0),
        ({"MessageBody": 5}, 0),
        ({"Entries": 5}, 0),
        ({"MessageBody": "x", "MessageAttributes": {"kind": "text"}}, 0),
    ],
)
def test_bodies_and_attributes_count(document: Any, expected: int) -> None:
    assert payload_bytes(document) == expected
