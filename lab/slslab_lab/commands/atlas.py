"""`slslab atlas`: the fastest and the cheapest of the papers' systems."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from slslab.cli.terminal import Bar, json_option, print_document
from slslab.errors import RequestError
from slslab_lab.commands.options import directory_option, gpu_platform_option, on_option, platform_option, replayable
from slslab_lab.commands.reproduce import prices_option
from slslab_lab.studies.study import BOOK, alone_error

if TYPE_CHECKING:
    from slslab_lab.studies.atlas.points import Job
    from slslab_lab.studies.atlas.recordings import Recordings


@click.command()
@click.option("--epochs", type=click.IntRange(1, 10_000), default=10, show_default=True, help="Epochs of the job.")
@platform_option
@gpu_platform_option
@prices_option
@directory_option("--recordings", "The atlas's own recordings (by default the project's).")
@click.option("--model", help="Answer for a model of this size, too: a name, or module:function (docs/own.md).")
@click.option("--dataset", default="digits", show_default=True, help="The data set that the model is built for.")
@click.option("--record", is_flag=True, help="First make the runs that are missing in --recordings DIR.")
@click.option("--check", is_flag=True, help="Run three points here instead, and say how far the atlas is off.")
@on_option
@directory_option("--out", "Write the page and the data here, or the runs of --check.")
@json_option
def atlas(
    epochs: int,
    profile: str,
    platform: str | None,
    prices: str,
    recordings: Path | None,
    model: str | None,
    dataset: str,
    record: bool,
    check: bool,
    on: str | None,
    out: Path | None,
    json_: bool,
) -> None:
    """Which system is fastest and which is cheapest, over model sizes and workers?

    \b
    slslab atlas                              the answers, in a minute
    slslab atlas --epochs 100 --out atlas     a longer job; its page and its data
    slslab atlas --platform modal-t4          also functions with GPUs (docs/serverless-gpus.md)
    slslab atlas --on local                   on all cores
    slslab atlas --model net:mlp              also for a model of your own (--dataset rows.csv)
    slslab atlas --check --out checks         three points next to real runs, in some minutes
    slslab atlas --record --recordings DIR    recordings of this host, resumed where they were interrupted

    A system is an architecture with a channel and an algorithm. Each is replayed with every model size, number of
    workers and memory size, from recorded runs of three models: two epochs on the profile, and the job's other epochs
    like the second. Points beyond the recordings are marked as extrapolated.
    """
    from slslab.predict.profiles.profile import load_platform, load_profile
    from slslab.run.bill import load_book
    from slslab_lab.pages.atlas import shown
    from slslab_lab.replay.gpus import check_book
    from slslab_lab.studies import committed
    from slslab_lab.studies.atlas.document import build
    from slslab_lab.studies.atlas.grid import compute
    from slslab_lab.studies.atlas.points import Job
    from slslab_lab.studies.atlas.recordings import read_all, record_all
    from slslab_lab.studies.saving import save_atlas

    _refuse(recordings, out, on, record=record, check=check)
    named = () if model is None else (model, _parameters(model, dataset))
    gpus, gpu_book = None if platform is None else load_platform(platform), None
    if gpus is not None and gpus.containers is not None and prices != BOOK:
        gpu_book = load_book(prices)
        check_book(gpus.containers, gpu_book)
    job = Job(epochs, load_profile(profile), load_book(prices), *(named or ("", 0)), gpus, gpu_book=gpu_book)
    with Bar() as bar, replayable("the atlas"):
        if record and recordings is not None:
            record_all(recordings, bar)
        recorded = read_all(recordings or committed("atlas"))
        if check and out is not None:
            _check(recorded, out, job, bar, json_)
            return
        grid = compute(recorded, job, bar.report, on)
        document = build(recorded, grid, job)
    saved = save_atlas(document, out) if out is not None else ()
    print_document(document, lambda: shown(document), json_)
    if saved:
        click.echo(f"Saved: {', '.join(map(str, saved))}", err=True)


def _parameters(model: str, dataset: str) -> int:
    from slslab_workers.training import datasets, fitting

    return fitting.fit(model, dataset, datasets.find(dataset), {}).parameters


def _refuse(recordings: Path | None, out: Path | None, on: str | None, *, record: bool, check: bool) -> None:
    if record and recordings is None:
        raise RequestError("--record needs a directory of recordings.", "add --recordings DIR.")
    if record and check:
        raise RequestError("--record and --check can't be combined.", "give one of them.")
    if check and out is None:
        raise RequestError("--check needs a directory for its runs.", "add --out DIR.")
    if on is not None and (record or check):
        raise alone_error()


def _check(recordings: "Recordings", out: Path, job: "Job", bar: Bar, json_: bool) -> None:
    from slslab_lab.pages.atlas import checked
    from slslab_lab.studies.atlas.checks import compare, run_all
    from slslab_lab.studies.saving import save_checks

    document = compare(recordings, run_all(out, bar), job)
    saved = save_checks(document, out)
    print_document(document, lambda: checked(document), json_)
    click.echo(f"Saved: {saved}", err=True)
