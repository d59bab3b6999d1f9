"""`slslab export`: runs in the formats of other tools, and a run or plan as an AWS SAM template."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from slslab.cli.terminal import complete_run, find_up, json_option, print_document
from slslab.errors import RequestError
from slslab.installation import require
from slslab_lab.commands.options import directory_option
from slslab_lab.pages.exports import terminal

SCHEMA = 1
FORMATS = ("csv", "parquet", "mlflow", "tensorboard", "sam")
FOLDER = Path("exports")


class ExportCommand(click.Command):
    """`slslab export sam RUN` is `slslab export RUN --to sam`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Accept the format `sam` in place of the first run."""
        return super().parse_args(ctx, [*args[1:], "--to", "sam"] if args[:1] == ["sam"] else args)


@click.command(cls=ExportCommand)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", callback=find_up, shell_complete=complete_run)
@click.option("--to", "kind", type=click.Choice(FORMATS), required=True, help="The format.")
@directory_option("--out", "Where the files go (by default ./exports/FORMAT).")
@click.option("--tracking-uri", "uri", metavar="URI", help="MLflow: a tracking server or store instead of --out.")
@click.option("--experiment", metavar="NAME", help="MLflow: the experiment (by default slslab).")
@json_option
def export(
    runs: tuple[str, ...], kind: str, out: Path | None, uri: str | None, experiment: str | None, json_: bool
) -> None:
    """Write runs as CSV or Parquet tables, to MLflow, or as TensorBoard's event files; or one as an AWS SAM template.

    \b
    slslab export last --to parquet --out tables
    slslab export last~1 last --to mlflow --out mlruns
    slslab export last --to mlflow --tracking-uri http://127.0.0.1:5000 --experiment digits
    slslab export last --to tensorboard --out boards
    slslab export sam last --out cloud
    slslab export sam runs/RUN/plan.toml --out cloud

    Tables contain the rows of all runs, with a column `run`. A second export replaces the files of the first, but not a
    run that is already in an MLflow experiment.

    `sam` takes one run or plan and first prints its cost on AWS. It writes templates (for AWS and for `slslab deploy`),
    the functions' code and image, and a driver (docs/cloud.md) into a new or empty folder.
    """
    if kind != "mlflow" and (uri is not None or experiment is not None):
        raise RequestError("--tracking-uri and --experiment need --to mlflow.", f"use --out with --to {kind}.")
    if uri is not None and out is not None:
        raise RequestError("--out and --tracking-uri name two places.", "choose one of them.")
    if kind == "sam":
        return export_sam(runs, out or FOLDER / kind, json_)
    if kind in ("mlflow", "tensorboard"):
        require(kind)
    from slslab_lab.pages.exports.finished import read_finished

    finished, folder = read_finished(runs), out or FOLDER / kind
    target: dict[str, Any] = {"out": str(folder)}
    if kind == "mlflow":
        from slslab_lab.pages.exports.tracking import write_tracking

        target = {"tracking_uri": uri or folder.resolve().as_uri(), "experiment": experiment or "slslab"}
        written = write_tracking(finished, *target.values())
    elif kind == "tensorboard":
        from slslab_lab.pages.exports.boards import write_boards

        written = write_boards(finished, folder)
    else:
        from slslab_lab.pages.exports.tables import write_files

        written = write_files(finished, kind, folder)
    document = {"schema": SCHEMA, "to": kind, "runs": [run.id for run in finished], **target, "written": written}
    print_document(document, lambda: terminal.export(document), json_)


def export_sam(sources: tuple[str, ...], out: Path, json_: bool) -> None:
    """Write a run or a plan as a SAM template."""
    if len(sources) > 1:
        raise RequestError(f"--to sam takes one run, not {len(sources)}.", "export each into its own folder.")
    require("torch")
    from slslab_lab.runs.sam.export import read_source, write_export

    plan, cost, imported = read_source(sources[0])
    files, missing = write_export(plan, cost, imported, out)
    document = {"schema": SCHEMA, "to": "sam", "run": plan.run, "out": str(out), "cost": asdict(cost)}
    document |= {"files": files, "missing": missing}
    print_document(document, lambda: terminal.sam(document), json_)
