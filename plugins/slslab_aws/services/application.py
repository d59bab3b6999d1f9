"""moto's server, limited to the services of the edge."""

import io
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from moto.events.models import EventPattern, EventsBackend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.sqs.models import SQSBackend

from slslab.aws.errors import ServiceError
from slslab.aws.gate import refusal_document
from slslab.aws.requests import service_model
from slslab.host.litter import Litter
from slslab.statemachines.comparisons import matches
from slslab_aws.services import SERVICES, refusals
from slslab_aws.services.function_logs import FunctionLogs
from slslab_aws.services.rule_clock import RuleClock
from slslab_aws.services.targets import Targets
from slslab_aws.services.turns import LIMIT_S, Overdue, Turns

Environ = dict[str, Any]
StartResponse = Callable[..., Any]


class MotoHandler(MotoRequestHandler):  # type: ignore[misc]
    """Handles requests from a Unix socket, where clients have no address."""

    def address_string(self) -> str:
        """Return the client's name in moto's log."""
        return "edge"

    def log(self, type: str, message: str, *args: Any) -> None:
        """Print nothing, since a client gets errors in its answer."""


class Services:
    """The WSGI application: one request at a time, since moto's tables aren't thread-safe.

    A receiver that waits for messages lets other requests run, and wakes up after each of them.
    """

    def __init__(self, targets: Targets, logs: FunctionLogs) -> None:
        self._targets = targets
        self._logs = logs
        self._dispatcher = DomainDispatcherApplication(create_backend_app)
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._turns = Turns(self._changed)
        self._rules = RuleClock(lock, self._changed, targets)
        self._litter = Litter()
        patch_moto()
        receive = SQSBackend.receive_message
        SQSBackend.receive_message = lambda backend, queue, count, wait_s, *more, **named: self._receive(
            lambda: receive(backend, queue, count, 0, *more, **named), backend.get_queue(queue), wait_s
        )

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        try:
            operation, members = _operation(environ)
            refusals.check(operation, members, self._targets)
            if operation.startswith("logs:"):
                with self._changed:
                    self._logs.fetch()
            with self._turns.turn():
                answered = self._answer(operation, environ, start_response)
                if operation.startswith("events:"):
                    self._rules.read()
                self._changed.notify_all()
            return answered
        except ServiceError as error:
            return _refuse(error, environ, start_response)
        except Overdue:
            sentence = f"slslab ends a request that computes for more than {LIMIT_S:g} s: ask for less at once."
            return _refuse(ServiceError(400, "LimitExceededException", sentence), environ, start_response)
        finally:
            self._litter.collect()

    def _answer(self, operation: str, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Return moto's answer; ServiceError for an operation that moto lacks, or that fails in moto."""
        try:
            return list(self._application(environ)(environ, start_response))
        except NotImplementedError as error:
            raise ServiceError(400, "NotImplemented", f"slslab does not emulate {operation}.") from error
        except Exception as error:
            # documented: CommonErrors.html: an unexpected internal error. A request that breaks the operation's model,
            # such as one without a required member, ends here; AWS's clients don't send such requests.
            sentence = f"The emulated {operation} failed: {type(error).__name__}: {error}."
            raise ServiceError(500, "InternalFailure", sentence) from error

    def _application(self, environ: Environ) -> Any:
        """Return moto's application of the service, never one chosen by a path, such as moto's own API."""
        host = self._dispatcher.infer_service_region_host(environ, "")
        service = self._dispatcher.get_backend_for_host(host)
        if service not in self._dispatcher.app_instances:
            self._dispatcher.app_instances[service] = create_backend_app(service)
        return self._dispatcher.app_instances[service]

    def _receive(self, receive: Callable[[], list[Any]], queue: Any, wait_s: float) -> list[Any]:
        """Receive available messages, or wait for the first to arrive; moto would look again every few milliseconds."""
        end = time.monotonic() + (wait_s or 0)
        while not (found := receive()) and (left_s := end - time.monotonic()) > 0:
            now_ms = time.time() * 1000
            # Messages in flight or delayed become visible at a known time.
            later = [max(message.visible_at, message.delayed_until) - now_ms for message in queue._messages]
            self._changed.wait(min([left_s, *(max(ms, 1.0) / 1000 for ms in later)]))
        return found


def _operation(environ: Environ) -> tuple[str, Mapping[str, Any]]:
    """Return service and operation of a request, such as `sqs:SendMessage`, and its top-level members.

    Raises ServiceError if the service has no such operation on AWS, or the request is malformed.
    """
    service = environ["HTTP_AUTHORIZATION"].split("Credential=")[1].split("/")[3]
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    members: Any = dict(parse_qsl(body.decode("latin-1")))
    name = target.rpartition(".")[2] if target else members.get("Action", "")
    if service not in SERVICES:
        raise ServiceError(501, "UnknownOperationException", f"There is no {service} here.")
    if name not in service_model(service).operation_names:
        error = "UnknownOperationException" if target else "InvalidAction"
        raise ServiceError(400, error, f"Could not find operation {name} of {service}.")
    if target:
        try:
            members = json.loads(body or b"{}")
        except (ValueError, RecursionError):
            members = None
        if not isinstance(members, dict):
            raise ServiceError(400, "SerializationException", "The request's body is not a JSON object.")
    return f"{service}:{name}", members


def _refuse(error: ServiceError, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    status, media_type, document = refusal_document(error, environ.get("CONTENT_TYPE", ""))
    headers = [("Content-Type", media_type), ("Content-Length", str(len(document)))]
    start_response(f"{status} {error.error_type}", [*headers, ("x-amzn-ErrorType", error.error_type)])
    return [document]


def patch_moto() -> None:
    """Match wildcards in linear time, and take prefixes of names as text; once per process.

    As a regular expression, a client's text could block the whole process.
    """
    EventPattern._wildcard_match = staticmethod(lambda value, pattern: matches("StringMatches", value, pattern))
    list_queues, list_rules = SQSBackend.list_queues, EventsBackend.list_rules
    SQSBackend.list_queues = lambda backend, prefix: list_queues(backend, _as_text(prefix))
    EventsBackend.list_rules = lambda backend, prefix=None, **more: list_rules(backend, prefix=_as_text(prefix), **more)


def _as_text(prefix: Any) -> Any:
    return re.escape(prefix) if prefix else prefix
