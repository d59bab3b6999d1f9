"""Send hostile inputs to the services of `slslab up`, while another client sends each small requests.

    python benchmarks/hostile.py [--only TEXT] [SERVICE ...]

Prints, for each input, the answer, the longest wait of the other client, the memory of the service's processes before,
at most and afterwards, and whether the service survived. The last lines say whether the bounds held: no wait above 5 s,
no memory kept, and no service dead. Exits with 1 if they didn't. `--only` chooses inputs by a part of their name.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.context import SpawnProcess
from typing import Any

import psutil

from hostile_clients import Case, Target
from hostile_inputs import CASES, PREPARE, SMALL

MB = 1024 * 1024
WAIT_S, INPUT_S, CALM_S, LOOK_S = 5.0, 40.0, 60.0, 0.02
# assumed: allocator and caches may keep this much after all inputs of a service.
KEPT_MB = 256
PROCESSES = {
    "lambda": "",  # the process of `up` itself
    "states": "slslab.statemachines",
    "s3": "slslab.object_store",
    "tensordb": "slslab.tensordb",
    "rabbitmq": "beam.smp",
    "aws": "slslab_aws.services",
    "edge": "slslab_aws.edge",
}


@dataclass
class Client:
    """Another client of a service, in its own process. `state` has the start of its current request (0 if it isn't
    waiting), its longest wait, and how many requests were answered and failed."""

    target: Target
    state: Any = field(default_factory=lambda: multiprocessing.get_context("spawn").Array("d", 4, lock=False))
    process: SpawnProcess | None = None

    def __enter__(self) -> "Client":
        self.process = multiprocessing.get_context("spawn").Process(target=watch, args=(self.target, self.state))
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.join()

    def wait_s(self) -> float:
        """Return the longest wait since `begin`, including the current request."""
        began = self.state[0]
        return float(max(self.state[1], time.monotonic() - began if began else 0.0))

    def begin(self) -> None:
        """Forget earlier waits."""
        self.state[1] = self.state[3] = 0.0

    def calm(self) -> bool:
        """Wait until it has been answered twice; return False if that takes CALM_S."""
        answered, end = self.state[2] + 2, time.monotonic() + CALM_S
        while self.state[2] < answered and time.monotonic() < end:
            time.sleep(LOOK_S)
        return bool(self.state[2] >= answered)


def watch(target: Target, state: Any) -> None:
    """Send small requests in a loop."""
    ask = SMALL[target.kind](target)
    while True:
        state[0] = time.monotonic()
        try:
            ask()
            state[2] += 1
        except Exception:
            state[3] += 1
        state[1] = max(state[1], time.monotonic() - state[0])
        state[0] = 0.0
        time.sleep(LOOK_S)


class Memory:
    """The resident memory of a service's process, MB, including its helpers."""

    def __init__(self, up: psutil.Process, kind: str) -> None:
        marker = PROCESSES[kind]
        found = [process for process in up.children(recursive=True) if marker in " ".join(process.cmdline())]
        self._process = found[0] if marker else up
        self._whole = kind in ("states", "tensordb")

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.is_running() and self._process.status() != psutil.STATUS_ZOMBIE

    def now(self) -> float:
        """Return the resident memory now."""
        with suppress(psutil.Error):
            processes = [self._process, *(self._process.children(recursive=True) if self._whole else ())]
            total = 0
            for process in processes:
                with suppress(psutil.Error):
                    total += process.memory_info().rss
            return total / MB
        return 0.0


