"""`slslab doctor | limits`: what this host can enforce, and Lambda's limits."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from slslab.cli.terminal import json_option, print_document
from slslab.report.page import WORDS, Table


@click.command()
@json_option
def doctor(json_: bool) -> None:
    """Show what this host can enforce and measure."""
    from slslab.up.doctor import examine, findings_table

    findings = examine()
    document = {"findings": [asdict(finding) for finding in findings]}
    print_document(document, lambda: findings_table(findings), json_)


@click.command()
@json_option
def limits(json_: bool) -> None:
    """Show Lambda's limits as enforced here, each with its source and whether AWS documents it.

    The second table lists function settings that are stored but have no effect here.
    """
    from slslab.aws.limits import WITHOUT_EFFECT, bases, lambda_limits

    values, sources = asdict(lambda_limits()), bases()
    rows = {name: {"value": values[name], **sources[name]} for name in sources}
    document = {"version": values["version"], "limits": rows, "without_effect": dict(WITHOUT_EFFECT)}
    print_document(document, lambda: limits_tables(document), json_)


def limits_tables(document: Mapping[str, Any]) -> tuple[Table, Table]:
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
