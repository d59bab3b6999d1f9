"""Show how a busy host changes durations and inits: the same invocations alone, then next to stress-ng.

    python benchmarks/busy_host.py [--json] [--warm 30000] [--cold 600] [--load 60]

stress-ng keeps `--load` workers busy with processors, memory and disks. Functions of 1,769 MB are invoked at the same
time: `echo` returns its event and is kept busy by eight connections; `work` uses a processor for 50 ms; `init` imports
numpy and uses a processor for 0.3 s in its initialisation, and is cold each time. The columns are

  p50, p95     of the duration (of the init), ms, on the Lambda clock
  beside/idle  the ratio of the two medians
  off          invocations that take more than a tenth, and a millisecond, longer than the idle median
  unmarked     invocations among them that are marked neither as uncertain nor as oversubscribed, so their error is
               silent; both also for the idle host, where a few are off, too
  zero         REPORT lines of 0.00 ms, or of 0 ms billed
  failed       answers with an error, and missing answers
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.table import Table

import invoke
from slslab.aws.keys import Keyring
from slslab.host.session import Session
from slslab.lambda_.emulator import Emulator
from slslab.run.oversubscription import oversubscribed, uncertain
from slslab.run.records import InvocationRecord

BURN = """
import time

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
"""
WORK = BURN + "\ndef handler(event, context):\n    burn(0.05)\n    return event\n"
INIT = BURN + "\nimport numpy\nburn(0.3)\n\ndef handler(event, context):\n    return event\n"
# One function for each concurrent cold start.
STARTED = tuple(f"init-{number}" for number in range(4))
CONNECTIONS, WINDOW_S = 8, 10.0
Row = dict[str, Any]


@contextmanager
def stress(workers: int, home: Path) -> Iterator[None]:
    """Keep `workers` workers busy: half with processors, a quarter each with memory and with disks."""
    quarter = workers // 4
    options = {"cpu": workers - 2 * quarter, "vm": quarter, "vm-bytes": "50%", "hdd": quarter, "hdd-bytes": "256M"}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    try:
        process = subprocess.Popen(["stress-ng", *words, "--temp-path", str(home), "--quiet"])
    except FileNotFoundError:
        sys.exit("stress-ng is not installed. Hint: apt-get install stress-ng.")
    try:
        time.sleep(5)  # until all workers have their memory
        yield
    finally:
        process.terminate()
        process.wait()


def deploy(client: Any) -> None:
    """Create the functions besides `echo`, which `invoke.deployed` creates."""
    for name, source in (("work", WORK), *((name, INIT) for name in STARTED)):
        settings = {**invoke.FUNCTION, "FunctionName": name, "Timeout": 60}
        client.create_function(**settings, Code={"ZipFile": invoke.archive(source)})


def measure(
    emulator: Emulator, client: Any, mark: Mapping[str, str], warm: int, cold: int
) -> tuple[list[InvocationRecord], list[str]]:
    """Return the records of this many warm invocations and cold starts, and the failures."""
    failed: list[str] = []
    left, over = threading.Semaphore(cold), threading.Event()

    def answer(name: str) -> None:
        try:
            response = client.invoke(FunctionName=name, Payload=b"{}")
            if response.get("FunctionError") or response["Payload"].read() != b"{}":
                failed.append(f"{name}: {response['Payload'].read()!r}")
        except (BotoCoreError, ClientError) as error:
            failed.append(f"{name}: {error}")

    def start(name: str) -> None:
        while left.acquire(blocking=False):
            emulator.evict(name)
            answer(name)

    def work() -> None:
        while not over.is_set():
            answer("work")

    with emulator.recording() as records, ThreadPoolExecutor() as threads, ExitStack() as ending:
        ending.callback(over.set)
        working = threads.submit(work)
        starting = [threads.submit(start, name) for name in STARTED]
        # A separate client: its requests are recorded, without other threads'.
        own = emulator.client("lambda")
        while sum(record.function == "echo" for record in list(records)) < warm:
            window = invoke.rate(emulator, own, CONNECTIONS, WINDOW_S, mark)
            failed += ["echo"] * window["failures"]
        wait(starting)
        over.set()
        for each in (working, *starting):
            each.result()
    return records, failed


def of_kind(records: Sequence[InvocationRecord], kind: str) -> list[InvocationRecord]:
    """Return the warm invocations of `echo` or `work`, or the cold ones of `init`."""
    return [each for each in records if each.function.startswith(kind) and each.cold_start is (kind == "init")]


def marked(document: Mapping[str, Any]) -> bool:
    """Return whether an invocation is marked, by the rule for runs, as possibly slowed down by this host."""
    return uncertain(document) or oversubscribed([document])


def milliseconds(record: InvocationRecord) -> float:
    """Return the duration of an invocation, or of its environment's initialisation, ms."""
    return record.init_ms or record.duration_ms


