"""The root command `slslab`; its subcommands are entry points."""

import errno
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import cast

import click

from slslab.cli.terminal import printable
from slslab.errors import HostError, RequestError, SlslabError
from slslab.installation import COMMANDS, EXTRAS, __version__, entry_point, lacking, plugins
from slslab_workers.plan import PlanError

# Headings of `slslab --help`, by the commands' package.
SECTIONS = {"slslab_lab": "Runs", "slslab": "The emulator"}
OTHERS = "Plug-ins"


class RootGroup(click.Group):
    """The commands from entry points; only the called one is imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *plugins(COMMANDS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = entry_point(COMMANDS, cmd_name)
        return super().get_command(ctx, cmd_name) if entry is None else cast(click.Command, entry.load())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        found = plugins(COMMANDS)
        width = formatter.width - 6 - max(map(len, found), default=0)
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in (*SECTIONS.values(), OTHERS)}
        for name, entry in found.items():
            title = SECTIONS.get(entry.module.partition(".")[0], OTHERS)
            rows[title].append((name, entry.load().get_short_help_str(width)))
        for title, commands in rows.items():
            if commands:
                with formatter.section(title):
                    formatter.write_dl(commands)


@click.group(cls=RootGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="slslab")
def root() -> None:
    """Serverless training on your own machine, under AWS Lambda's real limits and with its real bill.

    \b
    slslab run scatterreduce --epochs 5      train, and see what it did and what it cost
    slslab show                              show the last run again
    slslab compare last~1 last               compare two runs
    slslab check                             check whether the last run lost or repeated anything
    slslab report --open                     open the last run's page
    slslab serve --open                      watch runs in the browser
    slslab replay last --memory 1024,3008    predict time and cost on Lambda with other memory sizes
    slslab ask --help                        ask about a run: cheapest memory, waiting, crossings
    slslab reproduce --help                  compare published tables with the model
    slslab atlas                             find the fastest and cheapest system by model size and workers
    slslab up                                start Lambda and S3 endpoints for your own functions
    slslab show up                           show what your functions did and what it cost
    slslab tune hello                        find the best memory size for a function

    A RUN is an id or its unambiguous beginning, a path, `last`, `last~N`, or `up`. `last` is the last run that has
    ended.
    """


def execute(arguments: Sequence[str] | None) -> int:
    """Execute a command, by default this process's; return its exit code, or raise KeyboardInterrupt."""
    if isinstance(sys.stdout, TextIOWrapper):
        # Terminals without UTF-8 lack some characters of the tables.
        sys.stdout.reconfigure(errors="replace")
    try:
        given = list(arguments) if arguments is not None else None
        code = root.main(args=given, prog_name="slslab", standalone_mode=False)
    except (SlslabError, PlanError) as error:
        _print_error(error)
        return error.exit_code
    except click.ClickException as error:
        command = getattr(error, "ctx", None) or click.Context(root, info_name=root.name)
        click.echo(f"Error: {error.format_message()}\nHint: type `{command.command_path} --help`.", err=True)
        return error.exit_code
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        _print_error(lacking(module))
        return HostError.exit_code
    except OSError as error:
        # Any command may open a path. Only this system error is certainly the user's mistake.
        if error.errno != errno.ENAMETOOLONG:
            raise
        click.echo(f"Error: {str(error.filename)[:60]}… is too long for a path.\nHint: use a shorter one.", err=True)
        return RequestError.exit_code
    except click.Abort as error:
        raise KeyboardInterrupt from error
    return code if isinstance(code, int) else 0


def _print_error(error: SlslabError | PlanError) -> None:
    click.echo(printable(f"Error: {error.message}\nHint: {error.hint}"), err=True)
