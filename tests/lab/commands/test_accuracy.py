"""`slslab accuracy`: curves on disk, going on after an interruption, endings, and what is refused."""

import csv
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from tests import commands
from tests.commands import Done

from slslab_lab.runs.accuracy import curve
from slslab_lab.runs.accuracy.directory import CurveDirectory
from slslab_workers.allreduce.driver import AllReduce
from slslab_workers.training.replicas import Judgement, Replicas

SMALL = ("--dataset", "digits", "--workers", "2", "--batches", "2", "--batch-size", "8")
# What two commands that train the same do not have in common.
MEASURED = ("compute_seconds", "training_seconds", "training_cpu_seconds", "evaluation_seconds")


Slslab = Callable[..., Done]


@pytest.fixture
def slslab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slslab:
    """`slslab accuracy` on the CPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("slslab.stack.instances.fleet.cuda_devices", lambda: ())
    return partial(commands.slslab, "accuracy")


def learnt(document: Any) -> list[dict[str, Any]]:
    """The epochs without what was measured."""
    return [{name: value for name, value in row.items() if name not in MEASURED} for row in document["epochs"]]


def interrupt(monkeypatch: pytest.MonkeyPatch, epoch: int) -> None:
    """Have Ctrl-C come when this epoch has been trained and not yet judged."""
    judge, judged = Replicas.judge, []

    def judge_or_end(replicas: Replicas) -> Judgement:
        judged.append(1)
        if len(judged) == epoch:
            raise KeyboardInterrupt
        return judge(replicas)

    monkeypatch.setattr(Replicas, "judge", judge_or_end)


def test_a_curve_in_two_forms(slslab: Slslab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("mlless", *SMALL, "--epochs", "3", "--threshold", "0.1", "--seed", "4", "--json", "--plot", "c.svg")
    monkeypatch.setattr(sys, "argv", ["/slslab/__main__.py", "accuracy", *words])
    done = slslab(*words)
    assert done.code == 0, done.err
    document = done.document
    directory = tmp_path / "results" / "accuracy" / "mlless-lenet-digits"
    assert sorted(path.name for path in directory.iterdir()) == [
        "checkpoint.bin", "curve.csv", "curve.json",
    ]  # fmt: skip
    assert json.loads((directory / "curve.json").read_text()) == document
    assert document["command"] == " ".join(("slslab", "accuracy", *words))
    assert (document["schema"], document["status"], document["ended"]) == (1, "done", "epochs")
    assert document["plan"]["options"]["threshold"] == 0.1
    assert document["device"]["kind"] == "cpu"
    assert document["versions"].keys() == {"slslab", "torch", "numpy", "python"}
    assert document["images"] == {"training": 1433, "validation": 0, "test": 364}
    assert document["parameters"] == 61_706
    assert document["replicas_equal"]
    rows = document["epochs"]
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert [row["samples"] for row in rows] == [32, 64, 96]
    assert all(0 <= row["significant_updates"] <= 4 and row["validation_loss"] is None for row in rows)
    assert document["best"]["test_accuracy"] == max(row["test_accuracy"] for row in rows)
    with (directory / "curve.csv").open() as lines:
        read = list(csv.DictReader(lines))
    assert [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows] == read
    assert (tmp_path / "c.svg").read_text().startswith("<svg")
    assert "epoch 3 of 3" in done.err


def test_a_table_for_people(slslab: Slslab) -> None:
    shown = slslab("spirt", *SMALL, "--epochs", "2", "--early-stopping")
    assert shown.code == 0, shown.err
    assert "2 workers × 2 batches × 8 images" in shown.out
    assert "validation loss" in shown.out
    assert "significant" not in shown.out
    assert "all epochs were trained" in shown.out


@pytest.mark.parametrize(
    ("name", "options"), [("mlless", ("--threshold", "0.1")), ("spirt", ("--update-rule", "sgd-momentum")), ("gpu", ())]
)
def test_going_on_gives_the_bits_of_going_through(
    name: str, options: tuple[str, ...], slslab: Slslab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C in the third epoch, and with more epochs than were asked for."""
    common = (name, *SMALL, *options, "--early-stopping", "--json")
    through = slslab(*common, "--epochs", "5", "--out", "through").document
    with monkeypatch.context() as patch:
        interrupt(patch, 3)
        ended = slslab(*common, "--epochs", "4", "--out", "cut")
    assert ended.code == 130
    assert "2 epochs kept, --resume continues" in ended.err
    assert ended.printed["status"] == "interrupted"
    assert ended.printed == json.loads(Path("cut/curve.json").read_text())
    assert learnt(ended.printed) == learnt(through)[:2]
    for epochs in ("4", "5", "5"):
        resumed = slslab(*common, "--epochs", epochs, "--out", "cut", "--resume")
        assert resumed.code == 0, resumed.err
    document = resumed.document
    assert learnt(document) == learnt(through)
    assert document["parameters_sha256"] == through["parameters_sha256"]
    assert [session["from_epoch"] for session in document["sessions"]] == [1, 3, 5]
    assert document["plan"]["run"] == ended.printed["plan"]["run"]
    assert document == json.loads(Path("cut/curve.json").read_text())


