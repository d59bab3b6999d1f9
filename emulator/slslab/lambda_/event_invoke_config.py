"""What is set for the events of a function, a version or an alias.

https://docs.aws.amazon.com/lambda/latest/api/API_FunctionEventInvokeConfig.html
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class EventInvokeConfig:
    """What is set for the events of one function, version or alias; what is None has Lambda's default."""

    arn: str = ""
    maximum_retry_attempts: int | None = None
    maximum_event_age_s: int | None = None
    destinations: Mapping[str, str] = field(default_factory=dict)
    last_modified: float = 0.0

    def document(self) -> dict[str, Any]:
        """Return the API's FunctionEventInvokeConfig."""
        limits = {
            "MaximumRetryAttempts": self.maximum_retry_attempts,
            "MaximumEventAgeInSeconds": self.maximum_event_age_s,
        }
        return {
            "LastModified": self.last_modified,
            "FunctionArn": self.arn,
            **{name: value for name, value in limits.items() if value is not None},
            "DestinationConfig": {
                kind: {"Destination": self.destinations[kind]} if self.destinations.get(kind) else {}
                for kind in ("OnSuccess", "OnFailure")
            },
        }


@dataclass(frozen=True)
class Handling:
    """What applies to an event: how often it is tried again, how old it may become, and where its record goes."""

    retries: int
    age_s: int
    destinations: Mapping[str, str]
