"""`slslab reproduce lambdaml-table1` and `lambdaml-table2`: what other channels, and a parameter server, take."""

from pathlib import Path

import click

from slslab.cli.terminal import Bar
from slslab_lab.commands.options import directory_option, replayable
from slslab_lab.commands.reproduction import (
    PUBLISHED,
    REPLAYED,
    check_recordings,
    finish,
    folder,
    prices_option,
    profile_option,
    reproduction,
)


@reproduction(
    "lambdaml-table1",
    click.option(
        "--fidelity",
        type=click.Choice(("sampled", REPLAYED)),
        default=REPLAYED,
        show_default=True,
        help="sampled runs rounds of 2 workers with each channel here; replayed reads recordings, in seconds.",
    ),
    click.option(
        "--profile",
        default="lambdaml-2021",
        show_default=True,
        metavar="PROFILE",
        help=f"The platform of the model, such as {PUBLISHED}, or a TOML file.",
    ),
    prices_option,
    directory_option("--recordings", "replayed: read the runs here (by default the project's own)."),
    directory_option("--out", "Where runs and tables go (by default reproduce-lambdaml-table1-FIDELITY beside runs)."),
)
def lambdaml_table1(
    fidelity: str, profile: str, prices: str, recordings: Path | None, out: Path | None, json_: bool
) -> None:
    """LambdaML, Table 1: seconds and cost of training with Memcached and DynamoDB, over those with S3.

    \b
    slslab reproduce lambdaml-table1
    slslab reproduce lambdaml-table1 --profile aws-us-east-1

    Jobs are replayed with the paper's workers from rounds of 2 workers, on a running node, with the node's start, and
    with functions that wait for it. Ratios agree within 25 %; else they say whether the same channel is better.
    """
    from slslab.predict.profiles.profile import load_profile
    from slslab.run.bill import load_book
    from slslab_lab.papers.paper import load_paper
    from slslab_lab.studies.lambdaml.recordings import committed, read_all, record_all, refusals
    from slslab_lab.studies.lambdaml.table1 import NAME, PAPER, build

    check_recordings(recordings, fidelity)
    paper, platform, book = load_paper(PAPER), load_profile(profile), load_book(prices)
    directory = out or folder(NAME, fidelity)
    with Bar() as bar, replayable("LambdaML's Table 1"):
        if fidelity == REPLAYED:
            runs = read_all(recordings or committed())
        else:
            runs = record_all(directory, bar, lambda line: click.echo(line, err=True))
        document = build(paper, runs, refusals(), platform, book, fidelity)
    finish(document, directory, json_)


@reproduction(
    "lambdaml-table2",
    profile_option,
    directory_option("--out", "Where the table goes (by default reproduce-lambdaml-table2-measured beside runs)."),
)
def lambdaml_table2(profile: str, out: Path | None, json_: bool) -> None:
    """LambdaML, Table 2: seconds of sending 75 MB to a parameter server, and of adding them there.

    \b
    slslab reproduce lambdaml-table2

    What writing, reading and adding a vector takes is measured here, in half a minute; a row is modelled of it.
    """
    from slslab.predict.profiles.profile import load_profile
    from slslab_lab.papers.paper import load_paper
    from slslab_lab.studies.lambdaml.table2 import NAME, PAPER, TABLE, build, measure

    paper, platform = load_paper(PAPER), load_profile(profile)
    with Bar() as bar:
        paces = measure(
            int(paper.table(TABLE).inputs["megabytes"]), lambda done, total: bar.report("measuring", done, total)
        )
    finish(build(paper, paces, platform), out or folder(NAME, "measured"), json_)
