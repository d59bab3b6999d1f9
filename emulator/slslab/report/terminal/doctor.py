"""What `slslab doctor`, `slslab limits` and `slslab status` print."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slslab.installation import lacking
from slslab.report.terminal.tables import plain_table
from slslab_workers.channels.endpoints import QUEUE_URL, TENSOR_URLS

OK, PARTLY, MISSING = "ok", "partly", "missing"
COLOURS = {OK: "green", PARTLY: "yellow", MISSING: "red"}
# Endpoints whose variable is not AWS_ENDPOINT_URL_ and their name.
VARIABLES = {"aws": "AWS_ENDPOINT_URL", "states": "AWS_ENDPOINT_URL_SFN", "tensors": TENSOR_URLS, "queue": QUEUE_URL}


@dataclass(frozen=True)
class Finding:
    """One examined thing: its state (`ok`, `partly`, `missing`), what was found, and what to do about it."""

    subject: str
    state: str
    found: str
    hint: str = ""
    needed: bool = False


def limits(document: Mapping[str, Any]) -> RenderableType:
    """Return Lambda's limits with their sources, and the settings that have no effect here."""
    rows: Mapping[str, Mapping[str, Any]] = document["limits"]
    return Group(
        plain_table(
            ("limit", "value", "basis", "source"),
            ((name, _limit(row["value"]), row["basis"], _source(row)) for name, row in rows.items()),
            title=f"Limits of AWS Lambda, version {document['version']}",
            words=True,
        ),
        plain_table(
            ("setting", "here"),
            document["without_effect"].items(),
            title="Settings of functions that are stored and answered, and change nothing here",
            words=True,
        ),
    )


def _limit(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{value['minimum']:,} to {value['maximum']:,}, by default {value['default']:,}"
    if isinstance(value, Sequence):
        return ", ".join(f"{cores} up to {memory_mb:,} MB" for memory_mb, cores in value)
    return f"{value:,}"


def _source(row: Mapping[str, Any]) -> str:
    page = str(row["source"].rpartition("/")[2])
    return f"{page}: {row['note']}" if row["note"] else page


def service(described: Mapping[str, Any]) -> RenderableType:
    """Return the endpoints of a running stack and how to use them, and its services if they were examined."""
    endpoints = _endpoints(described)
    return Group(endpoints, _services(described["services"])) if "services" in described else endpoints


def _services(services: Sequence[Mapping[str, Any]]) -> Table:
    return plain_table(
        ("service", "version", "health", "address"),
        (
            (
                each["part"],
                each["name"],
                "healthy" if each["healthy"] else each["trouble"],
                "\n".join(each["host"].split()),
            )
            for each in services
        ),
        words=True,
    )


def _endpoints(described: Mapping[str, Any]) -> Table:
    endpoints = {
        VARIABLES.get(name, f"AWS_ENDPOINT_URL_{name.upper()}"): " ".join(url) if name == "tensors" else url
        for name, url in described["endpoints"].items()
    }
    names = ("confinement", "isolation", "logs", "record", "pid", "environment")
    facts = {name: str(described[name]) for name in names if name in described}
    if "states" not in described["endpoints"] and described.get("kind") == "embedded":
        facts["Step Functions"] = f"{lacking('moto').hint} adds it"
    if "aws" not in described["endpoints"] and described.get("kind") == "embedded":
        facts["one endpoint"] = f"{lacking('aiohttp').hint} adds it"
    facts["keys"] = 'eval "$(slslab env)"'
    return plain_table(("slslab is up", ""), (endpoints | facts).items(), words=True)


def findings(examined: Sequence[Finding]) -> Table:
    """Return what `doctor` found."""
    table = Table("", "", "found", "what follows", box=None, pad_edge=False)
    for finding in examined:
        table.add_row(finding.subject, Text(finding.state, COLOURS[finding.state]), finding.found, finding.hint)
    return table