@contextmanager
def services() -> Iterator[tuple[psutil.Process, dict[str, str]]]:
    """Start `slslab up` with its own state, and stop it after the block."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, "SLSLAB_STATE": f"{folder}/state", "SLSLAB_RUNS": f"{folder}/runs"}

        def command(*arguments: str) -> Any:
            done = subprocess.run(
                [sys.executable, "-m", "slslab", *arguments], env=variables, capture_output=True, text=True, check=True
            )
            return json.loads(done.stdout) if "--json" in arguments else None

        ports = ("--port", "0", "--s3-port", "0", "--edge-port", "0")
        described = command("up", "--detach", *ports, "--queue", "rabbitmq", "--json")
        try:
            yield psutil.Process(described["pid"]), command("env", "--json")["variables"]
        finally:
            command("down")


def answer(case: Case, target: Target) -> str:
    """Return a service's answer to an input, in a few words."""
    try:
        return " ".join(case.send(target).split())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def measure(target: Target, memory: Memory, chosen: str) -> list[str]:
    """Send a service's inputs and print a line for each; return the broken bounds."""
    broken = []
    if target.kind in PREPARE:
        PREPARE[target.kind](target)
    with Client(target) as other:
        if not other.calm():
            return [f"{target.kind}: the other client was not answered before the first input"]
        other.begin()
        time.sleep(2)
        first = memory.now()
        print(f"\n{target.kind}: {first:.0f} MB; without hostile inputs the other client waits {other.wait_s():.2f} s")
        for case in (case for case in CASES[target.kind] if chosen in case.name):
            other.begin()
            before, answers = memory.now(), list[str]()
            peak, began = before, time.monotonic()
            sending = threading.Thread(target=lambda: answers.append(answer(case, target)), daemon=True)  # noqa: B023
            sending.start()
            while sending.is_alive() and time.monotonic() - began < max(INPUT_S, case.limit_s):
                peak = max(peak, memory.now())
                time.sleep(LOOK_S)
            took = time.monotonic() - began
            calm = other.calm()
            waited, alive, unanswered = other.wait_s(), memory.alive, int(other.state[3])
            shown = (answers or [f"no answer in {INPUT_S:.0f} s"])[0][:90]
            marks = f"{'' if alive else '  DEAD'}{f'  {unanswered} of its requests failed' if unanswered else ''}"
            print(
                f"{case.name:<58} {took:5.1f} s  other {waited:5.2f} s  "
                f"{before:5.0f} {peak:5.0f} {memory.now():5.0f} MB  {shown}{marks}",
                flush=True,
            )
            if waited > WAIT_S:
                broken.append(f"{target.kind}: {case.name}: the other client waited {waited:.1f} s")
            if unanswered:
                broken.append(f"{target.kind}: {case.name}: {unanswered} requests of the other client failed")
            if not calm:
                broken.append(f"{target.kind}: {case.name}: the other client was not answered for {CALM_S:g} s")
            if not alive:
                return [*broken, f"{target.kind}: {case.name}: the service has ended"]
        ended = time.monotonic()
        time.sleep(3)
        while (kept := memory.now() - first) > KEPT_MB and time.monotonic() < ended + CALM_S:
            time.sleep(1)  # Erlang's collector runs later
        print(f"{target.kind}: after all inputs {kept:+.0f} MB")
        if kept > KEPT_MB:
            broken.append(f"{target.kind}: it kept {kept:.0f} MB")
    return broken


def main() -> int:
    """Measure the chosen services, by default all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("services", nargs="*", metavar="SERVICE", help=f"{', '.join(CASES)}; all by default")
    parser.add_argument("--only", default="", metavar="TEXT")
    options = parser.parse_args()
    if unknown := set(options.services) - set(CASES):
        parser.error(f"unknown service {min(unknown)!r}: services are {', '.join(CASES)}")
    broken: list[str] = []
    free = psutil.virtual_memory().available
    inputs = 0
    with services() as (up, variables):
        for kind in options.services or CASES:
            target = Target.of(kind, variables)
            SMALL[kind](target)()  # some services start with their first request
            broken += measure(target, Memory(up, kind), options.only)
            inputs += sum(options.only in case.name for case in CASES[kind])
    lost = (free - psutil.virtual_memory().available) / MB
    print(f"\n{inputs} inputs. The host has {lost:+.0f} MB less memory than before.")
    print("\n".join(broken) or f"All bounds held: no wait of more than {WAIT_S:g} s, no service dead, no memory kept.")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
