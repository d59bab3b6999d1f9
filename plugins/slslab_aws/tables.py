"""The output of a deployment, for the terminal."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from slslab.report.page import WORDS, Part, Table


def deployment(document: Mapping[str, Any]) -> Iterator[Part]:
    """Yield a summary in one sentence, the resources, and the outputs."""
    resources, outputs = document["resources"], document["outputs"]
    counts = Counter(resource["done"] for resource in resources)
    done = ", ".join(f"{count} {what}" for what, count in counts.items()) or "nothing to do"
    yield f"Stack {document['stack']}: {done}."
    if resources:
        rows = [(each["done"], each["resource"], each["type"], each["ref"]) for each in resources]
        yield Table(("", "resource", "type", "is"), rows, words=WORDS)
    if outputs:
        yield Table(("output", "value"), [(name, str(value)) for name, value in outputs.items()], words=WORDS)
