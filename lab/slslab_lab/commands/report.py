"""`slslab report`: the page of a run."""

import webbrowser
from pathlib import Path

import click

from slslab.cli.terminal import json_option, print_document, run_argument
from slslab_lab.commands.options import file_option


@click.command()
@run_argument
@file_option("--out", "Write it here (by default the run's report.html).")
@click.option("--open", "open_", is_flag=True, help="Open it in the browser.")
@json_option
def report(run: str, out: Path | None, open_: bool, json_: bool) -> None:
    """Write the page of a run: one HTML file that needs no network.

    \b
    slslab report                      the last run's, into its directory
    slslab report last~1 --out a.html --open
    slslab report up                   what your own functions did since `slslab up`
    """
    from slslab.report.html.page import write_page
    from slslab.run.directory import resolve
    from slslab.run.service import open_run
    from slslab_lab.pages.run_page import PAGE, page_of

    shown = open_run(resolve(run))
    path = out or shown.directory.path / PAGE
    write_page(path, page_of(shown))
    if open_:
        webbrowser.open(path.resolve().as_uri())
    written = {"run": shown.id, "report": str(path), "bytes": path.stat().st_size}
    print_document(written, lambda: f"The page of {shown.id} is {path}.", json_)
