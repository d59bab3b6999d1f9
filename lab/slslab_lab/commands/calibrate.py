"""`slslab calibrate`: profiles of the host of recorded runs, and of Lambda's processors."""

from pathlib import Path

import click

from slslab.cli.terminal import Bar, complete_run, json_option, print_document
from slslab.errors import RequestError
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab_lab.commands.options import file_option
from slslab_lab.pages.calibration import calibration, processor_table


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=complete_run)
@click.option(
    "--processor",
    is_flag=True,
    help="Measure this machine's processor next to Lambda's, in at most 90 s, and keep the result.",
)
@click.option("--epochs", type=click.IntRange(1), help="Fit to this many first epochs of the runs (by default half).")
@file_option(
    "--cloudwatch",
    "Fit Lambda's processors and init to the REPORT lines of this log (text, JSON, or JSON lines; - is standard "
    "input).",
    "reports",
)
@click.option("--run", metavar="RUN", help="Compare the REPORT lines with this recorded run, or `up`.")
@click.option("--function", metavar="NAME", help="The function that wrote the log, if the run has several.")
@click.option(
    "--profile",
    default=DEFAULT_PROFILE,
    show_default=True,
    help="The profile to fit to the REPORT lines: a name or a TOML file.",
)
@file_option(
    "--out",
    "The profile's file (by default ./this-host.toml, with --cloudwatch ./aws-calibrated.toml, and for `up` a file of "
    "its record, which `show up` and `bill up` use).",
)
@json_option
def calibrate(
    runs: tuple[str, ...],
    processor: bool,
    epochs: int | None,
    reports: Path | None,
    run: str | None,
    function: str | None,
    profile: str,
    out: Path | None,
    json_: bool,
) -> None:
    """Measure this machine's processor, or fit a profile to runs or to REPORT lines from AWS.

    With RUNs, the profile of their host is fitted to their first epochs. With --cloudwatch, Lambda's processors are
    fitted to REPORT lines of a real function and the same plan's recorded run. With --processor, work with known times
    on Lambda is timed here, to convert this machine's CPU seconds to Lambda's.

    \b
    slslab calibrate --processor
    slslab calibrate last --epochs 2 --out laptop.toml
    slslab calibrate --cloudwatch reports.json --run last --function worker
    slslab calibrate --cloudwatch reports.json --run up --function hello
    aws logs filter-log-events … | slslab calibrate --cloudwatch - --run last
    """
    from slslab_lab.calibration import calibrate as calibrating

    if processor:
        if runs or reports is not None or run is not None or function is not None or epochs or out:
            raise RequestError("--processor takes no runs, log or file.", "slslab calibrate --processor")
        from slslab_lab.calibration.processor import calibrate_processor

        with Bar() as bar:
            measured = calibrate_processor(bar.report)
        print_document(measured, lambda: processor_table(measured), json_)
        return
    if reports is not None:
        if runs or run is None:
            raise RequestError("--cloudwatch needs one recorded run.", "slslab calibrate --cloudwatch FILE --run RUN")
        document = calibrating.calibrate_cloudwatch(reports, run, function, profile, out)
    elif run is not None or function is not None:
        raise RequestError("--run and --function belong to --cloudwatch.", "slslab calibrate RUN fits this host.")
    elif not runs:
        raise RequestError("calibrate needs a RUN, --cloudwatch FILE or --processor.", "slslab calibrate last")
    else:
        with Bar() as bar:
            document = calibrating.calibrate_runs(runs, epochs, out, bar.report)
    print_document(document, lambda: calibration(document), json_)
