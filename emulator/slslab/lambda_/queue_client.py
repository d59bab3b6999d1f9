"""One queue of SQS as a poller uses it.

https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_Operations.html, AWS JSON protocol
"""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from slslab.aws.clients import signed_headers
from slslab.aws.keys import Pair

# documented: API_ReceiveMessage.html: at most ten messages.
MOST_MESSAGES = 10
# The length of a long poll, seconds. AWS allows 20, but a poll must not be interrupted: SQS doesn't notice that its
# client has gone, and still sends it the next message (reported for AWS: aws-sdk-java, issue 2083).
WAIT_S = 1
# Longer than the wait: a server that does not answer by then has a defect.
LIMIT_S = 60.0


class QueueError(Exception):
    """SQS refused a request, or did not answer; `code` is AWS's, empty if none came."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class QueueClient:
    """A queue by its name, at an endpoint; each call opens its own connection."""

    def __init__(self, endpoint: str, owner: Pair, name: str) -> None:
        self._endpoint = endpoint
        self._owner = owner
        self._name = name
        self._url = ""

    def attributes(self) -> dict[str, str]:
        """Return the attributes of the queue."""
        found: dict[str, str] = self._call("GetQueueAttributes", AttributeNames=["All"])["Attributes"]
        return found

    def receive(self, most: int) -> list[dict[str, Any]]:
        """Return up to ten messages, or an empty list after a second. Raises QueueError."""
        document = self._call(
            "ReceiveMessage",
            MaxNumberOfMessages=min(most, MOST_MESSAGES),
            WaitTimeSeconds=WAIT_S,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return list(document.get("Messages") or [])

    def delete(self, receipts: list[str]) -> None:
        """Delete messages that were received."""
        for start in range(0, len(receipts), MOST_MESSAGES):
            chosen = receipts[start : start + MOST_MESSAGES]
            entries = [{"Id": str(number), "ReceiptHandle": receipt} for number, receipt in enumerate(chosen)]
            self._call("DeleteMessageBatch", Entries=entries)

    def _call(self, operation: str, **members: Any) -> dict[str, Any]:
        if not self._url:
            self._url = self._request("GetQueueUrl", {"QueueName": self._name})["QueueUrl"]
        return self._request(operation, {"QueueUrl": self._url, **members})

    def _request(self, operation: str, members: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps(members).encode()
        kind = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": f"AmazonSQS.{operation}"}
        url = f"{self._endpoint}/"
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=LIMIT_S)
        try:
            connection.request("POST", "/", body, signed_headers(self._owner, "POST", url, body, kind, "sqs"))
            answer = connection.getresponse()
            document = json.loads(answer.read() or b"{}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise QueueError("", f"SQS does not answer: {error}") from error
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            # documented: the JSON protocol of SQS sends the older protocol's code in a header.
            code = answer.headers.get("x-amzn-query-error", "").partition(";")[0]
            code = code or str(document.get("__type", "")).rpartition("#")[2]
            raise QueueError(code, str(document.get("message") or document.get("Message") or code))
        return dict(document)
