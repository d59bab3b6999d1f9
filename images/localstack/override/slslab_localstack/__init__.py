"""LocalStack's Lambda by the emulator: every operation goes to $SLSLAB_LAMBDA_URL as it came, and back as it is.

A provider for LocalStack 4.14.0. This directory on PYTHONPATH and PROVIDER_OVERRIDE_LAMBDA=slslab are enough; nothing
is installed. LocalStack's Step Functions call Lambda through its own gateway and so reach the emulator, too.
"""

import os

import requests
from localstack.aws.api import CommonServiceException, RequestContext, ServiceRequest
from localstack.aws.skeleton import DispatchTable
from localstack.aws.spec import load_service
from localstack.http import Response
from localstack.http.proxy import Proxy
from localstack.services.plugins import Service, aws_provider

DEFAULT_URL = "http://emulator:9001"


class LambdaProvider:
    """What LocalStack knows of the provider; all operations are in its dispatch table."""

    service = "lambda"


def forwarding(url: str) -> DispatchTable:
    """A table that forwards every operation of Lambda's API to the emulator at `url`.

    Raises ServiceUnavailableException to the client (503) if nothing answers there.
    """
    proxy = Proxy(url)

    def forward(context: RequestContext, _request: ServiceRequest) -> Response:
        try:
            answer = proxy.forward(context.request)
        except requests.ConnectionError as error:
            message = f"The emulator does not answer at {url}: start it, or name its address in SLSLAB_LAMBDA_URL."
            raise CommonServiceException("ServiceUnavailableException", message, 503) from error
        # A plain copy: LocalStack passes on no other kind of response, and it adds what is its own.
        return Response(answer.get_data(), status=answer.status_code, headers=answer.headers)

    return dict.fromkeys(load_service("lambda").operation_names, forward)


@aws_provider(api="lambda", name="slslab")
def lambda_slslab() -> Service:
    """The provider, as `entry_points.txt` names it."""
    url = os.environ.get("SLSLAB_LAMBDA_URL", DEFAULT_URL)
    return Service.for_provider(LambdaProvider(), dispatch_table_factory=lambda _provider: forwarding(url))
