"""Runs that meet the faults of a plan: what passes changes nothing, what does not ends the run by name.

Functions run in memory; of each kind of fault there is a real run as well. Runs of instances are all real.
"""

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tomli_w
from tests import commands
from tests.workers.architectures.conftest import InMemory

from slslab.run.log import load
from slslab_lab.runs.planning import architectures

server = pytest.mark.server

Document = Mapping[str, Any]
VALUES: Document = {"dataset": "digits", "workers": 2, "epochs": 2, "batches": 2, "evaluation": False, "timeout": 60}
# Environments are forks, whose memory is in part that of the process that they are forks of.
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "allreduce": {},
    "scatterreduce": {},
    "gradssharding": {},
    "mlless": {"filter": "none"},
    "spirt": {"light-memory": 700},
    "kubeml": {"job-memory": 1024},
    "gpu": {},
    "gloo": {},
}
INSTANCES = ("gpu", "gloo")
FUNCTIONS = tuple(name for name in OPTIONS if name not in INSTANCES)
QUEUES = ("mlless", "spirt", "kubeml")
THROTTLE = {"kind": "throttle", "worker": 1}
DUPLICATED = {"kind": "message-duplicated"}
KILL = {"kind": "kill", "worker": 1, "epoch": 0, "step": 1, "phase": "compute"}


class Faulted(NamedTuple):
    """A run's document and its events, and where a real run left them."""

    document: Document
    events: Sequence[Mapping[str, Any]]
    directory: Path

    def met(self) -> list[tuple[Any, ...]]:
        """Return the refused requests, deaths and losses by place; another poll doesn't count as another fault."""
        names = ("resource", "worker", "epoch", "step", "phase")
        faults = [event for event in self.events if event["op"] == "fault"]
        faults = [event for event in faults if "straggler" not in event["resource"]]
        return sorted({tuple(event[name] for name in names) for event in faults})


# Of an architecture and faults, with other options and values than OPTIONS and VALUES.
Run = Callable[..., Faulted]