def wrong(records: Sequence[InvocationRecord], usual: float) -> tuple[list[InvocationRecord], list[InvocationRecord]]:
    """Return the records with unusual times, and the unmarked ones among them."""
    off = [record for record in records if milliseconds(record) > max(1.1 * usual, usual + 1.0)]
    return off, [record for record in off if not marked(record.as_document())]


def rows(idle: Sequence[InvocationRecord], beside: Sequence[InvocationRecord]) -> tuple[list[Row], list[Row]]:
    """Return a row for each kind of invocation, and one for each unmarked invocation with an unusual time."""
    made, unmarked = [], []
    for kind in ("echo", "work", "init"):
        before, records = of_kind(idle, kind), of_kind(beside, kind)
        usual = statistics.median(map(milliseconds, before))
        times = [milliseconds(record) for record in records]
        off_before, silent_before = wrong(before, usual)
        off, silent = wrong(records, usual)
        details = ("function", "init_ms", "duration_ms", "cpu_ms", "host_delay_ms", "uncertain_ms")
        unmarked += [{name: getattr(record, name) for name in details} for record in silent]
        made.append(
            {
                "what": kind,
                "idle": len(before),
                "idle p50": usual,
                "idle off": len(off_before),
                "idle unmarked": len(silent_before),
                "count": len(records),
                "p50": statistics.median(times),
                "p95": statistics.quantiles(times, n=20)[-1],
                "beside/idle": statistics.median(times) / usual,
                "off": len(off),
                "unmarked": len(silent),
                "zero": sum(0 in (record.duration_ms, record.billed_ms) for record in records),
            }
        )
    return made, unmarked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    for name, default, what in (
        ("--warm", 30_000, "invocations of echo under load, and the same number before"),
        ("--cold", 600, "cold starts under load; a tenth of them before"),
        ("--load", 60, "workers of stress-ng"),
    ):
        parser.add_argument(name, type=int, default=default, metavar="N", help=f"{what}; {default} unless given")
    options = parser.parse_args()
    if min(options.warm, options.cold, options.load) < 1:
        parser.error("--warm, --cold and --load must be at least 1. Hint: leave them out for the whole measurement.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with Session() as session:
        budget_mb = 3 * (CONNECTIONS + len(STARTED)) * invoke.MEMORY_MB
        with Emulator(session=session, keys=Keyring(invoke.PAIR), budget_mb=budget_mb) as emulator:
            client = invoke.deployed(emulator.endpoint)
            deploy(client)
            idle, failed = measure(emulator, client, session.mark, options.warm, options.cold // 10)
            with stress(options.load, session.home):
                began = time.monotonic()
                beside, failed_beside = measure(emulator, client, session.mark, options.warm, options.cold)
                load, seconds = os.getloadavg()[0], time.monotonic() - began
    made, unmarked = rows(idle, beside)
    document: dict[str, Any] = {
        "rows": made,
        "unmarked": unmarked,
        "failed": failed + failed_beside,
        "load": load,
        "seconds": seconds,
    }
    if options.json:
        print(json.dumps(document, indent=1))
        return
    table = Table(*document["rows"][0])
    for row in document["rows"]:
        table.add_row(*(f"{value:,.2f}" if isinstance(value, float) else str(value) for value in row.values()))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    console.print(table)
    console.print(
        f"{len(document['failed'])} failed; load {load:.0f}, {seconds:.0f} s", *document["failed"][:20], sep="\n"
    )


if __name__ == "__main__":
    main()
