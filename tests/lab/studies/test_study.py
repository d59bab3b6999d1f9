"""Every study declares itself in the same way, and help imports nothing that computes."""

import re
import subprocess
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import pytest

from slslab.errors import RequestError
from slslab.report.html.page import make_page
from slslab_lab.commands.reproduce import reproduce
from slslab_lab.pages.reproduction import describe_reproduction
from slslab_lab.papers.paper import paper_names
from slslab_lab.studies.catalogue import STUDIES
from slslab_lab.studies.study import REPLAYED, Study


def test_help_imports_neither_numpy_nor_torch() -> None:
    code = (
        "import sys\nfrom slslab_lab.commands.reproduce import reproduce\n"
        "try: reproduce(['--help'])\nexcept SystemExit: print({'numpy', 'torch', 'scipy'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_every_study_is_a_command() -> None:
    assert set(reproduce.commands) == {*STUDIES}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_names_modules_with_what_is_called(name: str) -> None:
    study = STUDIES[name]
    source, document = (
        import_module(f"slslab_lab.studies.{module}") for module in (study.source or study.document, study.document)
    )
    assert study.paper in paper_names()
    assert next(iter(signature(document.build).parameters)) == "setup"
    assert not study.effort or [*signature(source.measure).parameters] == ["setup"]
    assert not {*study.texts} - {*study.options}


def test_options_that_exclude_each_other_are_refused(tmp_path: Path) -> None:
    study = STUDIES["kubeml-accuracy"]
    with pytest.raises(RequestError, match="--recordings needs --fidelity replayed"):
        study.setup(recordings=tmp_path)
    with pytest.raises(RequestError, match="--on doesn't apply here"):
        study.setup(fidelity=REPLAYED, on="local")
    assert study.setup(fidelity=REPLAYED, recordings=tmp_path).out.name == "reproduce-kubeml-accuracy-replayed"


def test_the_example_in_the_guide_is_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide has its declaration and its module; with nothing else it makes a document that a page is made of."""
    guide = (Path(__file__).parents[3] / "docs" / "papers.md").read_text(encoding="utf-8")
    declaration, module = re.findall(
        r"```python\n(.*?)```", guide.partition("## Add a study")[2].partition("\n## ")[0], re.DOTALL
    )
    costs = ModuleType("slslab_lab.studies.costs")
    exec(compile(module, "costs.py", "exec"), costs.__dict__)
    monkeypatch.setitem(sys.modules, costs.__name__, costs)
    declared: dict[str, Any] = {"Study": Study}
    exec(compile(declaration, "catalogue.py", "exec"), declared)
    study = declared["COSTS"]
    document = study.make(study.setup(out=tmp_path))
    assert document["reproduces"] == "costs"
    figures = [row["cells"]["cost"] for row in document["rows"]]
    # The paper's costs are the same arithmetic with the same price; a few of them have slips.
    assert len(figures) == 8
    assert median(abs(figure["difference"]) for figure in figures) < 0.03
    assert "Cost" in make_page(describe_reproduction(document))
