"""The operations on how events are retried, and where their records go.

Texts of errors are measured (recorded from AWS).
https://docs.aws.amazon.com/lambda/latest/api/API_PutFunctionEventInvokeConfig.html
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.errors import ServiceError, invalid, missing
from slslab.lambda_.api import Answer, Call
from slslab.lambda_.attachments import EventInvokeConfig
from slslab.lambda_.functions import FunctionResource, Target
from slslab.lambda_.references import LATEST, function_arn, parse

BUCKET, FUNCTION, QUEUE = "arn:aws:s3:::", "arn:aws:lambda:", "arn:aws:sqs:"
TOPIC = "arn:aws:sns:"


class EventInvokeConfigs(FunctionResource):
    """The configurations of one emulator's functions."""

    async def _put_function_event_invoke_config(self, call: Call) -> Answer:
        return self.put(call.name, call.qualifier, call.members, keep=False).document()

    async def _update_function_event_invoke_config(self, call: Call) -> Answer:
        return self.put(call.name, call.qualifier, call.members, keep=True).document()

    async def _get_function_event_invoke_config(self, call: Call) -> Answer:
        return self.get(call.name, call.qualifier).document()

    async def _list_function_event_invoke_configs(self, call: Call) -> Answer:
        if not self._functions.exists(call.name):
            raise missing("The function doesn't exist.")
        configs = self._functions.entry(call.name).events
        return call.page("FunctionEventInvokeConfigs", {key: configs[key].document() for key in configs})

    async def _delete_function_event_invoke_config(self, call: Call) -> None:
        self.get(call.name, call.qualifier)  # raises if there is none
        del self._functions.entry(call.name).events[call.qualifier or LATEST]

    def put(self, name: str, qualifier: str | None, request: Mapping[str, Any], *, keep: bool) -> EventInvokeConfig:
        """Carry out PutFunctionEventInvokeConfig, or with `keep` its Update, which keeps unnamed settings."""
        given = [request.get(member) for member in ("MaximumRetryAttempts", "MaximumEventAgeInSeconds")]
        if given == [None, None] and not request.get("DestinationConfig"):
            raise invalid("You must specify at least one of error handling or destination setting.")
        try:
            self._functions.resolve(name, qualifier)
        except ServiceError as error:
            raise missing("The function doesn't exist.") from error
        before = self.get(name, qualifier) if keep else EventInvokeConfig()
        retries, age_s = given
        config = EventInvokeConfig(
            function_arn(name, qualifier or LATEST),
            before.maximum_retry_attempts if retries is None else retries,
            before.maximum_event_age_s if age_s is None else age_s,
            {**before.destinations, **self._destinations(name, request.get("DestinationConfig") or {})},
            datetime.now(UTC).timestamp(),
        )
        self._functions.entry(name).events[qualifier or LATEST] = config
        return config

    def get(self, name: str, qualifier: str | None) -> EventInvokeConfig:
        """Carry out GetFunctionEventInvokeConfig."""
        found = self._find(name, qualifier)
        if found is None:
            arn = function_arn(name, qualifier or LATEST)
            raise missing(f"The function {arn} doesn't have an EventInvokeConfig")
        return found

    def handling(self, target: Target) -> tuple[int, int, Mapping[str, str]]:
        """Return what applies to an event of this target: its retries, its maximum age, s, and its destinations."""
        limits = self._functions.limits
        config = self._find(target.function.name, target.qualifier) or EventInvokeConfig()
        retries, age_s = config.maximum_retry_attempts, config.maximum_event_age_s
        return (
            limits.event_retries.default if retries is None else retries,
            limits.event_age_s.default if age_s is None else age_s,
            config.destinations,
        )

    def _find(self, name: str, qualifier: str | None) -> EventInvokeConfig | None:
        return self._functions.entry(name).events.get(qualifier or LATEST) if self._functions.exists(name) else None

    def _destinations(self, name: str, given: Mapping[str, Any]) -> dict[str, str]:
        found: dict[str, str] = {}
        for kind in [kind for kind in ("OnSuccess", "OnFailure") if "Destination" in given.get(kind, {})]:
            arn = str(given[kind]["Destination"])
            if arn.startswith(FUNCTION):
                destination = parse(arn)
                place = (destination.account, destination.region)
                if not self._functions.exists(destination.name) or place != (ACCOUNT, REGION):
                    raise invalid(f"The destination ARN {arn} is invalid.")
                if destination.name == name:
                    raise invalid("You can't specify the function as a destination for itself.")
            elif arn and not (arn.startswith((QUEUE, TOPIC)) or (arn.startswith(BUCKET) and kind == "OnFailure")):
                raise invalid(
                    f"slslab can't send events to {arn}: name a function, an SQS queue, an SNS topic, or for failures "
                    "an S3 bucket (arn:aws:s3:::BUCKET)."
                )
            found[kind] = arn
        return found
