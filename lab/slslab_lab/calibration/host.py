"""Measurements of this host: a training step on one and on several threads, and requests to the embedded stack."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil

from slslab.host.procfs import Sample, take_sample
from slslab.host.server_process import without_foreign
from slslab.lambda_.clock import host_delay_ns
from slslab.stack.assembly import EmbeddedStack
from slslab_workers.architecture import Requirements
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import Objects, s3_client
from slslab_workers.channels.queues import open_queues
from slslab_workers.channels.tensors import TensorDatabase

MODEL, BATCH = "mobilenet", 32
THREADS = (1, 2)
STEPS = 8
# A delay by the host counts above this share of a step.
BUSY = 0.05
# Request sizes in bytes, and how many rounds to send of each.
ROUNDS = ((1_000, 60), (16_000, 30), (256_000, 20), (1_000_000, 10), (4_000_000, 8), (16_000_000, 5))
SMALL = 1_000
BUCKET = "slslab-calibration"
# Called with a stage's name, the number of steps done, and their total.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class StepTime:
    """CPU and wall seconds of a training step, by its number of threads.

    For `held_s` of these seconds its threads were ready to run but the host gave them no processor.
    """

    cpu_s: Mapping[int, float]
    wall_s: Mapping[int, float]
    held_s: Mapping[int, float]

    @property
    def busy(self) -> bool:
        """Whether the host was so busy that even the quickest steps were delayed."""
        return any(self.held_s[threads] > BUSY * wall for threads, wall in self.wall_s.items())

    @property
    def parallel(self) -> float | None:
        """The share of the step that threads do in parallel; None if only one thread was measured or the host was busy.

        A step of C CPU seconds takes C × ((1 − f) + f ÷ T) on T threads. This is f, from the largest T measured.
        """
        threads = max(self.wall_s)
        if threads == 1 or self.busy:
            return None
        serial = self.wall_s[threads] / self.cpu_s[threads]
        return min(1.0, max(0.0, (1 - serial) * threads / (threads - 1)))


@dataclass(frozen=True)
class Request:
    """One request: its bytes, and its wall and client CPU time, ms."""

    bytes: int
    wall_ms: float
    cpu_ms: float


@dataclass(frozen=True)
class Load:
    """The load of one request size on a server: all requests and bytes, and the server's CPU time in ms."""

    requests: int
    bytes: int
    cpu_ms: float


@dataclass(frozen=True)
class Exercise:
    """The measurement of one channel: requests by operation, and the load on its server by request size."""

    server: str
    requests: Mapping[str, Sequence[Request]]
    loads: Mapping[int, Load]


def measure_step(progress: Progress, steps: int = STEPS) -> StepTime:
    """Measure a MobileNet step with a small minibatch on one thread, and on two if this host has them.

    The fastest repetition counts, since other work on the host only makes steps slower. Thread counts alternate.
    """
    import torch

    from slslab_workers.training import models
    from slslab_workers.training.step import compute_gradient

    model = models.build(MODEL, 0)
    model.train()
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand((BATCH, 3, 32, 32), generator=generator)
    targets = torch.randint(0, 10, (BATCH,), generator=generator)
    threads = [count for count in THREADS if count <= len(os.sched_getaffinity(0))]
    times: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    threads_before = torch.get_num_threads()
    try:
        for number in range(steps):
            for count in threads:
                torch.set_num_threads(count)
                before, cpu, wall = _sample(), time.process_time(), time.monotonic()
                compute_gradient(model, inputs, targets)
                took = time.monotonic() - wall, time.process_time() - cpu
                times[count].append((*took, host_delay_ns(before, _sample()) / 1e9))
            progress("measuring training steps", number + 1, steps)
    finally:
        torch.set_num_threads(threads_before)
    quickest = {count: min(of_count) for count, of_count in times.items()}
    wall_s, cpu_s, held_s = ({count: best[part] for count, best in quickest.items()} for part in range(3))
    return StepTime(cpu_s, wall_s, held_s)


