"""LocalStack's Lambda by the emulator, its functions' logs in LocalStack's CloudWatch Logs, and a gate before its port.

Every operation of Lambda goes to $SLSLAB_LAMBDA_URL as it came, signed by the pair in $SLSLAB_ACCESS_KEY_ID and
$SLSLAB_SECRET_ACCESS_KEY, and back as it is. LocalStack itself takes any key from anyone who reaches its port, but for
pages of other web sites: the gate refuses those, by the rules of `slslab.aws.gate`.

Plugins for LocalStack 4.14.0. This directory on PYTHONPATH and PROVIDER_OVERRIDE_LAMBDA=slslab are enough; nothing is
installed. LocalStack's Step Functions call Lambda through its own gateway and so reach the emulator, too.
"""

import ipaddress
import json
import os
import re
import threading
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest, AWSResponse
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError
from botocore.httpsession import URLLib3Session
from localstack.aws import handlers
from localstack.aws.api import CommonServiceException, RequestContext, ServiceRequest
from localstack.aws.chain import HandlerChain
from localstack.aws.skeleton import DispatchTable
from localstack.aws.spec import load_service
from localstack.http import Response
from localstack.runtime.hooks import on_infra_start
from localstack.services.plugins import Service, aws_provider
from moto.logs.models import logs_backends
from rolo.request import get_full_raw_path

DEFAULT_URL = "http://emulator:9001"
DEFAULT_PAIR = {"SLSLAB_ACCESS_KEY_ID": "slslab", "SLSLAB_SECRET_ACCESS_KEY": "slslab-loopback-only"}
# What the client signed by its own key is signed anew.
FORWARDED = re.compile(r"content-type|x-amz-(?!date|security-token|content-sha256).*|x-amzn-.*", re.IGNORECASE)
# A synchronous invocation answers after 15 minutes at most; it may wait for the host's memory before.
ANSWER_S = 24 * 3600
CONNECTIONS = 1000
ACCOUNT, REGION = "000000000000", "us-east-1"
NAMES = re.compile(r"localhost|localstack|(.+\.)?localhost\.localstack\.cloud", re.IGNORECASE)


class LambdaProvider:
    """What LocalStack knows of the provider; all operations are in its dispatch table."""

    service = "lambda"


def sender(url: str, pair: Credentials) -> Callable[[AWSRequest, str], AWSResponse]:
    """What signs a request for a region and sends it to the emulator; 503 for the client if that is not there."""
    session = URLLib3Session(proxies={}, timeout=(60, ANSWER_S), max_pool_connections=CONNECTIONS)

    def send(request: AWSRequest, region: str) -> AWSResponse:
        SigV4Auth(pair, "lambda", region).add_auth(request)
        try:
            return session.send(request.prepare())
        except BotoCoreError as error:
            message = f"The emulator does not answer at {url}: start it, or name its address in SLSLAB_LAMBDA_URL."
            raise CommonServiceException("ServiceUnavailableException", message, 503) from error

    return send


def emulator() -> tuple[str, Credentials]:
    """The emulator's address, and its owner's pair."""
    url = os.environ.get("SLSLAB_LAMBDA_URL", DEFAULT_URL)
    return url, Credentials(*(os.environ.get(name) or default for name, default in DEFAULT_PAIR.items()))


class FunctionLogs:
    """Brings what functions have written since the last time into LocalStack's log groups, when they are asked for."""

    def __init__(self, url: str, pair: Credentials) -> None:
        self._url = url
        self._send = sender(url, pair)
        self._lock = threading.Lock()
        self._cursor = 0

    def fetch(self, _chain: HandlerChain, context: RequestContext, _response: Response) -> None:
        """Fetch the new lines before a request of CloudWatch Logs is answered; 503 if the emulator gives none."""
        if context.service is not None and context.service.service_name == "logs":
            with self._lock:
                while self._fetch_page():
                    pass

    def _fetch_page(self) -> bool:
        answer = self._send(AWSRequest("GET", f"{self._url}/slslab/logs?since={self._cursor}"), REGION)
        if answer.status_code != 200:
            raise CommonServiceException("ServiceUnavailableException", "The emulator gives no logs.", 503)
        page = json.loads(answer.content)
        backend, where = logs_backends[ACCOUNT][REGION], itemgetter("group", "stream")
        for (group, stream), lines in groupby(sorted(page["events"], key=where), key=where):
            backend.ensure_log_group(group)
            backend.ensure_log_stream(group, stream)
            told = [{"timestamp": line["timestamp_ms"], "message": line["message"]} for line in lines]
            backend.put_log_events(group, stream, sorted(told, key=itemgetter("timestamp")))
        self._cursor = page["cursor"]
        return page["more"]


def forwarding(url: str, pair: Credentials) -> DispatchTable:
    """A table that forwards every operation of Lambda's API to the emulator at `url`.

    Raises ServiceUnavailableException to the client (503) if nothing answers there.
    """
    send = sender(url, pair)

    def forward(context: RequestContext, _request: ServiceRequest) -> Response:
        given = context.request
        headers = {name: value for name, value in given.headers.items() if FORWARDED.fullmatch(name)}
        answer = send(
            AWSRequest(given.method, url + get_full_raw_path(given), headers, given.get_data()), context.region
        )
        return Response(answer.content, status=answer.status_code, headers=dict(answer.headers))

    return dict.fromkeys(load_service("lambda").operation_names, forward)


@aws_provider(api="lambda", name="slslab")
def lambda_slslab() -> Service:
    """The provider, as `entry_points.txt` names it."""
    return Service.for_provider(LambdaProvider(), dispatch_table_factory=lambda _provider: forwarding(*emulator()))


@on_infra_start(name="slslab-gate")
def gate() -> None:
    """Refuse pages of other web sites, before LocalStack looks at what they ask; bring logs before they are read."""
    handlers.preprocess_request.append(refuse_foreign)
    handlers.serve_custom_service_request_handlers.append(FunctionLogs(*emulator()).fetch)


def refuse_foreign(chain: HandlerChain, context: RequestContext, response: Response) -> None:
    """Answer a request with 403 if its Host is none of ours, or its Origin or Sec-Fetch-Site another site's."""
    headers = context.request.headers
    host = headers.get("Host", "")
    origins = {f"{scheme}://{host}" for scheme in ("http", "https")}
    fine = (
        _is_own(re.sub(r":\d{1,5}$", "", host).strip("[]"))
        and headers.get("Origin", f"http://{host}") in origins
        and headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
    )
    if not fine:
        response.status_code = 403
        response.data = b"This request comes from another web site's page, or calls this server by a foreign name."
        chain.terminate()


def _is_own(name: str) -> bool:
    if NAMES.fullmatch(name):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
