"""One queue of SQS as a poller uses it."""

import base64
from functools import cached_property
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from slslab.lambda_.stack_client import StackClient

# documented: API_ReceiveMessage.html: at most ten messages.
MOST_MESSAGES = 10
# The length of a long poll, seconds. AWS allows 20, but a poll must not be interrupted: SQS doesn't notice that its
# client has gone, and still sends it the next message (reported for AWS: aws-sdk-java, issue 2083).
WAIT_S = 1
# Longer than the wait: a server that does not answer by then has a defect.
LIMIT_S = 60.0
# What a call raises if SQS refuses it (ClientError) or doesn't answer; ValueError for an endpoint that isn't a URL.
QUEUE_ERRORS = (ClientError, BotoCoreError, ValueError)


class QueueClient:
    """A queue of the stack by its name. Every call may raise one of QUEUE_ERRORS."""

    def __init__(self, stack: StackClient, name: str) -> None:
        self._stack = stack
        self._name = name

    def attributes(self) -> dict[str, str]:
        """Return the attributes of the queue."""
        found: dict[str, str] = self._call("get_queue_attributes", AttributeNames=["All"])["Attributes"]
        return found

    def receive(self, most: int) -> list[dict[str, Any]]:
        """Return up to ten messages, or an empty list after a second; binary attributes are Base64, as in events."""
        number = min(most, MOST_MESSAGES)
        every = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
        answer = self._call("receive_message", MaxNumberOfMessages=number, WaitTimeSeconds=WAIT_S, **every)
        messages: list[dict[str, Any]] = answer.get("Messages", [])
        for attribute in [each for message in messages for each in message.get("MessageAttributes", {}).values()]:
            if "BinaryValue" in attribute:
                attribute["BinaryValue"] = base64.b64encode(attribute["BinaryValue"]).decode()
        return messages

    def delete(self, receipts: list[str]) -> None:
        """Delete messages that were received."""
        for start in range(0, len(receipts), MOST_MESSAGES):
            chosen = receipts[start : start + MOST_MESSAGES]
            entries = [{"Id": str(number), "ReceiptHandle": receipt} for number, receipt in enumerate(chosen)]
            self._call("delete_message_batch", Entries=entries)

    @cached_property
    def _client(self) -> Any:
        return self._stack.client("sqs", read_timeout=LIMIT_S)

    @cached_property
    def _url(self) -> str:
        return str(self._client.get_queue_url(QueueName=self._name)["QueueUrl"])

    def _call(self, operation: str, **members: Any) -> dict[str, Any]:
        answer: dict[str, Any] = getattr(self._client, operation)(QueueUrl=self._url, **members)
        return answer