def _sample() -> Sample:
    return take_sample(time.monotonic_ns(), [os.getpid()], None)


def measure_channels(progress: Progress, rounds: Sequence[tuple[int, int]] = ROUNDS) -> dict[str, Exercise]:
    """Start an embedded stack and measure requests of several sizes to its S3, tensor database and queue."""
    records: list[Mapping[str, Any]] = []
    tracer = Tracer(records.append)
    with ExitStack() as parts:
        stack = parts.enter_context(EmbeddedStack(Requirements(tensor_databases=1, queue="auto")))
        servers = stack.servers
        with _variables({**stack.client_environment(), **stack.keys.owner.variables()}):
            client = s3_client()
        parts.callback(client.close)
        client.create_bucket(Bucket=BUCKET)
        database = parts.enter_context(TensorDatabase(stack.tensor_urls[0], tracer))
        queues = parts.enter_context(open_queues(stack.queue_url or "", tracer))
        objects = Objects(client, BUCKET, tracer)
        # Without a queue server, the tensor database's process serves the queue as lists.
        queue = servers.get("queue", servers["tensor_databases"]).pid
        exercises: tuple[tuple[str, str, int, Callable[[int], None]], ...] = (
            ("object", stack.versions["s3"], servers["object_store"].pid, lambda size: _ask_objects(objects, size)),
            (
                "tensor",
                stack.versions["tensors"],
                servers["tensor_databases"].pid,
                lambda size: _ask_tensors(database, size),
            ),
            ("queue", stack.versions["queue"], queue, lambda size: _ask_queue(queues, size)),
        )
        total = len(exercises) * sum(count for _, count in rounds)
        done, measured = 0, {}
        for channel, server, process, ask in exercises:
            loads: dict[int, Load] = {}
            # The first round opens connections and stores scripts, so it isn't measured.
            ask(SMALL)
            first = len(records)
            for size, count in rounds:
                begun, cpu_ms = len(records), _cpu_ms(process)
                for _ in range(count):
                    ask(size)
                    done += 1
                    progress("measuring requests", done, total)
                requests = [record for record in records[begun:] if record["requests"]]
                size_sum = sum(record["bytes"] for record in requests)
                loads[size] = Load(len(requests), size_sum, _cpu_ms(process) - cpu_ms)
            measured[channel] = Exercise(server, _by_operation(records[first:]), loads)
    return measured


def _ask_objects(objects: Objects, size: int) -> None:
    objects.put("calibration/object", bytes(size), "other")
    objects.get("calibration/object", "other")
    objects.list("calibration/", "other")
    objects.delete("calibration/object", "other")


def _ask_tensors(database: TensorDatabase, size: int) -> None:
    database.set("calibration", np.zeros(size // 4, np.float32), "other")
    database.get("calibration", "other")
    database.command("PING")
    database.set("small", np.zeros(1, np.float32), "other")
    database.execute("average", ["small"], ["average"], "other")
    database.delete(["calibration", "small", "average"], "other")


def _ask_queue(queues: Any, size: int) -> None:
    queues.declare("calibration")
    queues.bind("calibration", "calibration-exchange")
    queues.publish("calibration", bytes(size), "other")
    queues.consume("calibration", 10.0, "other").ack()
    queues.delete("calibration")
    queues.delete_exchange("calibration-exchange")


def _by_operation(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Request]]:
    requests: dict[str, list[Request]] = defaultdict(list)
    for record in records:
        if record["requests"] and not record["failed"]:
            wall_ms = (record["end_ns"] - record["start_ns"]) / 1e6
            requests[record["op"].partition(".")[2]].append(Request(record["bytes"], wall_ms, record["cpu_ns"] / 1e6))
    return requests


@contextmanager
def _variables(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update({**without_foreign(before), **variables})
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _cpu_ms(process: int) -> float:
    root = psutil.Process(process)
    times = [one.cpu_times() for one in (root, *root.children(recursive=True))]
    return 1e3 * sum(one.user + one.system for one in times)
