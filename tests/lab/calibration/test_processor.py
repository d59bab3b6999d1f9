"""`slslab calibrate --processor`: its document, its table and its refusals, on a pretended host."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console
from tests.emulator.processor.fake_host import FakeHost

from slslab.errors import RequestError
from slslab.predict.anchors import load_anchors
from slslab.processor import measurement
from slslab.report.terminal import render
from slslab_lab.calibration.processor import calibrate_processor
from slslab_lab.commands.calibrate import calibrate
from slslab_lab.pages.calibration import processor_table


@pytest.fixture(autouse=True)
def _host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(measurement, "run_workloads", FakeHost({"hash": 2.0, "short hash": 2.2}))


def test_the_document_has_each_anchor_with_its_residual() -> None:
    stages: list[tuple[str, int, int]] = []
    document = calibrate_processor(lambda *stage: stages.append(stage))
    assert stages[-1][1:] == (len(measurement.WHOLE), len(measurement.WHOLE))
    anchors = {row["anchor"]: row for row in document["anchors"]}
    assert set(anchors) == set(load_anchors().usable())
    assert anchors["hash"]["factor"] == pytest.approx(anchors["hash"]["lambda_s"] / anchors["hash"]["host_s"])
    assert anchors["hash"]["predicted_from"] == ["sort"]
    assert anchors["hash"]["residual"] == pytest.approx(anchors["sort"]["factor"] / anchors["hash"]["factor"] - 1)
    assert anchors["loop"]["predicted_from"] == ["hash", "sort"]
    assert (anchors["resnet50"]["measured"], anchors["hash"]["measured"]) == (False, True)
    assert document["short_forms"]["hash"] == pytest.approx(-1 / 11)
    assert document["short_forms"]["loop"] == pytest.approx(0)
    json.dumps(document)


def test_the_first_line_is_the_answer_and_the_second_says_what_is_missing() -> None:
    console = Console(width=400)
    with console.capture() as capture:
        console.print(render(processor_table(calibrate_processor(lambda *_: None))))
    answer, missing, *table = capture.get().splitlines()
    assert answer.startswith("One CPU second of this machine is ")
    assert "of a Lambda vCPU for interpreter work, " in answer
    assert answer.count(" to ") == 4
    assert missing.startswith("For dense arithmetic the anchors are of 2020 and 2022")
    assert any("resnet50" in line and "2020" in line and "≈" in line for line in table)


def test_the_command_prints_one_document() -> None:
    done = CliRunner().invoke(calibrate, ["--processor", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["processor"]["form"] == "whole"


@pytest.mark.parametrize(
    "more", [["last"], ["--run", "last"], ["--cloudwatch", "-"], ["--epochs", "2"], ["--out", "x"]]
)
def test_runs_and_logs_do_not_go_with_it(more: list[str]) -> None:
    with pytest.raises(RequestError, match="--processor takes no runs, log or file"):
        CliRunner().invoke(calibrate, ["--processor", *more], catch_exceptions=False)
