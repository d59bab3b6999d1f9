"""Whole runs through the command line: plans that are run again, runs that end early, and wrong requests."""

import json
import os
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from tests import commands
from tests.leftovers import leftovers
from tests.recorded_runs import RecordedRuns

from slslab.predict.profiles import DEFAULT_PROFILE
from slslab_lab.runs.planning import architectures

pytestmark = pytest.mark.server

Slslab = Callable[..., commands.Done]
TINY_HOST = ("--tensor-host", "t3.medium")
SMALL = ("--epochs", "2", "--workers", "2", "--batches", "2")
RECORDED = str(Path(__file__).parents[1] / "replay" / "traces" / "allreduce" / "plan.toml")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this module's runs live."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def environment(runs: Path) -> dict[str, str]:
    """Variables of commands: without GPUs, so that all architectures compute on the same device."""
    return {"SLSLAB_RUNS": str(runs), "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture(scope="module")
def slslab(environment: dict[str, str]) -> Slslab:
    """Run the command line within this process, and clean up however it ends.

    Environments are forks, unless `imported` has each make its own imports.
    """

    def call(*arguments: str, imported: bool = False) -> commands.Done:
        commands.shared_object_store()  # which stays
        before = leftovers(os.getpid())
        with nullcontext() if imported else commands.forked_environments():
            done = commands.slslab(*arguments, variables=environment)
        assert set(leftovers(os.getpid())) <= set(before)
        return done

    return call


@pytest.mark.exhaustive
def test_watchdog_re_invokes_and_the_trajectory_is_the_same(slslab: Slslab, tmp_path: Path) -> None:
    """With a time-out of 4 s, 9 steps that two slow puts stretch to 0.5 s need several generations of every worker.

    With steps of this length the watchdog keeps 1 s in reserve, which a short stall of the host does not use up. The
    same in memory: tests/workers/training/test_lifetime.py.
    """
    size = ("--workers", "2", "--epochs", "9", "--batches", "1", "--batch-size", "32", "--no-evaluation", "--json")
    (tmp_path / "faults.toml").write_text(
        '[[fault]]\nkind = "slow-store"\nop = "object.put"\nphase = "synchronise"\nseconds = 0.25\n'
    )
    whole = slslab("run", "allreduce", *size).document
    pieces = slslab("run", "allreduce", *size, "--timeout", "4", "--faults", str(tmp_path / "faults.toml")).document
    assert whole["invocations"] == 2
    assert pieces["invocations"] >= 4
    for same in ("parameters_sha256", "counts", "bytes", "loss"):
        assert pieces[same] == whole[same]


def test_a_run_on_a_platform_has_the_figures_of_its_replay_there(slslab: Slslab) -> None:
    size = ("--workers", "2", "--batches", "1", "--batch-size", "256", "--no-evaluation", "--record", "together")
    model = ("--model", "mobilenet", "--dataset", "synthetic", "--memory", "3008")
    document = slslab("run", "allreduce", "--platform", "modal-t4", *model, *size, "--json").document
    assert (document["status"], document["device"]) == ("done", "cpu")
    assert (document["plan"]["platform"], document["plan"]["prices"]) == ("modal-t4", "modal")
    found = document["lambda"]
    replayed_there = slslab("replay", document["run"], "--platform", "modal-t4", "--json").document
    own = slslab("replay", document["run"], "--json").document
    assert own == replayed_there, "a run's platform is the default"
    assert (own["profile"]["name"], own["prices"]["name"], own["timeout_s"]) == ("modal-t4", "modal", 5400)
    on_lambda = slslab("replay", document["run"], "--profile", DEFAULT_PROFILE, "--json").document
    assert (on_lambda["profile"]["name"], on_lambda["timeout_s"]) == (DEFAULT_PROFILE, 900)
    assert "GPU T4" not in json.dumps(on_lambda["rows"][1])
    refused = slslab("ask", "memory", document["run"])
    assert refused.code == 2
    assert "On modal-t4 all functions have 8192 MB." in refused.err
    assert f"--profile {DEFAULT_PROFILE}" in refused.err
    assert "modelled on modal-t4 of " in slslab("ask", "path", document["run"]).out
    small = ("--workers", "2", "--epochs", "1", "--batches", "1", "--batch-size", "8", "--no-evaluation", "--json")
    mixed = slslab("ask", "patterns", document["run"], slslab("run", "scatterreduce", *small).document["run"])
    assert mixed.code == 2
    assert f"The runs are of {DEFAULT_PROFILE} and modal-t4, which can't be compared." in " ".join(mixed.err.split())
    rows = own["rows"]
    assert float(rows[0]["cost"]["value"]) == float(document["cost"]["total"])
    for figure, value in (("seconds", found["seconds"]), ("cost", float(found["cost"]["total"]))):
        replayed = rows[1][figure]
        assert float(replayed["value"]) == pytest.approx(value)
        assert [replayed["low"], replayed["high"]] == pytest.approx([*found["ranges"][figure].values()], rel=1e-4)
    bill = slslab("bill", document["run"], "--json").document
    assert [bill["host"]["total"], bill["total"]] == [document["cost"]["total"], found["cost"]["total"]]
    assert " modelled s " in slslab("runs").out
    shown = slslab("show", document["run"]).out
    assert shown.startswith("On modal-t4 (T4, modelled): ")
    assert "Ran on the CPU, not on a GPU, though containers of modal-t4 are billed." in shown
    assert "GPU memory" not in shown, "absent, not zero"


def test_a_platform_that_cannot_model_its_run_leaves_it_to_lambda(slslab: Slslab) -> None:
    size = ("--workers", "1", "--epochs", "1", "--batches", "1", "--batch-size", "8", "--no-evaluation")
    run = slslab("run", "allreduce", "--platform", "modal-t4", *size, "--json").document["run"]
    refused = slslab("replay", run)
    assert refused.code == 2
    assert "How long lenet takes for minibatches of 8 on T4 GPUs can't be said from public figures." in refused.err
    assert f"; or model the run on Lambda with --profile {DEFAULT_PROFILE}." in " ".join(refused.err.split())
    named = slslab("replay", run, "--platform", "modal-t4")
    assert (named.code, DEFAULT_PROFILE in named.err) == (2, False)
    assert slslab("replay", run, "--profile", DEFAULT_PROFILE).code == 0


def test_training_ends_at_the_accuracy_that_was_asked_for(slslab: Slslab) -> None:
    size = ("--workers", "2", "--batches", "8", "--batch-size", "32", "--lr", "0.1", "--epochs", "50")
    reached = slslab("run", "scatterreduce", *size, "--until-accuracy", "0.2", "--json").document
    assert reached["status"] == "done"
    assert 1 < reached["epochs_trained"] < 50
    *before, last = reached["accuracy"]
    assert last >= 0.2 > max(before)
    expected = architectures()["scatterreduce"].counts(2, 8, reached["epochs_trained"], 61_706)
    assert reached["counts"] == dict(expected.operations)


@pytest.mark.exhaustive
def test_a_peer_joins_a_run_of_spirts(slslab: Slslab) -> None:
    """One peer in the first epoch, two in the second; the counts are exact, and everything else stands apart.

    The same in memory: tests/workers/architectures/test_spirt_joining.py.
    """
    asked = (*SMALL, "--batch-size", "32", "--join", "1:1", "--queue", "embedded", "--light-memory", "1024", "--json")
    document = slslab("run", "spirt", *asked).document
    expected = architectures()["spirt"].counts(2, 2, 2, 61_706, {"join": "1:1"})
    assert document["counts"] == dict(expected.operations)
    assert document["counts"]["transition"] == (1 + 2) * (2 + 8)
    assert document["bytes"] == {"in": expected.bytes_in, "out": expected.bytes_out}
    assert document["details"]["joins"] == [{"worker": 1, "epoch": 1}]
    assert document["plan"]["options"]["join"] == "1:1"
    assert document["replicas_equal"] is True
    assert len(document["loss"]) == len(document["accuracy"]) == 2
    # Initial parameters of one, the model that is handed over, and a request and an answer to and from each.
    assert document["overheads"]["counts"]["tensor.set"] == 2
    assert document["overheads"]["counts"]["queue.publish"] == 4
    # Two births, one model, and the functions of three executions.
    assert document["invocations"] == 3 + 3 * (2 + 7)
    shown = slslab("show", document["run"], "--full").out
    assert "Joins" in shown


def test_out_of_memory_ends_the_run_with_a_hint(recorded_runs: RecordedRuns, tmp_path: Path) -> None:
    def run(name: str, runs: dict[str, str]) -> commands.Done:
        plan = ("run", "allreduce", *recorded_runs.options("allreduce"), "--memory", 128, "--json")
        with commands.forked_environments():
            return commands.slslab(*plan, "--out", tmp_path / name, variables=recorded_runs.variables | runs)

    ended = run("killed", {"SLSLAB_RUNS": str(tmp_path)})
    assert ended.code == 1
    document = ended.printed
    assert document["status"] == "failed"
    assert document["error"]["type"] == "Runtime.OutOfMemory"
    assert document["error"]["message"].endswith("Runtime exited with error: signal: killed")
    assert document["error"]["hint"] == "killed at its limit of 128 MB; try --memory 1024, the model's default."
    assert document["error"]["worker"] in (0, 1)
    assert document["cost"]["lines"], "what ran is priced"
    reason = "The run didn't finish, so its trace is incomplete."
    assert document["lambda"] == {"status": "not modelled", "reason": reason}
    bill = commands.slslab("bill", tmp_path / "killed", "--json").document
    assert bill == {"schema": 1, **document["lambda"], "host": document["cost"]}
    first, second, *_ = commands.slslab("show", tmp_path / "killed").out.splitlines()
    assert (first.split(":")[0], second.split(":")[0]) == (document["run"], "Runtime.OutOfMemory")
    shown = commands.slslab("show", tmp_path / "killed", "--full").out
    assert shown.startswith(f"On AWS Lambda: not modelled. {reason}")
    # Where a run of this plan has finished, its peak is known.
    peak = recorded_runs["allreduce"].document["peak_memory_mb"]
    tried = f"the last run of this plan that finished peaked at {peak:,} MB: try --memory {peak // 64 * 64 + 64}."
    assert run("again", {}).printed["error"]["hint"].endswith(tried)


@pytest.mark.cifar10
@pytest.mark.exhaustive
def test_the_real_job(slslab: Slslab, real_images: Path) -> None:
    """MobileNet on real CIFAR-10 images, batch 512: enough at 3,008 MB, killed at 1,769 MB with the hint."""
    plan = ["run", "scatterreduce", "--model", "mobilenet", "--dataset", f"folder:{real_images}", "--workers", "2"]
    plan += ["--batch-size", "512", "--batches", "1", "--no-evaluation", "--json", "--memory"]
    document = slslab(*plan, "3008", imported=True).document
    assert document["counts"] == {"object.put": 4, "object.get": 4, "object.delete": 2}
    assert document["bytes"] == {"in": 25_737_808, "out": 25_737_808}
    assert 1769 < document["peak_memory_mb"] < 3008
    assert document["replicas_equal"] is True
    killed = slslab(*plan, "1769", imported=True)
    assert killed.code == 1
    error = killed.printed["error"]
    assert error["type"] == "Runtime.OutOfMemory"
    peak = document["peak_memory_mb"]
    assert error["hint"] == (
        f"killed at its limit of 1,769 MB; the last run of this plan that finished peaked at {peak:,} MB: "
        f"try --memory {peak // 64 * 64 + 64}."
    )


def test_a_plan_is_run_again_with_the_same_bits(recorded_runs: RecordedRuns, slslab: Slslab, tmp_path: Path) -> None:
    path, first = recorded_runs["allreduce"]
    plan = first["plan"]
    assert (plan["schema"], plan["prices"], plan["options"]["polling"]) == (2, "aws-us-east-1", "adaptive")
    asked = ("run", str(path / "plan.toml"), "--prices", "paper-2025", "--out", str(tmp_path / "again"), "--json")
    again = slslab(*asked).document
    for same in ("parameters_sha256", "loss", "accuracy", "counts", "bytes"):
        assert again[same] == first[same]
    assert again["run"] != first["run"]
    assert again["plan"] == plan | {"run": again["run"], "prices": "paper-2025"}
    assert again["cost"]["book"]["name"] == "paper-2025"
    assert tomllib.loads((tmp_path / "again" / "plan.toml").read_text()) == again["plan"]


def test_a_plan_with_a_queue_and_databases_of_other_hosts_is_run_again(
    recorded_runs: RecordedRuns, slslab: Slslab, runs: Path
) -> None:
    """The clock decides nothing of it without --max-time, --remove-threshold and --remove-interval."""
    path, first = recorded_runs["mlless"]
    assert first["plan"]["options"]["queue"] == "embedded", "what `auto` became"
    assumed = {line["item"] for line in first["cost"]["lines"] if line.get("assumed")}
    assert assumed == {"Host t4g.medium", "Host mq.m5.large"}
    again = slslab("run", str(path / "plan.toml"), "--json").document
    assert again["parameters_sha256"] == first["parameters_sha256"]
    assert again["plan"] == first["plan"] | {"run": again["run"]}
    assert "Host t4g.medium (assumed)" in slslab("show", again["run"], "--full").out
    page = (runs / again["run"] / "report.html").read_text()
    assert "Host t4g.medium (assumed)" in page


def test_instances_are_no_containers_with_the_embedded_stack(slslab: Slslab, tmp_path: Path) -> None:
    done = slslab("run", "gpu", "--environment", "docker", "--out", str(tmp_path / "run"), imported=True)
    assert done.code == 2
    error, hint = done.err.strip().splitlines()[-2:]
    assert error == "Error: With the embedded stack, instances are processes of this host."
    assert hint == "Hint: --stack compose launches them as containers."
    assert not (tmp_path / "run").exists()


def test_a_run_that_its_host_cannot_begin_leaves_nothing(
    slslab: Slslab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    done = slslab("run", "allreduce", "--environment", "docker", "--out", str(tmp_path / "run"), imported=True)
    assert done.code == 3
    error, hint = done.err.strip().splitlines()[-2:]
    assert error == f"Error: No Docker engine answers: No such file or directory at {tmp_path}/nobody.sock."
    assert hint.startswith("Hint: start Docker")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (
            ("run", "spirt", "--workers", "80", "--memory", "10240", "--light-memory", "10240"),
            3,
            "1 environment at once: 1 × 10,240 MB + 819,920 MB of smaller",
        ),
        (("run", "spirt", "--workers", "4000"), 2, "default allows only 1,000 concurrent functions"),
        (("run", "spirt", "--join", "0:1"), 2, "--epochs 2, or more"),
        (("run", "spirt", "--epochs", "3", "--join", "4:1"), 2, "Peer 4 doesn't exist, so it can't join"),
        (("run", "allreduce", "--workers", "900"), 3, "900 environments at once: 900 × 1,024 MB = 921,600 MB"),
        (("run", "allreduce", "--workers", "4000"), 2, "default allows only 1,000 concurrent functions"),
        (("run", "allreduce", "--batches", "50"), 2, "= 12,800 samples an epoch, but the training set has 1,433"),
        (("run", "nothing"), 2, "There is no architecture 'nothing'"),
        (("run", "spirt", "--combine", "sum"), 2, "'sum' is not one of 'mean', 'median'"),
        (("run", "allreduce", "--model", "alexnet"), 2, "There is no model 'alexnet'"),
        (
            ("run", "allreduce", *SMALL, "--model", "lenet", "--dataset", "folder:/nowhere"),
            2,
            "/nowhere is not a directory",
        ),
        (("run", "allreduce", "--account", "new", "--workers", "12"), 2, "new allows only 10 concurrent functions"),
        (
            ("run", "spirt", "--model", "resnet18", "--dataset", "synthetic", "--batches", "100", *TINY_HOST),
            2,
            "spirt with 4 workers keeps 4.56 to 4.6 GB in one t3.medium, which has 4 GiB.",
        ),
        (("run", "allreduce", "--memory", "64"), 2, "Lambda has functions of 128 to 10,240 MB, and --memory is 64 MB."),
        (("run", "allreduce", "--timeout", "901"), 2, "Lambda has time-outs of 1 to 900 s, and --timeout is 901 s."),
        (("run", "allreduce", "--mode", "per-batch", "--invoke", "event"), 2, "--invoke sync"),
        (("run", "allreduce", "--prices", "nowhere"), 2, "nowhere"),
        (("run", "gpu", "--strict-packages"), 2, "Instances have the packages of this machine"),
        (("run", "spirt", "--strict-packages", "--stack", "compose"), 2, "Containers have the packages of their image"),
        (("run", "spirt", "--strict-packages", "--environment", "docker"), 2, "have the packages of their image"),
        (("run", "gpu", "--mode", "per-batch"), 2, "leave out --mode"),
        (("run", "gpu", "--invoke", "event"), 2, "leave out --mode and --invoke"),
        (("run", "gpu", "--as-released"), 2, "omit --as-released"),
        (("run", "gpu", "--instance-type", "t2.nano"), 2, "has no instance type 't2.nano'"),
        (("run", "mlless", "--queue-host", "t2.nano"), 2, "has no instance type 't2.nano'"),
        (("run", "allreduce", "--tensor-host", "m5.large"), 2, "No such option"),
        (("run", "nothing.toml"), 2, "There is no plan 'nothing.toml'"),
        (("run", "nowhere/plan"), 2, "There is no plan 'nowhere/plan'"),
        (("run", "nowhere/plan", "--epochs", "2"), 2, "--epochs doesn't apply to a plan"),
        (("run", RECORDED), 2, "cannot be run again, because it has no schema, memory_format"),
        (("run", "gpu", "--platform", "modal-t4"), 2, "gpu runs on instances, not on functions."),
        (("run", "gpu", "--device", "cuda"), 3, "torch sees no CUDA device"),
        (("run", "allreduce", "--out", "/proc/x"), 2, "/proc/x cannot be made"),
        (("show", "nothing"), 2, "There is no run 'nothing'"),
        (("compare", "last"), 2, "compare needs two runs"),
        (("frobnicate",), 2, "No such command"),
    ],
)
def test_bad_requests_get_one_sentence_and_a_hint(
    slslab: Slslab, runs: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    before = sorted(runs.iterdir())
    ended = slslab(*arguments)
    assert ended.code == code, ended.err
    assert says in ended.err
    assert "Traceback" not in ended.err
    assert ended.out == ""
    assert sorted(runs.iterdir()) == before, "a wrong request leaves no run behind"


def test_doctor(slslab: Slslab) -> None:
    found = {finding["subject"]: finding for finding in slslab("doctor", "--json").document["findings"]}
    assert found["training"]["state"] == "ok"
    assert "can't reach each other, your files and your keys" in found["isolation"]["hint"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with room for a part of a trace."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root may mount a disk")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_ends_a_run_with_one_sentence_and_its_trace_is_kept(slslab: Slslab, small_disk: Path) -> None:
    out = small_disk / "run"
    ended = slslab("run", "allreduce", *SMALL, "--out", str(out))
    assert (ended.code, ended.out) == (3, "")
    assert "Traceback" not in ended.err
    assert f"Error: {out}/" in ended.err
    assert "cannot be written: No space left on device.\nHint: make room for runs; the trace so far" in ended.err
    refused = slslab("show", str(out))
    assert (refused.code, refused.out) == (3, "")
    assert refused.err.startswith(f"Error: {out}/trace.parquet cannot be written: No space left on device.\n")
    subprocess.run(["mount", "-o", "remount,size=1m", small_disk], check=True)
    document = slslab("show", str(out), "--json").document
    assert (document["status"], document["error"]["type"]) == ("interrupted", "Killed")
    assert document["counts"]["object.put"] > 0
