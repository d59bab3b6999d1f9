"""What is published: a wheel that is built of the source distribution alone, and works where no repository is."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.machines.packaging.test_core import PROJECT_PACKAGES, environment, run
from tests.test_dependencies import PROJECT, ROOT

from slslab.installation import __version__


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both distributions."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An environment of the wheel and what it needs for reports."""
    needed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["report"]]
    with environment(tmp_path_factory.mktemp("installed"), needed) as folder:
        packages = next(folder.glob("lib/python*/site-packages"))
        for name in (*(Path(code).name for code in PROJECT_PACKAGES), "slslab-0.dist-info"):
            shutil.rmtree(packages / name)
        zipfile.ZipFile(next(built.glob("*.whl"))).extractall(packages)
        yield folder


def test_both_distributions_are_of_this_version_and_hold_what_they_need(built: Path) -> None:
    assert {path.name for path in built.iterdir()} == {
        f"slslab-{__version__}-py3-none-any.whl",
        f"slslab-{__version__}.tar.gz",
    }
    with tarfile.open(built / f"slslab-{__version__}.tar.gz") as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "mkdocs.yml", "docs/build.py"} < sources
    assert not [name for name in sources if name.startswith((".venv", "runs/", "site/", ".git/"))]
    names = zipfile.ZipFile(next(built.glob("*.whl"))).namelist()
    of_lab = ("published/barrak-2025.toml", "recorded/table2/mobilenet-gpu/run.json", "pages/live/list.js")
    assert {
        "slslab/report/html/page.js",
        "slslab_aws/deploy/schemas.json",
        *(f"slslab_lab/{part}" for part in of_lab),
    } < {*names}
    assert not [name for name in names if name.startswith("tests")]


def test_the_wheel_works_outside_the_repository(installed: Path, tmp_path: Path) -> None:
    assert run(installed, tmp_path, "-m", "slslab", "--version").stdout.split()[-1] == __version__
    done = run(installed, tmp_path, "-m", "slslab", "doctor", "--json")
    assert json.loads(done.stdout)["findings"], done.stderr
    table = ["reproduce", "table2", "--fidelity", "replayed", "--model", "mobilenet", "--out", "table2"]
    done = run(installed, tmp_path, "-m", "slslab", *table)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\d+ of \d+ published numbers agree with ours", done.stdout, re.MULTILINE)
    assert (tmp_path / "table2" / "table2.html").stat().st_size < 1_500_000


def test_a_release_needs_a_clean_tree_and_a_tag_that_all_agree_on(tmp_path: Path) -> None:
    clone = tmp_path / "clone"

    def git(*arguments: str) -> None:
        settings = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "advice.detachedHead=false"]
        subprocess.run(["git", *settings, *arguments], cwd=clone, check=True, timeout=60, capture_output=True)

    def refused() -> str:
        done = subprocess.run([clone / ".ci" / "release"], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        return done.stderr

    subprocess.run(["git", "clone", "--quiet", "--no-tags", ROOT, clone], check=True, timeout=60)
    shutil.copy(ROOT / ".ci" / "release", clone / ".ci" / "release")
    git("commit", "--quiet", "--allow-empty", "--all", "--message", "as it is")
    assert (
        refused()
        == f"This commit has no tag v{__version__}. Hint: git tag v{__version__}, or correct installation.py.\n"
    )
    citation = clone / "CITATION.cff"
    citation.write_text(citation.read_text().replace(f"version: {__version__}", "version: 9.9.9"))
    assert refused().startswith("The working tree has changes.")
    git("commit", "--quiet", "--all", "--message", "another version")
    git("tag", f"v{__version__}")
    assert refused() == f"CITATION.cff is of version 9.9.9. Hint: make it {__version__}.\n"