@pytest.fixture(scope="module")
def faulted(in_memory: InMemory, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run in memory."""

    def run(name: str, *faults: Document, options: Document | None = None, **values: Any) -> Faulted:
        home = tmp_path_factory.mktemp("faults")
        given = {**VALUES, **values, **({"faults": write(home, faults)} if faults else {})}
        recorded = in_memory(name, {**OPTIONS[name], **(options or {})}, **given).recorded
        document: Any = recorded.document
        return Faulted(document, list(recorded.events), home)

    return run


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The command line within this process."""

    def run(what: str, *faults: Document, options: Document | None = None, **values: Any) -> Faulted:
        home = tmp_path_factory.mktemp("real")
        given: list[object] = []
        if what in OPTIONS:
            for name, value in {**VALUES, **values, **OPTIONS[what], **(options or {})}.items():
                given += ["--no-evaluation"] if name == "evaluation" else [f"--{name}", value]
        if faults:
            given += ["--faults", write(home, faults)]
        out = home / "run"
        with commands.forked_environments():
            done = commands.slslab("run", what, *given, "--out", out, "--json", variables={"CUDA_VISIBLE_DEVICES": ""})
        document = done.printed
        assert done.code == (0 if document["status"] == "done" else 1), done.err
        return Faulted(document, list(load(out).events), out)

    return run


def write(directory: Path, faults: Sequence[Document]) -> Path:
    """Write a fault plan into the directory, and return its path."""
    path = directory / "faults.toml"
    path.write_text(tomli_w.dumps({"seed": 5, "fault": faults}))
    return path


@pytest.fixture(scope="module")
def learnt(faulted: Run) -> Callable[[str], str]:
    """The fingerprint of what an architecture learns without faults; instances learn what AllReduce's workers do."""

    @cache
    def fingerprint(name: str) -> str:
        return str(faulted("allreduce" if name in INSTANCES else name).document["parameters_sha256"])

    return fingerprint


def test_every_architecture_is_here() -> None:
    assert set(architectures()) == {*OPTIONS}


def passing(name: str) -> tuple[Document, ...]:
    """Return faults that an architecture gets over: S3 that is too busy, unreachable or slow for a while, a straggler,
    an invocation that is throttled, and messages that come twice."""
    # KubeML's functions get an epoch's documents at once.
    step = {} if name == "kubeml" else {"step": 1}
    faults: tuple[Document, ...] = (
        {"kind": "slow-down", "probability": 0.5},
        {"kind": "unreachable", "op": "object.get", "worker": 1, "epoch": 0},
        {"kind": "slow-store", "op": "object.get", "seconds": 0.1, **step},
        {"kind": "straggler", "worker": 1, "factor": 1.5},
    )
    # State machines do not repeat what is throttled, unless their definition has a Retry; instances are not invoked.
    faults += (THROTTLE,) if name not in (*INSTANCES, "spirt") else ()
    return (*faults, DUPLICATED) if name in QUEUES else faults


def check_passed(name: str, run: Faulted, learnt: str) -> None:
    document, faults = run.document, passing(name)
    assert document["error"] is None
    assert document["parameters_sha256"] == learnt
    assert document["replicas_equal"]
    assert [fault["kind"] for fault in document["faults"]] == [fault["kind"] for fault in faults]
    assert all(fault["times"] for fault in document["faults"])
    assert document["faults"][2]["held_up_seconds"] >= 0.1 * document["faults"][2]["times"]
    assert document["faults"][3]["held_up_seconds"] > 0
    assert document["lambda"]["status"] == "not modelled"
    assert "Faults were injected" in document["lambda"]["reason"]
    failed = [event for event in run.events if event["failed"] and event["op"].startswith("object.")]
    refused = sum(fault["times"] for fault in document["faults"][:2])
    assert len(failed) >= refused > 2


@pytest.mark.parametrize("name", FUNCTIONS)
def test_faults_that_pass_change_nothing_that_is_learnt(name: str, faulted: Run, learnt: Callable[[str], str]) -> None:
    check_passed(name, faulted(name, *passing(name)), learnt(name))


@server
@pytest.mark.parametrize("name", ["mlless", *INSTANCES])
def test_faults_that_pass_change_nothing_in_a_real_run(name: str, real: Run, learnt: Callable[[str], str]) -> None:
    check_passed(name, real(name, *passing(name)), learnt(name))


def check_killed(run: Faulted) -> None:
    error = run.document["error"]
    assert run.document["status"] == "failed"
    assert "killed" in error["message"] or "SIGKILL" in error["message"]
    assert (error["worker"], error["epoch"]) == (1, 0)
    assert error["last_activity"].startswith("Worker 1 was in epoch 0, step 1: ")
    assert error["hint"] == "fault 1 (kill) in the fault plan caused this."
    assert run.met() == [("1 kill", 1, 0, 1, "compute")]
    [fault] = run.document["faults"]
    assert (fault["times"], fault["worker"], fault["epoch"], fault["step"]) == (1, 1, 0, 1)
    computed = [(e["epoch"], e["step"]) for e in run.events if e["op"] == "compute" and e["worker"] == 1]
    assert (0, 1) not in computed, "it was killed before it computed"
    assert run.document["seconds"]["measured"] < 60 + 30, "waits for it end when a function's time-out would"


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "kubeml"])
def test_a_killed_worker_ends_the_run_by_name(name: str, faulted: Run) -> None:
    check_killed(faulted(name, KILL))


@server
@pytest.mark.parametrize("name", ["allreduce", *INSTANCES])
def test_a_killed_worker_ends_a_real_run_by_name(name: str, real: Run) -> None:
    check_killed(real(name, KILL))


# With the function's timeout in seconds: touching all its memory takes a busy host a while.
LIMITS = [("out-of-memory", "Runtime.OutOfMemory", 120), ("timeout", "Sandbox.Timedout", 10)]


