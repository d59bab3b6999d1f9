"""Time a session of the pytest plugin: its start, a cold invocation and a warm one.

    python benchmarks/plugin.py [--json] [--quick]

A session is `pytest` in a new process, with one test; `nothing` uses no fixture, `invoke` invokes a function, and `s3`
uses `s3_client`, too. They take turns. `started` is from the process's start to the test's first line, `ended` to its
last, `cold` and `warm` are invocations as the test sees them, and `process` is everything. Figures are medians of the
turns, in seconds and ms; the first turn doesn't count, because files aren't cached yet.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

SESSIONS = {"nothing": "", "invoke": "deploy, invoke", "s3": "s3_client, deploy, invoke"}
BODY = """
    name = deploy("def handler(event, context): return event")
    for what in ("cold", "warm"):
        began = time.time()
        assert invoke(name, 1).payload == 1
        seen[what] = 1e3 * (time.time() - began)
"""
TEST = """
import json, time

def test_session({fixtures}):
    seen = {{"started": time.time() - {began}}}
{body}
    seen["ended"] = time.time() - {began}
    with open("seen.json", "w") as file:
        json.dump(seen, file)
"""


def session(fixtures: str) -> dict[str, float]:
    """Return the figures of one session, s and ms."""
    with tempfile.TemporaryDirectory() as directory:
        folder, began = Path(directory), time.time()
        test = TEST.format(fixtures=fixtures, began=began, body=BODY if fixtures else "")
        (folder / "test_session.py").write_text(test)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={folder}", "."]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"Error: the session failed.\n{done.stdout}{done.stderr}")
        seen: dict[str, float] = json.loads((folder / "seen.json").read_text())
        return seen | {"process": time.time() - began}


def measure(turns: int) -> dict[str, Any]:
    """Return the benchmark's document."""
    load = os.getloadavg()[0]
    seen = [{name: session(fixtures) for name, fixtures in SESSIONS.items()} for _ in range(turns + 1)][1:]
    rows = {
        name: {what: round(statistics.median(turn[name][what] for turn in seen), 3) for what in seen[0][name]}
        for name in SESSIONS
    }
    return {"turns": turns, "sessions": rows, "host": {"cores": os.cpu_count(), "load": round(load, 1)}}


def show(document: Mapping[str, Any]) -> None:
    """Print the document as a table."""
    columns = {"started": "s", "ended": "s", "process": "s", "cold": "ms", "warm": "ms"}
    table = Table("session", *(f"{name} {unit}" for name, unit in columns.items()))
    for name, row in document["sessions"].items():
        table.add_row(name, *(f"{row[column]:,.2f}" if column in row else "" for column in columns))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    console.print(table)
    facts = {"medians of turns": document["turns"], **document["host"], "kernel": platform.release()}
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    options = parser.parse_args()
    document = measure(3 if options.quick else 15)
    print(json.dumps(document, indent=1)) if options.json else show(document)


if __name__ == "__main__":
    main()
