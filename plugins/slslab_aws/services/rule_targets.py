"""Check a rule's targets, and make the input of each.

https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_Target.html
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from slslab.statemachines.paths import NoSuchPath, parse
from slslab_aws.services import RULE_TARGETS

# documented: API_PutTargets.html; rules use the first ones, and only store the last two.
MEMBERS = frozenset("Arn Id Input InputPath SqsParameters RoleArn RetryPolicy".split())
# documented: eb-transform-target-input.html: names, array indices and wildcards.
INPUT_PATH = re.compile(r"""\$(\.([\w/-]+|\*)|\[(\d{1,9}|\*|'[^'\\]+'|"[^"\\]+")\])*""")


def target_problems(target: Mapping[str, Any]) -> Iterator[str]:
    """Yield the errors of a target that slslab or EventBridge would return, without a full stop."""
    arn, name = str(target.get("Arn")), target.get("Id")
    if ":".join(arn.split(":")[2:3]) not in RULE_TARGETS:
        yield f"the target {arn} must be one of {', '.join(RULE_TARGETS)}"
    if arn.endswith(".fifo") and not target.get("SqsParameters"):
        yield f"the target {name} is a FIFO queue and needs SqsParameters"
    if {"Input", "InputPath"} <= target.keys():
        yield f"the target {name} has Input and InputPath; only one is possible"
    try:
        json.loads(target.get("Input", "null"))
    except (TypeError, ValueError, RecursionError):
        yield f"the Input of the target {name} is not JSON"
    path = target.get("InputPath", "$")
    if not INPUT_PATH.fullmatch(str(path)):
        yield f"the target {name} reads {json.dumps(path)}, which is not a path such as $.detail"
    for member in sorted(target.keys() - MEMBERS):
        yield f"slslab does not emulate {member} of a target ({name})"


def target_input(target: Mapping[str, Any], event: Mapping[str, Any]) -> Any:
    """Return a target's input: a constant, a part of the event, or the event.

    https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_Target.html
    """
    if "Input" in target:
        return json.loads(target["Input"])
    # documented: eb-events-structure.html: the time is a text. moto's time is in seconds, with an additional member.
    told = {name: value for name, value in event.items() if name != "ingestion-time"}
    told["time"] = f"{datetime.fromtimestamp(float(event['time']), UTC):%Y-%m-%dT%H:%M:%SZ}"
    if "InputPath" in target:
        try:
            return parse(target["InputPath"]).read(told)
        except NoSuchPath:
            return None
    return told
