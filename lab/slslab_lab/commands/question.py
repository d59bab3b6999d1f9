"""A question about recorded runs as a command: the steps of all questions, from the named runs to the answer."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click

from slslab.cli.terminal import print_document, run_argument
from slslab.report.page import Document, Parts
from slslab_lab.commands.options import (
    on_option,
    platform_options,
    plot_option,
    replayable,
    with_options,
    with_progress,
)


@dataclass(frozen=True)
class Question:
    """A question about recorded runs, answered by replaying them.

    `answer` is the function of `slslab_lab.questions` that answers it, such as sizes:cheapest; it is imported when the
    question is asked. It gets `Asked` and the `options` that `read_setup` doesn't take, and returns a document, which
    `table` prints and `picture` draws. The arguments `run`, `other` and `runs` name runs. The exit code is 1 if the
    document's `needed` figure is None.
    """

    name: str
    answer: str
    options: tuple[Callable[[Any], Any], ...]
    table: Callable[[Document], Parts]
    help: str
    picture: Callable[[Document, Path], None] | None = None
    needed: str | None = None
    runs: Callable[[Any], Any] = run_argument

    def command(self) -> click.Command:
        """Return the command that asks it."""
        drawn = (on_option, plot_option) if self.picture else ()

        @click.command(self.name, help=self.help)
        @with_options(self.runs, *self.options, *drawn, platform_options)
        def ask(json_: bool, on: str | None = None, **given: Any) -> None:
            from slslab_lab.questions.setup import Asked, read_setup

            plot = given.pop("plot") if self.picture else None
            named = (given.pop("run", None), given.pop("other", None), *given.pop("runs", ()))
            platform = {name: given.pop(name) for name in signature(read_setup).parameters if name in given}
            runs = [run for run in named if run is not None] or ["last"]
            setups = tuple(read_setup(run, **platform) for run in runs)
            answer = resolve_name(f"slslab_lab.questions.{self.answer}")
            with replayable(", ".join(setup.name for setup in setups)):
                document = setups[0].document(**answer(Asked(setups, on, with_progress), **given))
            if self.picture is not None and plot is not None:
                self.picture(document, plot)
            print_document(document, lambda: self.table(document), json_)
            if self.needed is not None and document[self.needed] is None:
                raise click.exceptions.Exit(1)

        return ask
