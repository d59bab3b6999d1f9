"""`slslab doctor | limits`: what this host can enforce, and Lambda's limits."""

from dataclasses import asdict

import click

from slslab.cli.terminal import json_option, print_document
from slslab.report import doctor as doctor_module


@click.command()
@json_option
def doctor(json_: bool) -> None:
    """Show what this host can enforce and measure."""
    from slslab.up.doctor import examine

    findings = examine()
    document = {"findings": [asdict(finding) for finding in findings]}
    print_document(document, lambda: doctor_module.findings(findings), json_)


@click.command()
@json_option
def limits(json_: bool) -> None:
    """Show Lambda's limits as enforced here, each with its source and whether AWS documents it.

    The second table lists function settings that are stored but have no effect here.
    """
    from slslab.aws.limits import bases, lambda_limits
    from slslab.lambda_.configuration import WITHOUT_EFFECT

    values, sources = asdict(lambda_limits()), bases()
    rows = {name: {"value": values[name], **asdict(sources[name])} for name in sources}
    document = {"version": values["version"], "limits": rows, "without_effect": dict(WITHOUT_EFFECT)}
    print_document(document, lambda: doctor_module.limits(document), json_)
