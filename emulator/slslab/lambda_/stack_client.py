"""What the emulator itself needs from the stack: clients of its services, packages in S3, and buckets for failures."""

import logging
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import botocore.exceptions

from slslab.aws.clients import aws_client
from slslab.aws.errors import ServiceError, invalid
from slslab.aws.keys import Pair
from slslab.errors import RequestError

# Type and value of a message's attributes.
Attributes = Mapping[str, tuple[str, str]]
LOG = logging.getLogger(__name__)
COMMON = "AWS_ENDPOINT_URL"
ENDPOINT = "AWS_ENDPOINT_URL_"
# Step Functions has three names: in AWS's variable, in boto3's client, and in its ARNs.
ENDPOINT_NAMES = {"sfn": "states"}
SERVICES = {"stepfunctions": "states"}


class StackClient:
    """The services of the stack, each at the address that an environment variable names.

    Every function finds them through `variables`. Functions reach Lambda at the URL `advertised`, this process at
    `endpoint`. Clients sign with the owner's pair of keys.
    """

    def __init__(self, endpoint: str, advertised: str, variables: Mapping[str, str], owner: Pair) -> None:
        self._own = endpoint
        self.owner = owner
        self._named = dict(variables)
        self.variables = {"AWS_ENDPOINT_URL_LAMBDA": advertised, **variables}

    @property
    def endpoints(self) -> dict[str, str]:
        """Where AWS's clients find each service: `lambda`, what the variables name (`s3` …), and `aws`, all others."""
        named = {n.removeprefix(ENDPOINT).lower(): url for n, url in self._named.items() if n.startswith(ENDPOINT)}
        common = {"aws": self._named[COMMON]} if COMMON in self._named else {}
        return {"lambda": self._own, **{ENDPOINT_NAMES.get(n, n): url for n, url in named.items()}, **common}

    def add_variables(self, variables: Mapping[str, str]) -> None:
        """Also give these variables to every environment that starts from now on."""
        self._named |= variables
        self.variables |= variables

    def client(self, service: str, **settings: Any) -> Any:
        """Return a boto3 client of a service; RequestError if no variable names its endpoint."""
        endpoint = self.endpoint(service)
        if endpoint is None:
            raise RequestError(
                f"This emulator has no endpoint for {service}, only for {', '.join(self.endpoints)}.",
                "give `variables`.",
            )
        return aws_client(service, endpoint, self.owner, **settings)

    def endpoint(self, service: str) -> str | None:
        """Return a service's own endpoint, or the common one of all other services; None without either."""
        return self.endpoints.get(SERVICES.get(service, service), self.endpoints.get("aws"))

    def fetch(self, bucket: str, key: str, version: str | None, limit: int) -> bytes:
        """Return the body of a package in S3; without a `version`, the newest.

        InvalidParameterValueException if it cannot be read, or is too large.
        """
        if self.endpoint("s3") is None:
            raise invalid(f"The bucket {bucket} cannot be read: this emulator has no S3. Send the code as ZipFile.")
        with closing(self.client("s3")) as client:
            try:
                chosen = {} if version is None else {"VersionId": version}
                found = client.get_object(Bucket=bucket, Key=key, **chosen)
                if found["ContentLength"] > limit:
                    # An archive that is larger than its contents may be is too large in any case.
                    raise invalid(f"Unzipped size must be smaller than {limit} bytes")
                return bytes(found["Body"].read())
            except botocore.exceptions.ClientError as error:
                detail = error.response["Error"]
                raise _unread(detail["Code"], detail["Message"]) from error
            except botocore.exceptions.BotoCoreError as error:  # the name is impossible, or no server answers
                raise _unread(type(error).__name__, str(error)) from error

    def store(self, bucket: str, key: str, body: bytes) -> None:
        """Store the record of a failed event in the bucket that its function names; without S3 it is only logged."""
        if self.endpoint("s3") is None:
            LOG.error("the destination bucket %s cannot be written: this emulator has no S3", bucket)
            return
        with closing(self.client("s3")) as client:
            client.put_object(Bucket=bucket, Key=key, Body=body)

    def send(self, arn: str, body: bytes, attributes: Attributes, trace_id: str) -> None:
        """Send a message to the queue or the topic with this ARN; without SQS or SNS it is only logged.

        A queue gets the trace id as AWSTraceHeader (measured: recorded from AWS).
        """
        service = arn.split(":")[2]
        if service not in ("sqs", "sns") or self.endpoint(service) is None:
            LOG.error("the destination %s cannot be reached: this emulator has no service for it", arn)
            return
        sent = {name: {"DataType": kind, "StringValue": value} for name, (kind, value) in attributes.items()}
        with closing(self.client(service)) as client:
            if service == "sns":
                client.publish(TopicArn=arn, Message=body.decode(), MessageAttributes=sent)
                return
            url = client.get_queue_url(QueueName=arn.rpartition(":")[2])["QueueUrl"]
            client.send_message(
                QueueUrl=url,
                MessageBody=body.decode(),
                MessageAttributes=sent,
                MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": trace_id}},
            )


def _unread(code: str, message: str) -> ServiceError:
    return invalid(f"Error occurred while GetObject. S3 Error Code: {code}. S3 Error Message: {message}")
