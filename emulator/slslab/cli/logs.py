"""`slslab logs RUN [FUNCTION]`: what functions wrote."""

import re
from pathlib import Path

import click

from slslab.cli.terminal import json_option, printable, run_argument
from slslab.errors import RequestError
from slslab.run.directory import RunDirectory

# An environment's name is its function's name and a number.
NUMBER = re.compile(r"-\d{4,}$")


@click.command()
@run_argument
@click.argument("function", required=False)
@json_option
def logs(run: str, function: str | None, json_: bool) -> None:
    """Print what the functions of a run wrote, with Lambda's START, END and REPORT lines.

    FUNCTION is a function, one of its environments, or an instance; by default all. With several environments, each
    line begins with its environment's name. Control characters are printed as \\x1b and the like, except with --json.

    \b
    slslab logs last                 the last run; for a running one, type its id
    slslab logs up hello             your own function, until `slslab down`
    """
    from slslab.cli.terminal import print_document
    from slslab.run.directory import resolve

    directory = resolve(run)
    paths = {path.stem: path for path in sorted(_folder(directory).glob("*.log"))}
    if not paths:
        raise RequestError(f"{directory.id} has no logs.", "logs begin when its first function starts.")
    chosen = {name: path for name, path in paths.items() if function in (None, name, _function(name))}
    if not chosen:
        names = ", ".join(dict.fromkeys(map(_function, paths)))
        raise RequestError(f"{directory.id} has no logs of {function!r}.", f"choose from {names}.")
    if json_:
        entries = [
            {"function": _function(name), "environment": name, "text": path.read_text(errors="replace")}
            for name, path in chosen.items()
        ]
        print_document({"run": directory.id, "logs": entries}, str, as_json=True)
        return
    for name, path in chosen.items():
        prefix = f"{name}  " if len(chosen) > 1 else ""
        with path.open(errors="replace") as lines:
            for line in lines:
                print(f"{prefix}{printable(line)}", end="" if line.endswith("\n") else "\n")


def _function(environment: str) -> str:
    return NUMBER.sub("", environment)


def _folder(directory: RunDirectory) -> Path:
    if directory.service() is None:
        return directory.logs
    from slslab.up import embedded

    running = embedded.status()
    if running is None or Path(running["record"]).resolve() != directory.path.resolve():
        raise RequestError(
            "`slslab down` removes the logs of `slslab up`.",
            "read them while it runs; `slslab show up` prints what was recorded.",
        )
    return Path(running["logs"])
