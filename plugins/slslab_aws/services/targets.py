"""The emulated Lambda and Step Functions, called by moto's services in place of moto's own."""

import json
import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import botocore.exceptions
import moto.awslambda.utils
from moto.core.exceptions import JsonRESTError, ServiceException
from moto.events.models import Rule
from moto.logs.models import logs_backends
from moto.sns.models import Subscription
from moto.sqs.models import sqs_backends

from slslab.aws.clients import aws_client
from slslab.aws.keys import Pair
from slslab_aws.services.rule_targets import target_input

LOG = logging.getLogger(__name__)


class Targets:
    """The targets of topics and rules; it connects moto's services to the emulated ones."""

    def __init__(self, lambda_endpoint: str, states_endpoint: str, owner: Pair) -> None:
        self._lambda = aws_client("lambda", lambda_endpoint, owner)
        self._states = aws_client("stepfunctions", states_endpoint, owner) if states_endpoint else None
        moto.awslambda.utils.get_backend = _no_backend
        self._publish = Subscription.publish
        Subscription.publish = lambda subscription, *given, **named: self._notify(subscription, *given, **named)
        Rule.send_to_targets = lambda rule, event, *_, **__: self._pass_on(rule, event)

    def exists(self, function: str) -> bool:
        """Return whether a function with this ARN exists."""
        try:
            self._lambda.get_function_configuration(FunctionName=function)
        except botocore.exceptions.ClientError:
            return False
        return True

    def _notify(
        self, subscription: Any, message: str, message_id: str, subject: str | None = None, **more: Any
    ) -> None:
        """Publish to one subscription: to a function as an event (documented: with-sns.html), to a queue by moto."""
        attributes: Mapping[str, Any] = more.get("message_attributes") or {}
        if subscription.protocol != "lambda":
            self._publish(subscription, message, message_id, subject, **more)
            return
        matcher = subscription._filter_policy_matcher
        if matcher is not None and not matcher.matches(attributes, message):
            return
        if more.get("message_structure") == "json":
            message = subscription._parse_message_structure(message, "lambda")
        data = subscription.get_post_data(message, message_id, subject, message_attributes=dict(attributes))
        # To functions it goes under other names than to queues (documented): the URLs' abbreviation, and all members.
        signed = {"SigningCertUrl": data.pop("SigningCertURL"), "UnsubscribeUrl": data.pop("UnsubscribeURL")}
        notification = {"Subject": None, "MessageAttributes": {}, **data, **signed}
        record = {
            "EventSource": "aws:sns",
            "EventVersion": "1.0",
            "EventSubscriptionArn": subscription.arn,
            "Sns": notification,
        }
        event = json.dumps({"Records": [record]})
        with _delivery(subscription.endpoint):
            self._lambda.invoke(FunctionName=subscription.endpoint, InvocationType="Event", Payload=event)

    def _pass_on(self, rule: Any, event: Mapping[str, Any]) -> None:
        """Send an event to a rule's targets if its pattern matches; a rule with only a schedule matches no event."""
        if rule.state != "DISABLED" and rule.event_pattern.dump() and rule.event_pattern.matches_event(event):
            self.send(rule, event)

    def send(self, rule: Any, event: Mapping[str, Any]) -> None:
        """Send an event to the targets of a rule."""
        for target in rule.targets:
            with _delivery(target["Arn"]):
                self._start(rule, target, json.dumps(target_input(target, event)))

    def _start(self, rule: Any, target: Mapping[str, Any], text: str) -> None:
        arn = target["Arn"]
        service, name = arn.split(":")[2], arn.removesuffix(":*").rpartition(":")[2]
        if service == "sqs":
            group = target.get("SqsParameters", {}).get("MessageGroupId")
            sqs_backends[rule.account_id][rule.region_name].send_message(name, text, group_id=group)
        elif service == "logs":
            logs, stream = logs_backends[rule.account_id][rule.region_name], str(uuid.uuid4())
            logs.create_log_stream(name, stream)
            logs.put_log_events(name, stream, [{"timestamp": time.time_ns() // 1_000_000, "message": text}])
        elif service == "lambda":
            self._lambda.invoke(FunctionName=arn, InvocationType="Event", Payload=text)
        elif self._states is not None:
            self._states.start_execution(stateMachineArn=arn, input=text)


@contextmanager
def _delivery(arn: str) -> Iterator[None]:
    """Log a target's refusal; as on AWS, the publisher doesn't learn about it."""
    try:
        yield
    except (botocore.exceptions.ClientError, JsonRESTError, ServiceException) as error:
        LOG.error("%s refused an event: %s", arn, error)


def _no_backend(_account: str, _region: str) -> NoReturn:
    raise NotImplementedError("moto's Lambda isn't used: slslab emulates Lambda")
