"""Compare an execution environment as processes of this host with one as a container.

    python benchmarks/environments.py [--json] [--quick]

Two emulators run at the same time and take turns in alternating order; the function returns its event and has 1,769 MB.
A ratio is the median of the turns' ratios, containers to processes. Containers need an engine and the worker's image
(`make images`).

  cold start          a boto3 invocation that finds no environment, from call to answer
  init duration       the part of it that Lambda would bill, as the REPORT line has it
  warm                a boto3 invocation right after another
  frozen              one in a resting environment, which is thawed for it
  freeze, thaw        only these, as the emulator requests them
  end                 killing a resting environment and removing its confinement
  runtime's memory    proportional set size of the processes that the function sees
  beside it           the same of the processes around them: init, or the engine's shim and the container's init
"""

import argparse
import io
import json
import os
import platform
import statistics
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from slslab.aws.limits import MB
from slslab.errors import SlslabError
from slslab.host.sandbox import Sandbox
from slslab.lambda_.emulator import Emulator
from slslab.lambda_.environment import FREEZE_AFTER_S, Environment
from slslab.testing import RUNTIME

KINDS = ("process", "docker")
HANDLER = "def handler(event, context):\n    return event\n"
ROLE = "arn:aws:iam::000000000000:role/benchmark"
NAME = "echo"
# Long enough to freeze an idle environment, also through the engine.
REST_S = FREEZE_AFTER_S + 0.2
MEMORY = ("runtime's memory", "beside it")


class Arm:
    """One emulator with the function."""

    def __init__(self, kind: str, emulator: Emulator) -> None:
        self.kind = kind
        self.emulator = emulator
        self.client = emulator.client("lambda")
        package = io.BytesIO()
        with zipfile.ZipFile(package, "w") as archive:
            archive.writestr("app.py", HANDLER)
        self.client.create_function(
            FunctionName=NAME, Runtime=RUNTIME, Role=ROLE, Handler="app.handler", MemorySize=1769, Timeout=60,
            Code={"ZipFile": package.getvalue()},
        )  # fmt: skip

    def invoke(self) -> None:
        """Make one invocation."""
        answer = self.client.invoke(FunctionName=NAME, Payload=b"{}")
        if answer.get("FunctionError") or answer["Payload"].read() != b"{}":
            raise RuntimeError(f"the function failed: {answer}")

    def sandbox(self) -> Sandbox:
        """Return the sandbox of the function's only environment."""
        (environment,) = self.emulator.service.pool.environments()
        assert isinstance(environment, Environment)
        assert environment.sandbox is not None
        return environment.sandbox

    def turn(self, warm: int) -> dict[str, float]:
        """Return every figure once; the warm one is a median."""
        self.emulator.evict()
        figures = {"cold start": timed(self.invoke)}
        figures["init duration"] = self.emulator.records[-1].init_ms or 0.0
        figures["warm"] = statistics.median(timed(self.invoke) for _ in range(warm))
        time.sleep(REST_S)
        figures["frozen"] = timed(self.invoke)
        time.sleep(REST_S)
        sandbox = self.sandbox()
        figures["thaw"] = timed(lambda: self.emulator.wait_for(sandbox.thaw()))
        figures["freeze"] = timed(lambda: self.emulator.wait_for(sandbox.freeze()))
        runtime, around = memory_mb(sandbox.pids())
        figures["runtime's memory"], figures["beside it"] = runtime, around
        figures["end"] = timed(self.emulator.evict)
        return figures


def timed(call: Callable[[], object]) -> float:
    """Return a call's time, ms."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def memory_mb(pids: list[int]) -> tuple[float, float]:
    """Return proportional set sizes, MB: of the function's processes, and of the processes around them."""
    inits = {pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().strip() in ("docker-init", "tini")}
    runtime, around = set(pids) - inits, inits | {parent(pid) for pid in pids} - set(pids)
    return sum(map(proportional_bytes, runtime)) / MB, sum(map(proportional_bytes, around)) / MB


def parent(pid: int) -> int:
    """Return a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def proportional_bytes(pid: int) -> int:
    """Return a process's proportional set size, bytes."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def measure(turns: int, warm: int) -> dict[str, Any]:
    """Return the benchmark's document."""
    began, load = time.perf_counter(), os.getloadavg()[0]
    seen: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    with ExitStack() as stack:
        arms = [Arm(kind, stack.enter_context(Emulator(environment=kind))) for kind in KINDS]
        for index in range(turns + 1):
            for arm in arms if index % 2 == 0 else arms[::-1]:
                seen[arm.kind].append(arm.turn(warm))
        engine = arms[1].emulator.isolation.engine
    rows = []
    for what in seen["process"][0]:
        # In the first turn, files aren't cached yet.
        values = {kind: [turn[what] for turn in seen[kind][1:]] for kind in KINDS}
        ratios = [docker / process for process, docker in zip(*values.values(), strict=True) if process]
        rows.append(
            {
                "what": what,
                "unit": "MB" if what in MEMORY else "ms",
                **{kind: round(statistics.median(values[kind]), 3) for kind in KINDS},
                "worst": {kind: round(max(values[kind]), 3) for kind in KINDS},
                "ratio": round(statistics.median(ratios), 2) if ratios else None,
            }
        )
    host = {"cores": os.cpu_count(), "load": round(load, 1), "kernel": platform.release(), "engine": engine}
    return {"turns": turns, "rows": rows, "host": host, "seconds": round(time.perf_counter() - began, 1)}


def show(document: Mapping[str, Any]) -> None:
    """Print the document as a table."""
    table = Table("", "unit", "process", "docker", "docker / process", "worst process", "worst docker")
    for row in document["rows"]:
        figures = [row["process"], row["docker"], row["ratio"], row["worst"]["process"], row["worst"]["docker"]]
        table.add_row(row["what"], row["unit"], *("" if figure is None else f"{figure:,.2f}" for figure in figures))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    console.print(table)
    facts = {"medians of turns": document["turns"], **document["host"], "seconds": document["seconds"]}
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    options = parser.parse_args()
    try:
        document = measure(*((5, 5) if options.quick else (30, 20)))
    except SlslabError as error:
        sys.exit(f"Error: {error.message}\nHint: {error.hint}")
    print(json.dumps(document, indent=1)) if options.json else show(document)


if __name__ == "__main__":
    main()
