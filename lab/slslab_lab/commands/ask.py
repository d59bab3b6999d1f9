"""`slslab ask`: questions about a recorded run, each answered by replaying it."""

from collections.abc import Callable
from typing import Any

import click

from slslab.cli.terminal import complete_run
from slslab_lab.commands.options import Amount, file_option, list_option, memory_option, plot_option, with_options
from slslab_lab.commands.question import Question
from slslab_lab.pages import replay as tables
from slslab_lab.pages.pictures import draw_model, draw_patterns, draw_variants, draw_ways


def other_argument(metavar: str) -> Callable[[Any], Any]:
    """Return the argument that names a second run."""
    return click.argument("other", required=False, metavar=metavar, shell_complete=complete_run)


deadline_option = click.option(
    "--deadline", type=Amount(0, min_open=True), required=True, help="Seconds, from first to last."
)
# What one variant of the run may differ in.
variant_options = with_options(
    click.option("--memory", type=int, metavar="MB", help="With training functions of this memory size."),
    click.option("--workers", type=click.IntRange(1, 4096), help="With this number of workers."),
    click.option("--concurrency", type=click.IntRange(1), help="Environments of the account that may be busy at once."),
)
perfetto_option = file_option(
    "--perfetto", "Write it for ui.perfetto.dev and chrome://tracing; gzipped if the name ends in .gz."
)

QUESTIONS = (
    Question(
        "cheapest",
        "sizes:cheapest",
        (deadline_option, memory_option),
        tables.cheapest,
        """Which is the cheapest memory size that meets the deadline?

        A size meets it if the upper end of its 80 % range does. Sizes below the measured peak memory are refused; sizes
        at which a function exceeds its time-out don't count. Exit code 1 if no size surely meets it. For `up`, this is
        what `slslab tune` answers, from the recorded invocations.
        """,
        picture=draw_variants,
        needed="cheapest",
        of_up=True,
    ),
    Question(
        "memory",
        "sizes:memory",
        (memory_option,),
        tables.sweep,
        """What do time and cost do over memory sizes? (AWS Lambda Power Tuning, offline.)

        By default from 128 to 10240 MB; sizes below the measured peak memory are refused. For `up`, this is what
        `slslab tune` answers, from the recorded invocations.
        """,
        picture=draw_variants,
        of_up=True,
    ),
    Question(
        "patterns",
        "crossings:patterns",
        (other_argument("[RUN]"), list_option("--workers", "Numbers of workers.", "2,4,8,16,32")),
        tables.patterns,
        """Where do LambdaML's two patterns cross?

        One worker merges all gradients, or each worker merges a part of all. For each number of workers: seconds of a
        training step in both, and which of them wins in which interval of the object store's latency × bandwidth ÷
        gradient size. It is a tie if the 80 % range of their ratio contains 1.
        Give a run of each. From one run alone, the other pattern is built from its steps.
        """,
        picture=draw_patterns,
    ),
    Question(
        "gpu",
        "crossings:gpu",
        (
            other_argument("[GPU_RUN]"),
            list_option("--workers", "Numbers of workers (by default the run's)."),
            list_option("--epochs", "Numbers of epochs.", "1,2,5,10,20,50,100"),
        ),
        tables.gpu,
        """When are GPU instances faster than functions, and when cheaper?

        RUN is one of functions. GPU_RUN is a run of `slslab run gpu` with the same model; without one the instances do
        the same steps, at the speed that the profile gives their GPU.
        """,
        picture=draw_ways,
    ),
    Question(
        "model",
        "model:model",
        (list_option("--workers", "Numbers of workers (by default 1,2,4,8,16,32,64 and the run's)."),),
        tables.model,
        """How far is LambdaML's analytic model from the replay?

        For each number of workers, each with the recorded number of minibatches: the model of LambdaML's Section 5.3,
        the closed form of all requests, the replay, and what was measured with the run's own number. Only for
        LambdaML's two patterns.
        """,
        picture=draw_model,
    ),
    Question(
        "waiting",
        "played:waiting",
        (variant_options,),
        tables.waiting,
        """How much of the bill is waiting, by worker and phase?

        A worker waits from when it needs another's result until that is there, its polls included.
        """,
    ),
    Question(
        "path",
        "played:path",
        (variant_options,),
        tables.path,
        "What is the run's time made of? Its critical path: each part is what the next one waited for.",
    ),
    Question(
        "timeline",
        "played:timeline",
        (perfetto_option, plot_option, variant_options),
        tables.timeline,
        """What happened when? The timeline as a file for a viewer, or as a picture.

        With --perfetto workers are tracks, phases slices, messages arrows; with --plot phases are bars, and waits grey.
        """,
    ),
)


@click.group(commands=[question.command() for question in QUESTIONS])
def ask() -> None:
    """Questions about a recorded run, answered by replaying it.

    \b
    slslab ask cheapest last --deadline 60     which memory size is cheapest and still done in 60 s?
    slslab ask memory last                     what do time and cost do over all memory sizes?
    slslab ask memory up --function hello      the same of a function of `slslab up`, from what it recorded
    slslab ask patterns last                   from how many workers on should each merge a part?
    slslab ask gpu last                        when are GPU instances faster, and when cheaper?
    slslab ask model last                      how far is LambdaML's analytic model from the replay?
    slslab ask waiting last                    how much of the bill is waiting, by worker?
    slslab ask path last                       what is the run's time made of?
    slslab ask timeline last --plot FILE.svg   what happened when? (or --perfetto FILE, for ui.perfetto.dev)
    """
