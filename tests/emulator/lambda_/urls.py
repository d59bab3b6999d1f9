"""Function URLs that tests make and call."""

import http.client
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

ECHO = """
    def handler(event, context):
        return {"event": event, "id": context.aws_request_id}
"""
RETURNS = """
    import json

    def handler(event, context):
        return json.loads(event["body"])
"""


def permit(client: Any, name: str, principal: str = "*", auth_type: str = "NONE", **more: Any) -> None:
    """Allow both actions that an invocation by URL needs."""
    both: tuple[dict[str, Any], ...] = (
        {"Action": "lambda:InvokeFunctionUrl", "FunctionUrlAuthType": auth_type},
        {"Action": "lambda:InvokeFunction", "InvokedViaFunctionUrl": True},
    )
    for number, members in enumerate(both):
        client.add_permission(FunctionName=name, StatementId=f"s{number}", Principal=principal, **members, **more)


def ask(
    url: str, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> tuple[int, list[tuple[str, str]], bytes]:
    """Return status, headers and body of the answer to a request; its path is sent unchanged."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc)
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target, body, dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.getheaders(), response.read()
    finally:
        connection.close()


def public(client: Any, name: str, **more: Any) -> str:
    """Give a function a URL that everybody may call."""
    url = client.create_function_url_config(FunctionName=name, AuthType="NONE", **more)["FunctionUrl"]
    permit(client, name)
    return str(url)
