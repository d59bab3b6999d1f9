"""Make boto3 clients of this host's services, embedded or in containers."""

import threading
from collections.abc import Mapping
from functools import cache
from typing import Any

import boto3
import botocore.config

from slslab.aws.arns import REGION

_MAKING = threading.Lock()


def settings(service: str, **more: Any) -> dict[str, Any]:
    """Return arguments of `Session.client` for a service of this host; `more` adds or replaces botocore's settings."""
    if service == "s3":
        more = {"s3": {"addressing_style": "path"}, **more}
    # A synchronous invocation may last as long as its time-out, and a retry would run it twice.
    more = {"read_timeout": 3600, "retries": {"total_max_attempts": 1}, "max_pool_connections": 64, **more}
    return {"region_name": REGION, "config": botocore.config.Config(**more)}


def aws_client(service: str, endpoint: str, credentials: Mapping[str, str], **more: Any) -> Any:
    """Return a boto3 client of a service at this address; `credentials` is keyed as AWS's environment variables."""
    # A session reads the model of a service once, a tenth of a second, and makes one client at a time.
    with _MAKING:
        return _session().client(
            service,
            endpoint_url=endpoint,
            aws_access_key_id=credentials["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=credentials["AWS_SECRET_ACCESS_KEY"],
            **settings(service, **more),
        )


@cache
def _session() -> Any:
    return boto3.session.Session()
