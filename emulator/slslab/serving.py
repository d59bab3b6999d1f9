"""`slslab serve`: pages of runs in a browser, while they go on and after."""

import webbrowser
from pathlib import Path

import click

from slslab.errors import RequestError
from slslab.terminal import json_option, print_document


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 for any free one.")
@click.option(
    "--runs",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The folder of runs (by default $SLSLAB_RUNS or ./runs).",
)
@click.option("--open", "open_", is_flag=True, help="Open it in the browser.")
@json_option
def serve(port: int, folder: Path | None, open_: bool, json_: bool) -> None:
    """Show runs in a browser of this host, those that go on as they go on, until Ctrl-C.

    \b
    slslab serve --open
    slslab run scatterreduce --epochs 5      in another terminal

    A run's page says what its workers do, which invocations are under way with their memory against the limit, the loss
    and the bill so far; at the run's end it is the same page as report.html. The server listens on 127.0.0.1 alone.
    """
    from rich.text import Text

    from slslab import runs
    from slslab.live.server import serve

    # The usual folder may be still to come, with the first run; one that was named is a slip of the pen.
    if folder is not None and not folder.is_dir():
        raise RequestError(f"There is no folder {folder}.", "name one that holds runs, or leave out --runs.")

    def ready(address: str) -> None:
        print_document({"url": address}, lambda: Text(f"Runs are shown at {address} until Ctrl-C."), json_)
        if open_:
            webbrowser.open(address)

    serve(folder or runs.root(), port, ready)
