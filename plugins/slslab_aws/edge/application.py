"""Find the service of a request, and check its caller.

The client names the service in its signature's scope (`Credential=KEY/DATE/REGION/SERVICE/aws4_request`), in the header
or in the query. Unsigned requests are for function URLs, a liveness check, or S3, which has public objects on AWS.
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import json
import os
import re
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from slslab.aws.arns import ACCOUNT
from slslab.aws.errors import ServiceError
from slslab.aws.gate import authenticate
from slslab.aws.keys import Keyring, Principal
from slslab.aws.limits import MB
from slslab.aws.queue_messages import payload_bytes
from slslab.aws.signatures import IndexedHeaders
from slslab.installation import lacking
from slslab.lambda_.references import URL_HOST, URL_PREFIX
from slslab_aws.edge.forwarding import Forwarder, Unreachable
from slslab_aws.services import SERVICES

# With bounded parts, since anyone can send a long text.
SCOPE = re.compile(rb"Credential=[^/]{1,128}/\d{8}/[^/]{1,64}/([^/,\s]{1,64})/aws4_request")
QUERY_SCOPE = re.compile(
    rb"X-Amz-Credential=[^&%]{1,128}%2F\d{8}%2F[^&%]{1,64}%2F([^&%]{1,64})%2Faws4_request", re.IGNORECASE
)
STS, SQS = "sts", "sqs"
# assumed: the largest request of these services, BatchWriteItem's, has 16 MB, and JSON and Base64 add to it.
LARGEST_BODY = 24 * MB
# assumed: its one operation has two parameters.
LARGEST_STS_BODY = MB // 16


class Edge:
    """The ASGI application of the endpoint. `own` are the URLs of our services; all others are behind a Unix socket.

    `log` is a descriptor that gets a line for each request of a function to SQS (`AccessLog` reads it).
    """

    def __init__(self, own: Mapping[str, str], forwarder: Forwarder, keys: Keyring, log: int | None = None) -> None:
        self._own = own
        self._log = log
        self._forwarder = forwarder
        self._keys = keys
        self.urls = FunctionUrls(forwarder, own["lambda"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service = service_of(scope)
        try:
            if service in self._own:
                await self._forwarder.forward(scope, receive, send, self._own[service])
            elif service in SERVICES or service == STS:
                await self._serve(service, scope, receive, send)
            else:
                raise _not_emulated(service)
        except Unreachable as error:
            unavailable = f"The emulated {service} does not answer: {error}."
            raise ServiceError(503, "ServiceUnavailable", unavailable) from error

    async def _serve(self, service: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request's signature, which moto doesn't do, and forward the request."""
        headers = IndexedHeaders(scope["headers"])
        limit = LARGEST_STS_BODY if service == STS else LARGEST_BODY
        caller, signature, body = await authenticate(self._keys, headers, scope, receive, limit, service)
        if signature.presigned:
            raise ServiceError(400, "IncompleteSignature", f"Requests of {service} are signed in their headers.")
        # A function may call the other services, since policies of its role aren't enforced.
        if service == "iam":
            caller.require(f"{service}:*", "*")
        if service == STS:
            await _answer_sts(body, caller)(scope, receive, send)
            return
        first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return first.pop() if first else await receive()

        if service == SQS and caller.function and self._log is not None:
            send = _logging(send, self._log, caller.function, body)
        await self._forwarder.forward(scope, again, send, "")


class FunctionUrls:
    """Forwards requests that the gate takes for calls of a function URL, from any caller: Lambda decides."""

    prefix, host = URL_PREFIX, URL_HOST

    def __init__(self, forwarder: Forwarder, endpoint: str) -> None:
        self._forwarder = forwarder
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(Unreachable):
            await self._forwarder.forward(scope, receive, send, self._endpoint)


def service_of(scope: Scope) -> str:
    """Return the name of the requested service, as signatures spell it."""
    signed = [value for name, value in scope["headers"] if name == b"authorization"]
    found = SCOPE.search(signed[0]) if signed else QUERY_SCOPE.search(scope["query_string"])
    if found is not None:
        return found[1].decode("latin-1")
    return "lambda" if scope["path"].startswith("/slslab/") else "s3"


def _logging(send: Send, log: int, function: str, body: bytes) -> Send:
    """Return a `send` that logs the request before the last part of its answer."""
    began_ns, answer = time.monotonic_ns(), bytearray()

    async def count(message: Message) -> None:
        answer.extend(message.get("body", b""))
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            queue, sent = _read(body)
            op = "sqs.fifo" if queue.endswith(".fifo") else "sqs.request"
            line = [op, function, began_ns, time.monotonic_ns(), max(sent, _read(bytes(answer))[1])]
            os.write(log, json.dumps(line).encode() + b"\n")
        await send(message)

    return count


def _read(body: bytes) -> tuple[str, int]:
    """Return the URL of the queue that a request names, and the bytes of messages in it or in an answer.

    The older protocol isn't JSON. Of that, everything counts.
    """
    try:
        document = json.loads(body)
    except ValueError:
        return parse_qs(body.decode("latin-1")).get("QueueUrl", [""])[0], len(body)
    queue = document.get("QueueUrl", "") if isinstance(document, Mapping) else ""
    return str(queue), payload_bytes(document)


def _not_emulated(service: str) -> ServiceError:
    if service == "states":
        hint = f"install it with {lacking('moto').hint}."
    elif service in ("cloudformation", "serverlessrepo"):
        hint = "slslab deploys templates itself: slslab deploy template.yaml."
    else:
        hint = f"It has lambda, s3, states and {', '.join(sorted({*SERVICES, STS}))}."
    return ServiceError(501, "UnknownOperationException", f"slslab does not emulate {service}: {hint}")


def _answer_sts(body: bytes, caller: Principal) -> Response:
    """Answer GetCallerIdentity, the only emulated operation of the Security Token Service.

    https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html
    """
    operation = parse_qs(body.decode("latin-1")).get("Action", ["?"])[0]
    if operation != "GetCallerIdentity":
        # A role's keys would suggest that its policies are enforced.
        raise ServiceError(
            400,
            "InvalidAction",
            f"slslab does not emulate sts:{operation}, since it enforces no policies of roles: use the keys of "
            "`slslab env`.",
        )
    user = ACCOUNT if caller.actions is None else f"AROASLSLAB:{caller.function}"
    return Response(
        '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>'
        f"<Arn>{escape(caller.arn)}</Arn><UserId>{user}</UserId><Account>{ACCOUNT}</Account>"
        f"</GetCallerIdentityResult><ResponseMetadata><RequestId>{uuid.uuid4()}</RequestId></ResponseMetadata>"
        "</GetCallerIdentityResponse>",
        media_type="text/xml",
    )
