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
    """Show runs in a browser of this host, running ones as they continue, until Ctrl-C.

    \b
    slslab serve --open
    slslab run scatterreduce --epochs 5      in another terminal

    A run's page shows what its workers do, the running invocations with their memory against the limit, the loss and
    the bill so far; at the run's end it is the same page as report.html. The server listens on 127.0.0.1 only,
    and shows runs only to a browser that has opened the printed address, whose token is new at each start.
    """
    from slslab.run import directory
    from slslab_lab.pages.live.server import serve

    # The default folder is made by the first run; a folder given explicitly must exist.
    if folder is not None and not folder.is_dir():
        raise RequestError(f"There is no folder {folder}.", "name a folder of runs, or leave out --runs.")

    def ready(address: str) -> None:
        print_document({"url": address}, lambda: f"Runs are shown until Ctrl-C at {address}", json_)
        if open_:
            webbrowser.open(address)

    serve(folder or directory.root(), port, ready)
