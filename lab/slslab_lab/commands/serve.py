"""`slslab serve`: pages of runs in a browser, during the run and after it."""

import webbrowser
from pathlib import Path

import click

from slslab.cli.terminal import json_option, print_document
from slslab.errors import RequestError
from slslab_lab.commands.options import directory_option


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 for any free one.")
@directory_option("--runs", "The folder of runs (by default $SLSLAB_RUNS or ./runs).", "folder")
@click.option("--open", "open_", is_flag=True, help="Open it in the browser.")
@json_option
def serve(port: int, folder: Path | None, open_: bool, json_: bool) -> None:
    """Show runs in a browser on this host, including live ones, until Ctrl-C.

    \b
    slslab serve --open
    slslab run scatterreduce --epochs 5      in another terminal

    A run's page shows its workers' activity, the running invocations with their memory against the limit, and the loss
    and bill so far; at the run's end it becomes report.html. The server only listens on 127.0.0.1, and only shows runs
    to a browser that has opened the printed address, which has a new token at each start.
    """
    from slslab.run import directory
    from slslab_lab.pages.live.server import serve

    # The first run makes the default folder; a folder given explicitly must exist.
    if folder is not None and not folder.is_dir():
        raise RequestError(f"There is no folder {folder}.", "name a folder of runs, or leave out --runs.")

    def ready(address: str) -> None:
        print_document({"url": address}, lambda: f"Runs are shown until Ctrl-C at {address}", json_)
        if open_:
            webbrowser.open(address)

    serve(folder or directory.root(), port, ready)
