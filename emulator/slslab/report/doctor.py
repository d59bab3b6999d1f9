"""The output of `slslab doctor`, `slslab limits` and `slslab status`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slslab.installation import lacking
from slslab.report.page import WORDS, Cell, Table
from slslab_workers.channels.endpoints import QUEUE_URL, TENSOR_URLS

OK, PARTLY, MISSING = "ok", "partly", "missing"
MOODS = {OK: "good", PARTLY: "warn", MISSING: "bad"}
# Endpoints with other variables than AWS_ENDPOINT_URL_ and their name.
VARIABLES = {"aws": "AWS_ENDPOINT_URL", "states": "AWS_ENDPOINT_URL_SFN", "tensors": TENSOR_URLS, "queue": QUEUE_URL}


@dataclass(frozen=True)
class Finding:
    """One examined thing: its state (`ok`, `partly`, `missing`), what was found, and what to do about it."""

    subject: str
    state: str
    found: str
    hint: str = ""


def limits(document: Mapping[str, Any]) -> tuple[Table, Table]:
    """Return Lambda's limits with their sources, and the settings that have no effect here."""
    rows: Mapping[str, Mapping[str, Any]] = document["limits"]
    return (
        Table(
            ("limit", "value", "basis", "source"),
            [(name, _limit(row["value"]), row["basis"], _source(row)) for name, row in rows.items()],
            caption=f"Limits of AWS Lambda, version {document['version']}",
            words=WORDS,
        ),
        Table(
            ("setting", "here"),
            list(document["without_effect"].items()),
            caption="Function settings that are stored and returned, but have no effect here",
            words=WORDS,
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


def service(described: Mapping[str, Any]) -> Iterator[Table]:
    """Yield tables of a running stack's endpoints, and of its services if they were examined."""
    yield _endpoints(described)
    if "services" in described:
        rows = [
            (
                each["part"],
                each["name"],
                "healthy" if each["healthy"] else each["trouble"],
                "\n".join(each["host"].split()),
            )
            for each in described["services"]
        ]
        yield Table(("service", "version", "health", "address"), rows, words=WORDS)


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
    return Table(("slslab is up", ""), list((endpoints | facts).items()), words=WORDS)


def findings(examined: Sequence[Finding]) -> Table:
    """Return the table of `doctor`'s findings."""
    rows = [(each.subject, Cell(each.state, mood=MOODS[each.state]), each.found, each.hint) for each in examined]
    return Table(("", "", "found", "what it means"), rows, words=WORDS)
