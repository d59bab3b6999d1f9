"""`slslab export`: runs in the formats of other tools."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from slslab.errors import HostError, RequestError
from slslab.terminal import json_option, print_document

SCHEMA = 1
FORMATS = ("csv", "parquet", "mlflow", "tensorboard")
FOLDER = Path("exports")
EXPERIMENT = "slslab"
# Formats that need a package that is not always there, by the name that it is imported by.
EXTRAS = {"mlflow": "mlflow", "tensorboard": "tensorboard"}


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--to", "kind", type=click.Choice(FORMATS), required=True, help="The format.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where the files go (by default ./exports/FORMAT).",
)
@click.option("--tracking-uri", "uri", metavar="URI", help="MLflow: a tracking server or store instead of --out.")
@click.option("--experiment", metavar="NAME", help="MLflow: the experiment (by default slslab).")
@json_option
def export(
    runs: tuple[str, ...], kind: str, out: Path | None, uri: str | None, experiment: str | None, json_: bool
) -> None:
    """Write runs as CSV or Parquet tables, to MLflow, or as TensorBoard's event files.

    \b
    slslab export last --to parquet --out tables
    slslab export last~1 last --to mlflow --out mlruns
    slslab export last --to mlflow --tracking-uri http://127.0.0.1:5000 --experiment digits
    slslab export last --to tensorboard --out boards

    Several runs give one table each with a column `run`; schema.json beside them says what the columns are. What is
    exported twice is there once: files are replaced, and a run that an MLflow experiment has is left as it is.
    """
    if kind != "mlflow" and (uri is not None or experiment is not None):
        raise RequestError("--tracking-uri and --experiment belong to --to mlflow.", f"choose --out with --to {kind}.")
    if uri is not None and out is not None:
        raise RequestError("--out and --tracking-uri name two places.", "choose one of them.")
    if kind in EXTRAS and find_spec(EXTRAS[kind]) is None:
        raise HostError(f"The package {EXTRAS[kind]} is not installed.", f"pip install 'slslab[{kind}]'")
    from slslab.exports.finished import read_finished

    found = read_finished(runs)
    folder = out or FOLDER / kind
    document: dict[str, Any] = {"schema": SCHEMA, "to": kind, "runs": [run.id for run in found]}
    if kind == "mlflow":
        from slslab.exports.tracking import folder_uri, write_tracking

        place = uri or folder_uri(folder)
        name = experiment or EXPERIMENT
        document |= {"tracking_uri": place, "experiment": name, "written": write_tracking(found, place, name)}
    elif kind == "tensorboard":
        from slslab.exports.boards import write_boards

        document |= {"out": str(folder), "written": write_boards(found, folder)}
    else:
        from slslab.exports.files import write_files

        document |= {"out": str(folder), "written": write_files(found, kind, folder)}
    from slslab.reports import exports

    print_document(document, lambda: exports.export(document), json_)
