"""Whole runs that meet the faults of a plan: what passes changes nothing, what does not ends the run by name."""

import math
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from tests import commands
from tests.choices import chosen

from slslab.runs.planning import architectures
from slslab.trace.log import load

pytestmark = pytest.mark.server

Document = Mapping[str, Any]
# Of a run and its fault plan: the document, and the directory.
Run = Callable[..., tuple[Document, Path]]
SMALL = ("--workers", "2", "--epochs", "2", "--batches", "2", "--no-evaluation", "--timeout", "60")
# Environments are forks, whose memory is in part that of the process that they are forks of.
ALSO = {"spirt": ("--light-memory", "700"), "mlless": ("--filter", "none")}
# These learn the same to the last bit.
ALIKE = ("allreduce", "scatterreduce", "gpu", "gradssharding")
PASSING: tuple[Document, ...] = (
    {"kind": "slow-down", "probability": 0.3},
    {"kind": "unreachable", "op": "object.get", "worker": 1, "epoch": 0},
    {"kind": "slow-store", "op": "object.get", "step": 1, "seconds": 0.1},
    {"kind": "straggler", "worker": 1, "factor": 1.5},
)
THROTTLE = {"kind": "throttle", "worker": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The command line within this process."""
    directory = tmp_path_factory.mktemp("runs")

    def start(what: str, *faults: Document, options: tuple[str, ...] = SMALL) -> tuple[Document, Path]:
        given: tuple[str, ...] = (*options, *ALSO.get(what, ()))
        number = len(list(directory.iterdir()))
        if faults:
            path = directory / f"{number}.toml"
            path.write_text(tomli_w.dumps({"seed": 5, "fault": list(faults)}))
            given += ("--faults", str(path))
        out = directory / f"run{number}"
        with commands.forked_environments():
            done = commands.slslab("run", what, *given, "--out", out, "--json", variables={"CUDA_VISIBLE_DEVICES": ""})
        document = done.printed
        assert done.code == (0 if document["status"] == "done" else 1), done.err
        return document, out

    return start


@pytest.fixture(scope="module")
def learnt(run: Run) -> Callable[[str], str]:
    """The fingerprint of what an architecture learns without faults."""
    found: dict[str, str] = {}

    def fingerprint(name: str) -> str:
        alike = ALIKE[0] if name in ALIKE else name
        if alike not in found:
            found[alike] = run(alike)[0]["parameters_sha256"]
        return found[alike]

    return fingerprint


def met(directory: Path) -> list[tuple[Any, ...]]:
    """Return the refused requests, deaths and losses of a run by place; a poll more is no fault more."""
    names = ("resource", "worker", "epoch", "step", "phase")
    events = [event for event in load(directory).events if event["op"] == "fault"]
    return sorted({tuple(event[name] for name in names) for event in events if "straggler" not in event["resource"]})


def test_every_architecture_is_here() -> None:
    assert set(architectures()) >= {*ALIKE, *ALSO}


@pytest.mark.parametrize("name", chosen([*ALIKE, *ALSO], "allreduce", "mlless"))
def test_faults_that_pass_change_nothing_that_is_learnt(name: str, run: Run, learnt: Callable[[str], str]) -> None:
    """S3 that is too busy, unreachable or slow for a while, a straggler, and an invocation that is throttled."""
    # State machines do not repeat what is throttled, unless their definition has a Retry; instances are not invoked.
    faults = PASSING if name in ("gpu", "spirt") else (*PASSING, THROTTLE)
    # What has a queue must not mind a message that comes twice.
    faults += ({"kind": "message-duplicated"},) if name in ALSO else ()
    document, directory = run(name, *faults)
    assert document["error"] is None
    assert document["parameters_sha256"] == learnt(name)
    assert document["replicas_equal"]
    assert [fault["kind"] for fault in document["faults"]] == [fault["kind"] for fault in faults]
    assert all(fault["times"] for fault in document["faults"])
    assert document["faults"][2]["held_up_seconds"] >= 0.1 * document["faults"][2]["times"]
    assert document["faults"][3]["held_up_seconds"] > 0
    assert document["lambda"]["status"] == "not modelled"
    assert "Faults were injected" in document["lambda"]["reason"]
    failed = [event for event in load(directory).events if event["failed"] and event["op"].startswith("object.")]
    refused = sum(fault["times"] for fault in document["faults"][:2])
    assert len(failed) >= refused > 2


@pytest.mark.parametrize("name", chosen([*ALIKE, *ALSO], "allreduce", "mlless"))
def test_a_killed_worker_ends_the_run_by_name(name: str, run: Run) -> None:
    document, directory = run(name, {"kind": "kill", "worker": 1, "epoch": 0, "step": 1, "phase": "compute"})
    error = document["error"]
    assert document["status"] == "failed"
    assert "killed" in error["message"] or "SIGKILL" in error["message"]
    assert (error["worker"], error["epoch"]) == (1, 0)
    assert error["last_activity"].startswith("Worker 1 was in epoch 0, step 1: ")
    assert error["hint"] == "fault 1 (kill) of the run's fault plan did that."
    assert met(directory) == [("1 kill", 1, 0, 1, "compute")]
    [fault] = document["faults"]
    assert (fault["times"], fault["worker"], fault["epoch"], fault["step"]) == (1, 1, 0, 1)
    computed = [(e["epoch"], e["step"]) for e in load(directory).events if e["op"] == "compute" and e["worker"] == 1]
    assert (0, 1) not in computed, "it was killed before it computed"
    assert document["seconds"]["measured"] < 60 + 30, "nobody waits for it longer than a function may last"


@pytest.mark.parametrize(
    ("kind", "error_type"), [("out-of-memory", "Runtime.OutOfMemory"), ("timeout", "Sandbox.Timedout")]
)
def test_limits_are_exceeded_as_lambda_reports_it(kind: str, error_type: str, run: Run) -> None:
    fault = {"kind": kind, "worker": 1, "epoch": 0, "step": 1, "phase": "synchronise"}
    document, directory = run("allreduce", fault, options=(*SMALL[:-1], "15"))
    assert document["error"]["type"] == error_type
    assert f"fault 1 ({kind}) of the run's fault plan" in document["error"]["hint"]
    assert document["error"]["step"] == 1
    assert met(directory) == [(f"1 {kind}", 1, 0, 1, "synchronise")]
    assert document["reports"]["endings"][error_type] >= 1
    if document["error"]["worker"] == 0:
        # Both were out of time at once: rank 0 waited for what worker 1 did not put.
        assert "it waited for" in document["error"]["last_activity"]
    if kind == "out-of-memory":
        assert document["peak_memory_mb"] == document["memory_mb"]


def test_a_refusal_that_stays_ends_the_run_by_name(run: Run) -> None:
    """A request is made three times."""
    fault = {"kind": "slow-down", "worker": 1, "epoch": 0, "step": 1, "op": "object.put", "count": 3}
    document, _ = run("allreduce", fault)
    error = document["error"]
    assert "SlowDown" in error["message"]
    assert (error["worker"], error["epoch"], error["step"]) == (1, 0, 1)
    assert "its last event was object.put (synchronise) of " in error["last_activity"]
    assert error["hint"] == "fault 1 (slow-down) of the run's fault plan did that."


@pytest.mark.parametrize("name", ["allreduce", "spirt"])
def test_a_throttled_invocation_is_given_up_after_as_many_attempts_as_boto3_makes(name: str, run: Run) -> None:
    document, _ = run(name, {**THROTTLE, "count": 9})
    assert document["error"]["type"] == "TooManyRequestsException"
    assert document["error"]["worker"] == 1
    assert document["error"]["hint"] == "fault 1 (throttle) of the run's fault plan did that."
    assert document["faults"][0]["times"] == 5


def test_kubeml_goes_on_without_a_function_that_is_killed(run: Run, learnt: Callable[[str], str]) -> None:
    """For the rest of its epoch; what is throttled once is invoked again, and nothing is left out."""
    options = (*SMALL, "--queue", "embedded", "--job-memory", "1024")
    throttled, _ = run("kubeml", THROTTLE, options=options)
    assert throttled["faults"][0]["times"] == 2, "once in each epoch"
    assert throttled["parameters_sha256"] == learnt("kubeml")
    killed, directory = run("kubeml", {"kind": "kill", "worker": 1, "epoch": 0, "phase": "compute"}, options=options)
    assert killed["error"] is None
    assert [(f["epoch"], f["function"]) for f in killed["details"]["failed_functions"]] == [(0, 1)]
    assert met(directory) == [("1 kill", 1, 0, 0, "compute")]


def test_a_run_by_its_own_plan_meets_the_same_faults(run: Run) -> None:
    """The plan that a run leaves holds its faults."""
    first, directory = run("allreduce", {"kind": "slow-down", "probability": 0.2})
    plan = tomllib.loads((directory / "plan.toml").read_text())
    assert plan["faults"] == {"seed": 5, "fault": [{"kind": "slow-down", "probability": 0.2}]}
    second, again = run(str(directory / "plan.toml"), options=())
    assert met(directory) == met(again) != []
    assert first["parameters_sha256"] == second["parameters_sha256"]
    assert first["faults"][0]["times"] == second["faults"][0]["times"]


def test_a_message_that_is_lost_ends_mlless_with_what_was_waited_for(run: Run) -> None:
    """Before the function's time is over: worker 0 waits for a decision that needs worker 1's report."""
    fault = {"kind": "message-lost", "worker": 1, "epoch": 0, "step": 1}
    document, directory = run("mlless", fault, options=(*SMALL[:-1], "15"))
    error = document["error"]
    assert error["type"] == "TimeoutError"
    assert error["message"].startswith("Step 1 waited for C of the supervisor")
    assert (error["epoch"], error["step"]) == (0, 1)
    assert error["hint"] == "fault 1 (message-lost) of the run's fault plan had happened to worker 1."
    assert met(directory) == [("1 message-lost queue.publish", 1, 0, 1, "synchronise")]


def test_spirt_leaves_a_peer_out_whose_announcement_is_lost(run: Run, learnt: Callable[[str], str]) -> None:
    """After the barrier's time-out; the peer takes over what the others have, and takes part in the next epoch."""
    fault = {"kind": "message-lost", "worker": 1, "epoch": 0, "phase": "synchronise"}
    document, directory = run("spirt", fault, options=(*SMALL, "--barrier-timeout", "8"))
    assert document["error"] is None
    assert document["replicas_equal"]
    assert document["details"]["deaths"] == []
    assert document["parameters_sha256"] != learnt("spirt")
    assert met(directory) == [("1 message-lost queue.publish", 1, 0, -1, "synchronise")]


def test_spirt_goes_on_without_a_peer_whose_database_is_lost(run: Run) -> None:
    options = ("--workers", "3", *SMALL[2:])
    lost, directory = run(
        "spirt", {"kind": "database-loss", "worker": 2, "epoch": 0, "phase": "compute"}, options=options
    )
    assert lost["error"] is None
    assert [(death["worker"], death["epoch"]) for death in lost["details"]["deaths"]] == [(2, 0)]
    assert lost["replicas_equal"]
    assert lost["epochs_trained"] == 2
    assert met(directory) == [("1 database-loss", 2, 0, 0, "compute")]
    assert all(math.isfinite(loss) for loss in lost["loss"])


@pytest.mark.exhaustive
def test_spirt_says_that_a_database_has_restarted_empty(run: Run) -> None:
    """A peer cannot go on without its parameters, and the run ends by its name."""
    document, directory = run("spirt", {"kind": "database-restart", "worker": 1, "epoch": 0, "phase": "compute"})
    error = document["error"]
    assert error["worker"] == 1
    assert error["hint"] == "fault 1 (database-restart) of the run's fault plan had happened to worker 1."
    assert met(directory) == [("1 database-restart", 1, 0, 0, "compute")]
