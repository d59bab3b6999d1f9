"""Replace parts of moto where a client's text would become a regular expression that blocks the whole process.

`patch` does so once per process.
"""

import re
from typing import Any

from moto.events.models import EventPattern, EventsBackend
from moto.sqs.models import SQSBackend

from slslab.statemachines.comparisons import matches


def patch() -> None:
    """Match wildcards in linear time, and take prefixes of names as text."""
    EventPattern._wildcard_match = staticmethod(lambda value, pattern: matches("StringMatches", value, pattern))
    list_queues, list_rules = SQSBackend.list_queues, EventsBackend.list_rules
    SQSBackend.list_queues = lambda backend, prefix: list_queues(backend, _as_text(prefix))
    EventsBackend.list_rules = lambda backend, prefix=None, **more: list_rules(backend, prefix=_as_text(prefix), **more)


def _as_text(prefix: Any) -> Any:
    return re.escape(prefix) if prefix else prefix
