"""What a deployment did, for the terminal."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from slslab.report.terminal.tables import plain_table


def deployment(document: Mapping[str, Any]) -> RenderableType:
    """Return what was done in one sentence, the resources, and the outputs."""
    resources, outputs = document["resources"], document["outputs"]
    counts = Counter(resource["done"] for resource in resources)
    done = ", ".join(f"{count} {what}" for what, count in counts.items()) or "nothing to do"
    parts: list[RenderableType] = [Text(f"Stack {document['stack']}: {done}.")]
    if resources:
        rows = ((each["done"], each["resource"], each["type"], each["ref"]) for each in resources)
        parts.append(plain_table(("", "resource", "type", "is"), rows, words=True))
    if outputs:
        parts.append(
            plain_table(("output", "value"), ((name, str(value)) for name, value in outputs.items()), words=True)
        )
    return Group(*parts)
