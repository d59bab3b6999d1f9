"""Every study declares itself in the same way, and help imports nothing that computes."""

import subprocess
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

from slslab.errors import RequestError
from slslab_lab.commands.reproduce import reproduce
from slslab_lab.papers.paper import paper_names
from slslab_lab.studies.catalogue import STUDIES
from slslab_lab.studies.study import REPLAYED


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
    source, document = (import_module(f"slslab_lab.studies.{module}") for module in (study.source, study.document))
    assert study.paper in paper_names()
    assert next(iter(signature(document.build).parameters)) == "setup"
    assert not study.effort or [*signature(source.measure).parameters] == ["setup"]
    assert not {*study.texts} - {*study.options}


def test_options_that_exclude_each_other_are_refused(tmp_path: Path) -> None:
    study = STUDIES["kubeml-accuracy"]
    with pytest.raises(RequestError, match="--recordings needs --fidelity replayed"):
        study.setup(recordings=tmp_path)
    with pytest.raises(RequestError, match="--on does not apply here"):
        study.setup(fidelity=REPLAYED, on="local")
    assert study.setup(fidelity=REPLAYED, recordings=tmp_path).out.name == "reproduce-kubeml-accuracy-replayed"
