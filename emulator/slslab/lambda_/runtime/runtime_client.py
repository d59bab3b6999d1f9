"""Stand in for awslambdaric's compiled `runtime_client`, which is built for one Python: call the Runtime API by HTTP.

https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
"""

import http.client
import os

PATH = "/2018-06-01/runtime/invocation/"
DEADLINE = "Lambda-Runtime-Deadline-Ms"
HEADERS = (
    *("Lambda-Runtime-Aws-Request-Id", "Lambda-Runtime-Trace-Id", "Lambda-Runtime-Invoked-Function-Arn"),
    *("Lambda-Runtime-Client-Context", "Lambda-Runtime-Cognito-Identity"),
    *("Lambda-Runtime-Aws-Tenant-Id", "Lambda-Runtime-Invocation-Id", "Content-Type"),
)


_agent: str
_connection: http.client.HTTPConnection


def initialize_client(user_agent: str) -> None:
    """Set the client of this process."""
    global _agent, _connection
    _agent, _connection = user_agent, http.client.HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])


def _send(
    method: str, path: str, failed: str, body: bytes | None = None, headers: dict[str, bytes] | None = None
) -> tuple[bytes, http.client.HTTPMessage]:
    _connection.request(method, PATH + path, body, {"User-Agent": _agent, **(headers or {})})
    answer = _connection.getresponse()
    content = answer.read()
    if not 200 <= answer.status < 300:
        raise RuntimeError(failed)
    return content, answer.headers


def next() -> tuple[bytes, dict[str, str | int | None]]:
    """Wait for an invocation; return its event and its headers. The deadline is an int."""
    event, headers = _send("GET", "next", "Failed to get next")
    return event, {name: headers[name] for name in HEADERS} | {DEADLINE: int(headers[DEADLINE])}


def post_invocation_result(
    request_id: str, result: bytes, content_type: str, _invocation_id: str | None = None
) -> None:
    """Report a result."""
    failed = "Failed to post invocation response"
    _send("POST", f"{request_id}/response", failed, result, {"Content-Type": content_type.encode()})


def post_error(request_id: str, error: str, xray: str, _invocation_id: str | None = None) -> None:
    """Report the handler's error, and its cause for AWS X-Ray."""
    headers = {"Content-Type": b"application/json"}
    if xray:
        headers["Lambda-Runtime-Function-XRay-Error-Cause"] = xray.encode()
    _send("POST", f"{request_id}/error", "Failed to post invocation error", error.encode(), headers)
