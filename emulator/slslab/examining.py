"""`slslab calibrate | doctor | limits`: what this host does and can enforce, and what Lambda's limits are."""

from dataclasses import asdict
from pathlib import Path

import click

from slslab.errors import RequestError
from slslab.terminal import Bar, json_option, print_document


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--epochs", type=click.IntRange(1), help="Fit to so many first epochs of the runs (by default half).")
@click.option(
    "--cloudwatch",
    "reports",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Fit Lambda's processors and init to the REPORT lines of this log (text, JSON, or JSON lines).",
)
@click.option("--run", metavar="RUN", help="The recorded run that the REPORT lines are compared with.")
@click.option("--function", metavar="NAME", help="The function of the run whose log it is, if it has several.")
@click.option(
    "--profile",
    default="aws-us-east-1",
    show_default=True,
    help="The profile that the REPORT lines change, by name, or a TOML file.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The profile's file (by default ./this-host.toml, with --cloudwatch ./aws-calibrated.toml).",
)
@json_option
def calibrate(
    runs: tuple[str, ...],
    epochs: int | None,
    reports: Path | None,
    run: str | None,
    function: str | None,
    profile: str,
    out: Path | None,
    json_: bool,
) -> None:
    """Measure this host for replay: its processors, and the embedded S3, tensor database and queue.

    With RUNs, the profile of the host is fitted to what they recorded in their first epochs. With --cloudwatch,
    Lambda's processors are fitted to REPORT lines of a real function and the same plan's recorded run.

    \b
    slslab calibrate
    slslab calibrate last --epochs 2 --out laptop.toml
    slslab calibrate --cloudwatch reports.json --run last --function worker
    """
    from slslab import calibrating
    from slslab.reports import calibrations

    if reports is not None:
        if runs or run is None:
            raise RequestError("--cloudwatch needs one recorded run.", "slslab calibrate --cloudwatch FILE --run RUN")
        document = calibrating.calibrate_cloudwatch(reports, run, function, profile, out)
    elif run is not None or function is not None:
        raise RequestError("--run and --function belong to --cloudwatch.", "slslab calibrate RUN fits this host.")
    else:
        with Bar() as bar:
            document = (
                calibrating.calibrate_runs(runs, epochs, out, bar.report)
                if runs
                else calibrating.calibrate_host(out, bar.report)
            )
    print_document(document, lambda: calibrations.calibration(document), json_)


@click.command()
@json_option
def doctor(json_: bool) -> None:
    """Tell what this host can enforce and measure; exit code 3 if something that a run needs is missing."""
    from slslab.doctor import MISSING, examine
    from slslab.reports import tables

    findings = examine()
    print_document([asdict(finding) for finding in findings], lambda: tables.findings(findings), json_)
    if any(finding.needed and finding.state == MISSING for finding in findings):
        raise click.exceptions.Exit(3)


@click.command()
@json_option
def limits(json_: bool) -> None:
    """Lambda's limits as they are enforced here, each with its source, and whether AWS documents it."""
    from slslab.limits import bases, lambda_limits
    from slslab.reports import tables

    values, sources = asdict(lambda_limits()), bases()
    rows = {name: {"value": values[name], **asdict(sources[name])} for name in sources}
    print_document(
        {"version": values["version"], "limits": rows}, lambda: tables.limits(values["version"], rows), json_
    )