def test_a_checkpoint_of_slslab_0_2_is_continued(slslab: Slslab) -> None:
    through = slslab("mlless", *SMALL, "--epochs", "3", "--out", "through", "--json").document
    document = slslab("mlless", *SMALL, "--epochs", "2", "--out", "cut", "--json").document
    directory = CurveDirectory(Path("cut"))
    with directory.checkpoint() as (_, parts):
        bodies = list(parts)
    header = {name: document[name] for name in ("schema", "plan", "sessions", "ended")}
    directory.write_checkpoint(header | {"device": "cpu", "rows": document["epochs"]}, bodies)
    resumed = slslab("mlless", *SMALL, "--epochs", "3", "--out", "cut", "--resume", "--json").document
    assert learnt(resumed) == learnt(through)


def test_nothing_is_left_of_a_command_that_was_interrupted_in_its_first_epoch(
    slslab: Slslab, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(monkeypatch, 1)
    ended = slslab("gpu", *SMALL, "--out", "out", "--plot", "c.png")
    assert ended.code == 130
    assert "no epoch was completed" in ended.err
    assert list(Path().iterdir()) == []


def test_patience_and_accuracy_end_training(slslab: Slslab) -> None:
    """A rate below every parameter's last bit: the loss of the first epoch is never beaten."""
    early = (*SMALL, "--lr", "1e-30", "--early-stopping", "--json")
    stopped = slslab("allreduce", *early, "--out", "patience").document
    assert (stopped["ended"], len(stopped["epochs"])) == ("patience", 11)
    assert stopped["images"]["validation"] == 143
    assert len({row["validation_loss"] for row in stopped["epochs"]}) == 1
    again = slslab("allreduce", *early, "--epochs", "40", "--out", "patience", "--resume").document
    assert again == stopped | {"plan": again["plan"]}, "patience is over"
    reached = slslab("allreduce", *SMALL, "--until-accuracy", "0.01", "--out", "reached", "--json").document
    assert (reached["ended"], len(reached["epochs"])) == ("accuracy", 1)


def test_a_loss_that_is_no_number_is_unknown(slslab: Slslab) -> None:
    document = slslab("gpu", *SMALL, "--lr", "1e30", "--epochs", "2", "--out", "out", "--json").document
    assert document["epochs"][1]["test_loss"] is None
    assert slslab("gpu", *SMALL, "--lr", "1e30", "--epochs", "2", "--out", "again", "--plot", "c.pdf").code == 0


def test_what_authors_released_is_another_curve(slslab: Slslab, tmp_path: Path) -> None:
    released = slslab("allreduce", *SMALL, "--epochs", "1", "--as-released", "--json").document
    assert released["plan"]["options"]["combine"] == "sum"
    assert released["curve"] == "allreduce-lenet-digits-as-released"
    assert (tmp_path / "results/accuracy/allreduce-lenet-digits-as-released/curve.json").exists()


def refused(done: Done, code: int, *words: str) -> None:
    assert done.code == code, done.err
    assert done.out == ""
    assert done.err.count("\n") <= 4
    assert "Traceback" not in done.err
    for word in (*words, "Hint: "):
        assert word in done.err


def test_what_is_refused(slslab: Slslab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = (*SMALL, "--epochs", "1", "--out", "out")
    refused(slslab("allreduce", *small, "--resume"), 2, "no checkpoint to continue from")
    refused(slslab("allreduce", *small, "--device", "cuda"), 3, "no CUDA device")
    refused(slslab("mlless", *small, "--max-time", "5"), 2, "which --max-time would need to time")
    refused(slslab("gpu", *small, "--as-released"), 2, "without an exchange to run as released")
    refused(slslab("allreduce", *small, "--batches", "1000"), 2, "the training set has 1,433")
    refused(slslab("allreduce", *small, "--plot", "c.txt"), 2, "cannot be drawn")
    refused(slslab("seventh", *small), 2, "There is no architecture")
    refused(slslab("kubeml", *small, "--job-memory", "-4"), 2, "job-memory cannot be -4", "or 0 to have it chosen")
    refused(slslab("mlless", *small, "--supervisor-memory", "0"), 2, "memory cannot be 0", "give a memory size, MB.")
    assert list(tmp_path.iterdir()) == []
    assert slslab("allreduce", *small).code == 0
    refused(slslab("allreduce", *small), 2, "is not empty", "--resume to continue")
    refused(slslab("allreduce", *small, "--seed", "3", "--resume"), 2, "has seed 0, and this command 3")
    refused(slslab("scatterreduce", *small, "--resume"), 2, "has architecture 'allreduce'")
    with monkeypatch.context() as patch:
        patch.setattr(curve, "describe_device", lambda _: {"kind": "cuda", "name": "a GPU"})
        refused(slslab("allreduce", *small, "--resume"), 2, "was begun on cpu", "--device cpu")
        patch.setattr(AllReduce, "replicas", lambda _: None)
        refused(slslab("allreduce", *small), 2, "does not say what its workers compute", "set `learns`")
    checkpoint = tmp_path / "out" / "checkpoint.bin"
    whole = checkpoint.read_bytes()
    for broken, wrong in (
        (b"", "it is empty"),
        (whole[:5], "it is cut off"),
        (whole[:100], "it is cut off"),
        (whole[:-1], "it is cut off"),
        (b"a text of a user", "it is cut off"),
        (b"\x02" + bytes(7) + b"{}", "it has no schema"),
        (b"\x02" + bytes(7) + b"[]", "its schema isn't 1"),
        (b"\x02" + bytes(7) + b"no", "it doesn't begin with a curve's JSON"),
        (b"\x0c" + bytes(7) + b'{"schema":1}', "it has no plan"),
    ):
        checkpoint.write_bytes(broken)
        refused(
            slslab("allreduce", *small, "--epochs", "2", "--resume"),
            1,
            f"checkpoint.bin is not a checkpoint: {wrong}.",
            "Hint: restore the file, or remove its directory",
        )
    checkpoint.write_bytes(whole)

    def fail(_: Replicas) -> None:
        raise KeyError("a fault of the training")

    with monkeypatch.context() as patch:
        patch.setattr(Replicas, "train_epoch", fail)
        with pytest.raises(KeyError, match="a fault of the training"):
            slslab("allreduce", *small, "--epochs", "2", "--resume")
    checkpoint.write_bytes(whole)
    directory = CurveDirectory(tmp_path / "out")
    with directory.held():
        refused(slslab("allreduce", *small, "--epochs", "2", "--resume"), 2, "Another command is making the curve")
    with monkeypatch.context() as patch:
        patch.setattr("slslab_lab.runs.accuracy.directory.locked", Mock(side_effect=PermissionError(13, "denied")))
        refused(slslab("allreduce", *small, "--epochs", "2", "--resume"), 2, "out cannot be made: denied")


def test_memory_that_does_not_suffice_is_the_hosts_failure(slslab: Slslab, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhaust(_: Replicas) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(Replicas, "train_epoch", exhaust)
    refused(slslab("gpu", *SMALL, "--out", "out"), 3, "CUDA out of memory", "--batch-size")