def check_exceeded(kind: str, error_type: str, run: Faulted) -> None:
    document = run.document
    assert document["error"]["type"] == error_type
    assert f"fault 1 ({kind}) in the fault plan" in document["error"]["hint"]
    assert document["error"]["step"] == 1
    assert run.met() == [(f"1 {kind}", 1, 0, 1, "synchronise")]
    assert document["reports"]["endings"][error_type] >= 1
    if document["error"]["worker"] == 0:
        # Both were out of time at once: rank 0 waited for what worker 1 did not put.
        assert "it waited for" in document["error"]["last_activity"]
    if kind == "out-of-memory":
        assert document["peak_memory_mb"] == document["memory_mb"]


@pytest.mark.parametrize(("kind", "error_type", "timeout"), LIMITS)
@pytest.mark.parametrize("name", ["allreduce", "scatterreduce", "gradssharding"])
def test_limits_are_exceeded_as_lambda_reports_it(
    name: str, kind: str, error_type: str, timeout: int, faulted: Run
) -> None:
    fault = {"kind": kind, "worker": 1, "epoch": 0, "step": 1, "phase": "synchronise"}
    check_exceeded(kind, error_type, faulted(name, fault, timeout=timeout))


@server
@pytest.mark.parametrize(("kind", "error_type", "timeout"), LIMITS)
def test_limits_are_exceeded_in_a_real_run_as_lambda_reports_it(
    kind: str, error_type: str, timeout: int, real: Run
) -> None:
    fault = {"kind": kind, "worker": 1, "epoch": 0, "step": 1, "phase": "synchronise"}
    check_exceeded(kind, error_type, real("allreduce", fault, timeout=timeout))


@pytest.mark.parametrize("name", ["allreduce", "scatterreduce"])
def test_a_refusal_that_stays_ends_the_run_by_name(name: str, faulted: Run) -> None:
    """A request is made three times."""
    fault = {"kind": "slow-down", "worker": 1, "epoch": 0, "step": 1, "op": "object.put", "count": 3}
    error = faulted(name, fault).document["error"]
    assert "SlowDown" in error["message"]
    assert (error["worker"], error["epoch"], error["step"]) == (1, 0, 1)
    assert "its last event was object.put (synchronise) of " in error["last_activity"]
    assert error["hint"] == "fault 1 (slow-down) in the fault plan caused this."


@pytest.mark.parametrize("name", ["allreduce", "scatterreduce", "mlless", "spirt"])
def test_a_throttled_invocation_is_given_up_after_as_many_attempts_as_boto3_makes(name: str, faulted: Run) -> None:
    document = faulted(name, {**THROTTLE, "count": 9}).document
    assert document["error"]["type"] == "TooManyRequestsException"
    assert document["error"]["worker"] == 1
    assert document["error"]["hint"] == "fault 1 (throttle) in the fault plan caused this."
    assert document["faults"][0]["times"] == 5


def test_kubeml_goes_on_without_a_function_that_is_killed(faulted: Run, learnt: Callable[[str], str]) -> None:
    """For the rest of its epoch; what is throttled once is invoked again, and nothing is left out."""
    throttled = faulted("kubeml", THROTTLE).document
    assert throttled["faults"][0]["times"] == 2, "once in each epoch"
    assert throttled["parameters_sha256"] == learnt("kubeml")
    killed = faulted("kubeml", {"kind": "kill", "worker": 1, "epoch": 0, "phase": "compute"})
    assert killed.document["error"] is None
    assert [(f["epoch"], f["function"]) for f in killed.document["details"]["failed_functions"]] == [(0, 1)]
    assert killed.met() == [("1 kill", 1, 0, 0, "compute")]


