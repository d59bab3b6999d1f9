"""A question about recorded runs as a command: the steps of all questions, from the named runs to the answer."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click
from click.core import ParameterSource

from slslab.cli.show import kind_option
from slslab.cli.terminal import print_document, run_argument
from slslab.errors import RequestError
from slslab.report.formats import listed
from slslab.report.page import Document, Parts
from slslab_lab.commands.options import (
    on_option,
    platform_options,
    plot_option,
    replayable,
    with_options,
    with_progress,
)

EXPLICIT = ParameterSource.COMMANDLINE
# The parameters of a question that apply to a function that `slslab up` recorded.
OF_UP = {"run", "memory", "deadline", "prices", "function", "kind", "json_"}
function_option = click.option("--function", metavar="NAME", help="Of `up`: the function, if several were invoked.")


@dataclass(frozen=True)
class Question:
    """A question about recorded runs, answered by replaying them.

    `answer` is the function of `slslab_lab.questions` that answers it, such as sizes:cheapest; with what it needs it is
    imported when the question is asked. It is given `Asked` and those `options` that `read_setup` doesn't take, and
    returns a document, which `table` shows and `picture` draws. The arguments `run`, `other` and `runs` name runs. The
    exit code is 1 if the `needed` figure of the document is None. `of_up` questions can be asked of a function that
    `slslab up` recorded, too; `slslab tune` has the answer.
    """

    name: str
    answer: str
    options: tuple[Callable[[Any], Any], ...]
    table: Callable[[Document], Parts]
    help: str
    picture: Callable[[Document, Path], None] | None = None
    needed: str | None = None
    runs: Callable[[Any], Any] = run_argument
    of_up: bool = False

    def command(self) -> click.Command:
        """Return the command that asks it."""
        drawn = (on_option, plot_option) if self.picture else ()
        of_up = (function_option, kind_option) if self.of_up else ()

        @click.command(self.name, help=self.help)
        @with_options(self.runs, *self.options, *of_up, *drawn, platform_options)
        def ask(json_: bool, on: str | None = None, **given: Any) -> None:
            from slslab_lab.questions.setup import Asked, read_setup

            if self.of_up and self._answered_for_up(given, json_):
                return
            plot = given.pop("plot") if self.picture else None
            named = (given.pop("run", None), given.pop("other", None), *given.pop("runs", ()))
            platform = {name: given.pop(name) for name in signature(read_setup).parameters if name in given}
            runs = [run for run in named if run is not None] or ["last"]
            setups = tuple(read_setup(run, **platform) for run in runs)
            if len(names := {setup.platform.profile.name for setup in setups if setup.run.invocations}) > 1:
                raise RequestError(
                    f"The runs are of {listed(sorted(names))}, which can't be compared.",
                    "give one --platform or --profile for all of them.",
                )
            answer = resolve_name(f"slslab_lab.questions.{self.answer}")
            with replayable(", ".join(setup.name for setup in setups)):
                document = setups[0].document(**answer(Asked(setups, on, with_progress), **given))
            if self.picture is not None and plot is not None:
                self.picture(document, plot)
            print_document(document, lambda: self.table(document), json_)
            if self.needed is not None and document[self.needed] is None:
                raise click.exceptions.Exit(1)

        return ask

    def _answered_for_up(self, given: dict[str, Any], json_: bool) -> bool:
        """Answer the question if it is about what `slslab up` recorded; take the options of that off `given`."""
        from slslab.report.tuning import tuning
        from slslab.run.bill import DEFAULT_BOOK, load_book
        from slslab.run.directory import resolve
        from slslab.tune.document import describe_recorded

        directory = resolve(given["run"])
        about, function, kind = directory.service(), given.pop("function"), given.pop("kind")
        context = click.get_current_context()
        explicit = {name for name in context.params if context.get_parameter_source(name) is EXPLICIT}
        if about is None:
            if function is not None or kind is not None:
                raise RequestError(
                    f"{directory.id} is a run, and --function and --kind are for `up`.", "leave them out."
                )
            return False
        if wrong := sorted(explicit - OF_UP):
            raise RequestError(f"--{wrong[0]} does not apply to `up`.", "leave it out.")
        book = load_book(given["prices"] or DEFAULT_BOOK)
        document = describe_recorded(directory, about, function, kind, given["memory"], given.get("deadline"), book)
        print_document(document, lambda: tuning(document), json_)
        if document["memory"] is None:
            raise click.exceptions.Exit(1)
        return True
