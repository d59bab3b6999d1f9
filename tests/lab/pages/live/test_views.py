"""The list of runs: which platform each run's time and bill are modelled on."""

import json
import shutil
from pathlib import Path

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
