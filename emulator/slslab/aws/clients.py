"""Make clients of this host's services, embedded or in containers: boto3's, and one for plain HTTP.

They ignore the user's environment and files, which are meant for AWS: no profile, proxy, certificates or retries.
"""

import http.client
import os
import threading
import urllib.request
from collections.abc import Mapping
from functools import cache
from typing import Any

import boto3
import botocore.auth
import botocore.awsrequest
import botocore.config
import botocore.credentials
import botocore.session

from slslab.aws.arns import REGION
from slslab.aws.keys import Pair
from slslab.aws.requests import own_models

# Opens URLs of this host without a proxy.
HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))

_MAKING = threading.Lock()


def aws_client(service: str, endpoint: str, pair: Pair, **more: Any) -> Any:
    """Return a boto3 client for a service at this address that signs with a pair of keys.

    `more` adds or replaces botocore's settings.
    """
    if service == "s3":
        more = {"s3": {"addressing_style": "path"}, **more}
    # A synchronous invocation may last as long as its time-out, and a retry would run it twice.
    more = {
        "read_timeout": 3600,
        "retries": {"total_max_attempts": 1},
        "max_pool_connections": 64,
        "proxies": {},
        **more,
    }
    # A session reads a service's model once, in a tenth of a second, and makes one client at a time.
    with _MAKING:
        return _session().client(
            service,
            region_name=REGION,
            endpoint_url=endpoint,
            aws_access_key_id=pair.key_id,
            aws_secret_access_key=pair.secret,
            aws_session_token=pair.token or None,
            config=botocore.config.Config(**more),
        )


def signed_headers(
    pair: Pair,
    method: str,
    url: str,
    data: bytes = b"",
    headers: Mapping[str, str] | None = None,
    service: str = "lambda",
) -> dict[str, str]:
    """Return the signed headers for a request that isn't made with boto3."""
    request = botocore.awsrequest.AWSRequest(method, url, headers, data)
    credentials = botocore.credentials.Credentials(pair.key_id, pair.secret, pair.token or None)
    botocore.auth.SigV4Auth(credentials, service, REGION).add_auth(request)
    return dict(request.headers)


def send_signed(
    connection: http.client.HTTPConnection, pair: Pair, method: str, path: str, data: bytes = b""
) -> http.client.HTTPResponse:
    """Send a signed request to Lambda's endpoint and return its answer; OSError or HTTPException without one."""
    host = f"[{connection.host}]" if ":" in connection.host else connection.host
    url = f"http://{host}:{connection.port}{path}"
    connection.request(method, path, data, signed_headers(pair, method, url, data))
    return connection.getresponse()


@cache
def _session() -> Any:
    # For each variable: its name in the user's files, its environment variable, its default, and a converter.
    defaults = {name: (None, None, *rest) for name, (_, _, *rest) in botocore.session.Session.SESSION_VARIABLES.items()}
    files = dict.fromkeys(("config_file", "credentials_file"), (None, None, os.devnull, None))
    session = botocore.session.Session({**defaults, **files})
    session.register_component("data_loader", own_models())
    return boto3.session.Session(botocore_session=session)
