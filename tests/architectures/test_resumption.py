"""Workers that outlive an invocation: checkpoint, self-invocation through a Lambda endpoint, the same trajectory."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from slslab.runs.planning import architectures
from slslab_workers.allreduce.handlers import AllReduceWorker
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import Objects
from slslab_workers.plan import Assignment, Plan
from slslab_workers.scatterreduce.handlers import ScatterReduceWorker
from slslab_workers.training import state as state_module
from slslab_workers.training import worker

WORKERS: dict[str, type[worker.Worker]] = {"allreduce": AllReduceWorker, "scatterreduce": ScatterReduceWorker}
MakePlan = Callable[..., Plan]


class Context:
    """A Lambda context whose time runs out at a worker's n-th step of each generation."""

    aws_request_id = "request"
    function_name = "worker"

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def get_remaining_time_in_millis(self) -> int:
        self._steps -= 1
        return 900_000 if self._steps > 0 else 0


class Lambda(ThreadingHTTPServer):
    """An Invoke endpoint that runs asynchronous invocations of workers in threads of this process."""

    def __init__(self, work: Callable[[Assignment], dict[str, Any]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.pool = ThreadPoolExecutor(16)
        self.work = work
        self.invocations: list[tuple[str, Assignment, Future[dict[str, Any]]]] = []
        self.thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self.thread.start()

    def accept(self, path: str, payload: bytes) -> None:
        assignment = Assignment.from_event(json.loads(payload))
        self.invocations.append((path, assignment, self.pool.submit(self.work, assignment)))

    def stop(self) -> None:
        self.shutdown()
        self.thread.join()
        self.server_close()
        self.pool.shutdown()


class Handler(BaseHTTPRequestHandler):
    server: Lambda

    def do_POST(self) -> None:
        payload = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["X-Amz-Invocation-Type"] == "Event"
        self.server.accept(self.path, payload)
        self.send_response(202)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def start_lambda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Lambda]]:
    started: list[Lambda] = []

    def start(work: Callable[[Assignment], dict[str, Any]]) -> Lambda:
        server = Lambda(work)
        started.append(server)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", f"http://127.0.0.1:{server.server_address[1]}")
        return server

    yield start
    for server in started:
        server.stop()


@pytest.mark.parametrize("name", sorted(WORKERS))
def test_resumed_workers_follow_the_same_trajectory(
    name: str,
    store: Any,
    make_plan: MakePlan,
    reference: Callable[[Plan], Any],
    upload: Callable[[Plan], str],
    start_lambda: Callable[..., Lambda],
) -> None:
    """Only worker 1 runs short of time, in its second step of each generation: all leave after it, mid-epoch."""
    plan = make_plan(name, workers=3, batches=3, epochs=2)
    bucket = upload(plan)
    events: list[dict[str, Any]] = []

    def work(assignment: Assignment) -> dict[str, Any]:
        tracer = Tracer(events.append, plan.run, assignment.rank, f"{assignment.rank}/{assignment.generation}")
        context = Context(2 if assignment.rank == 1 else 1_000)
        objects = Objects(store, bucket, tracer)
        return WORKERS[name](assignment, context, objects).run()

    server = start_lambda(work)
    with ThreadPoolExecutor(3) as pool:
        first = list(pool.map(work, [Assignment(plan, bucket, rank, 0, 6, False, False, 0) for rank in range(3)]))
    assert first == [{"status": "continued", "rank": rank, "position": 2} for rank in range(3)]
    for _, _, future in server.invocations[:3]:
        future.result(timeout=60)
    answers = [(assignment, future.result(timeout=60)) for _, assignment, future in server.invocations]
    assert {path for path, _, _ in server.invocations} == {"/2015-03-31/functions/worker/invocations"}
    taken = sorted((a.generation, a.rank, a.first, answer["position"]) for a, answer in answers)
    assert taken == [(g, rank, 2 * g, 2 * g + 2) for g in (1, 2) for rank in range(3)]
    expected, _ = reference(plan)
    finished = [answer for assignment, answer in answers if assignment.generation == 2]
    assert {answer["parameters_sha256"] for answer in finished} == {expected[-1]}
    assert all(len(answer["losses"]) == 6 for answer in finished)
    counts = architectures()[name].counts(3, 3, 2, 61_706)
    protocol: dict[str, int] = {}
    for event in events:
        if not event["overhead"]:
            protocol[event["op"]] = protocol.get(event["op"], 0) + event["requests"]
    assert protocol == dict(counts.operations)
    for rank in range(3):
        result = json.loads(store.get_object(Bucket=bucket, Key=f"{plan.run}/results/{rank}")["Body"].read())
        assert result["position"] == 6


def test_an_event_delivered_twice_is_refused(store: Any, make_plan: MakePlan, upload: Callable[[Plan], str]) -> None:
    plan = make_plan("scatterreduce", workers=1, mode="per-batch")
    bucket = upload(plan)

    def invoke(first: int) -> dict[str, Any]:
        assignment = Assignment(plan, bucket, 0, first, first + 1, first > 0, True, 0)
        objects = Objects(store, bucket, Tracer(lambda _event: None))
        return ScatterReduceWorker(assignment, Context(1_000), objects).run()

    invoke(0)
    invoke(1)
    with pytest.raises(ValueError, match="to go on at step 1, and its state is at 2"):
        invoke(1)


def test_a_failed_invocation_leaves_no_half_trained_state_behind(
    store: Any, make_plan: MakePlan, upload: Callable[[Plan], str], reference: Callable[[Plan], Any]
) -> None:
    """The state that an environment kept is ahead of the stored one when an invocation fails: it must not be used."""
    plan = make_plan("scatterreduce", workers=1, batches=3, mode="per-batch")
    bucket = upload(plan)

    class Failing(ScatterReduceWorker):
        def _save(self, state: state_module.WorkerState) -> None:
            raise OSError(f"the store is gone at step {state.position}")

    def invoke(first: int, kind: type[worker.Worker] = ScatterReduceWorker) -> dict[str, Any]:
        assignment = Assignment(plan, bucket, 0, first, first + 1, first > 0, True, 0)
        objects = Objects(store, bucket, Tracer(lambda _event: None))
        return kind(assignment, Context(1_000), objects).run()

    invoke(0)
    with pytest.raises(OSError, match="the store is gone"):
        invoke(1, Failing)
    invoke(1)
    assert invoke(2)["parameters_sha256"] == reference(plan)[0][-1]