@server
def test_a_run_by_its_own_plan_meets_the_same_faults_as_in_memory(real: Run, faulted: Run) -> None:
    """The plan that a run leaves holds its faults."""
    fault = {"kind": "slow-down", "probability": 0.2}
    first = real("allreduce", fault, epochs=1)
    plan = tomllib.loads((first.directory / "plan.toml").read_text())
    assert plan["faults"] == {"seed": 5, "fault": [fault]}
    for again in (real(str(first.directory / "plan.toml")), faulted("allreduce", fault, epochs=1)):
        assert first.met() == again.met() != []
        assert first.document["parameters_sha256"] == again.document["parameters_sha256"]
        assert first.document["faults"][0]["times"] == again.document["faults"][0]["times"]


def check_lost(run: Faulted) -> None:
    error = run.document["error"]
    assert error["type"] == "TimeoutError"
    assert error["message"].startswith("Step 1 waited for C of the supervisor")
    assert (error["epoch"], error["step"]) == (0, 1)
    assert error["hint"] == "fault 1 (message-lost) in the fault plan happened to worker 1 before this."
    assert run.met() == [("1 message-lost queue.publish", 1, 0, 1, "synchronise")]


LOST = {"kind": "message-lost", "worker": 1, "epoch": 0, "step": 1}


@pytest.mark.parametrize("store", ["tensordb", "s3"])
def test_a_message_that_is_lost_ends_mlless_with_what_was_waited_for(store: str, faulted: Run) -> None:
    """Before the function's time is over: worker 0 waits for a decision that needs worker 1's report."""
    check_lost(faulted("mlless", LOST, options={"store": store}, timeout=10))


@server
def test_a_message_that_is_lost_ends_a_real_run_of_mlless(real: Run) -> None:
    check_lost(real("mlless", LOST, timeout=6))


def test_spirt_leaves_a_peer_out_whose_announcement_is_lost(faulted: Run, learnt: Callable[[str], str]) -> None:
    """After the barrier's time-out; the peer takes over what the others have, and takes part in the next epoch."""
    fault = {"kind": "message-lost", "worker": 1, "epoch": 0, "phase": "synchronise"}
    run = faulted("spirt", fault, options={"barrier-timeout": 8.0})
    assert run.document["error"] is None
    assert run.document["replicas_equal"]
    assert run.document["details"]["deaths"] == []
    assert run.document["parameters_sha256"] != learnt("spirt")
    assert run.met() == [("1 message-lost queue.publish", 1, 0, -1, "synchronise")]


@pytest.mark.parametrize("how", ["faulted", pytest.param("real", marks=server)])
def test_spirt_goes_on_without_a_peer_whose_database_is_lost(how: str, request: pytest.FixtureRequest) -> None:
    fault = {"kind": "database-loss", "worker": 2, "epoch": 0, "phase": "compute"}
    run = request.getfixturevalue(how)("spirt", fault, workers=3, batches=1)
    lost = run.document
    assert lost["error"] is None
    assert [(death["worker"], death["epoch"]) for death in lost["details"]["deaths"]] == [(2, 0)]
    assert lost["replicas_equal"]
    assert lost["epochs_trained"] == 2
    assert run.met() == [("1 database-loss", 2, 0, 0, "compute")]
    assert all(math.isfinite(loss) for loss in lost["loss"])


@pytest.mark.parametrize("how", ["faulted", pytest.param("real", marks=[server, pytest.mark.exhaustive])])
def test_spirt_says_that_a_database_has_restarted_empty(how: str, request: pytest.FixtureRequest) -> None:
    """Without its parameters a peer can't continue, and the run ends with that peer's name."""
    fault = {"kind": "database-restart", "worker": 1, "epoch": 0, "phase": "compute"}
    run = request.getfixturevalue(how)("spirt", fault)
    error = run.document["error"]
    assert error["worker"] == 1
    assert error["hint"] == "fault 1 (database-restart) in the fault plan happened to worker 1 before this."
    assert run.met() == [("1 database-restart", 1, 0, 0, "compute")]
