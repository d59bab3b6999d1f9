"""The list of runs: the platform that a run's time is modelled on, and runs without a trace log."""

import json
import shutil
from pathlib import Path

from tests.lab.pages.live.growing import PLAN, Growing, half

from slslab.run.bill import DEFAULT_BOOK, load_book
from slslab_lab.pages.live.views import Views

RECORDED = Path(__file__).parents[4] / "results" / "table2" / "resnet18-allreduce"


def test_a_time_on_another_platform_names_it(tmp_path: Path) -> None:
    for name, platform in (("there", "modal-t4"), ("plain", None)):
        (tmp_path / name).mkdir()
        shutil.copy(RECORDED / "plan.toml", tmp_path / name)
        document = json.loads((RECORDED / "run.json").read_text())
        document["plan"]["platform"] = platform
        (tmp_path / name / "run.json").write_text(json.dumps(document))
    (there, plain) = Views(tmp_path, load_book(DEFAULT_BOOK)).table().split("<tr>")[2:]
    if "plain</a>" in there:
        there, plain = plain, there
    assert " s on modal-t4</td>" in there
    assert " s</td>" in plain
    assert "modal-t4" not in plain


def test_a_running_run_may_have_no_log(tmp_path: Path) -> None:
    """It hasn't begun yet, or it has just ended and its log is compacted."""
    running = Growing(tmp_path)
    running.directory.trace_log.unlink()
    views = Views(tmp_path, load_book(DEFAULT_BOOK))
    assert "running" in views.table()
    assert PLAN.model in views.table()
    running.end()


def test_what_was_read_stays_when_the_log_is_gone(tmp_path: Path) -> None:
    running, views = Growing(tmp_path), Views(tmp_path, load_book(DEFAULT_BOOK))
    running.append(*half())
    before = views.table()
    running.directory.trace_log.unlink()
    assert "USD" in before
    assert "USD" in views.table()
    running.end()
