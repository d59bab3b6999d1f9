"""The logs of functions in CloudWatch Logs: fetched from Lambda when a client asks for logs, not before."""

import http.client
import json
from itertools import groupby
from operator import itemgetter
from typing import Any
from urllib.request import Request

from moto.logs.models import logs_backends

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.clients import HTTP, signed_headers
from slslab.aws.errors import ServiceError
from slslab.aws.keys import Pair

PATH = "/slslab/logs"


class FunctionLogs:
    """Copies lines that functions have written since the last time into their log groups."""

    def __init__(self, endpoint: str, owner: Pair) -> None:
        self._endpoint = endpoint
        self._owner = owner
        self._cursor = 0

    def fetch(self) -> None:
        """Fetch the new lines; ServiceUnavailableException if Lambda doesn't answer."""
        more = True
        while more:
            try:
                document = self._read()
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise ServiceError(503, "ServiceUnavailableException", f"Lambda gives no logs: {error}.") from error
            more = document["more"]
            self._cursor = document["cursor"]
            _store(document["events"])

    def _read(self) -> dict[str, Any]:
        url = f"{self._endpoint}{PATH}?since={self._cursor}"
        with HTTP.open(Request(url, headers=signed_headers(self._owner, "GET", url))) as answer:
            document: dict[str, Any] = json.loads(answer.read())
        return document


def _store(events: list[dict[str, Any]]) -> None:
    backend: Any = logs_backends[ACCOUNT][REGION]
    where = itemgetter("group", "stream")
    for (group, stream), lines in groupby(sorted(events, key=where), key=where):
        backend.ensure_log_group(group)
        backend.ensure_log_stream(group, stream)
        told = [{"timestamp": line["timestamp_ms"], "message": line["message"]} for line in lines]
        # CloudWatch Logs requires ordered events within a request, and the host's clock may be set back.
        backend.put_log_events(group, stream, sorted(told, key=itemgetter("timestamp")))
