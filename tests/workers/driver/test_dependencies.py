"""What functions' packages require is found among the installed distributions, and what can't work is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slslab_workers.driver import dependencies
from slslab_workers.driver.dependencies import files_for, layer_distributions
from slslab_workers.plan import PlanError

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """A function that installs a distribution with these files; an empty name is a module of its own name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    # Names that only these tests have, so that nothing else is found under them.
    dependencies._owner.cache_clear()

    def install(name: str, *requires: str, files: tuple[str, ...] = ("",)) -> None:
        metadata = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        metadata.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", "Provides-Extra: more"]
        (metadata / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {entry}" for entry in requires)]))
        paths = [file or f"{name}.py" for file in files]
        for path in paths:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(f"# {path}")
        listed = [*paths, "../bin/tool", *(f"{metadata.name}/{entry}" for entry in ("METADATA", "RECORD"))]
        (metadata / "RECORD").write_text("".join(f"{path},,\n" for path in listed))

    return install


def names(*modules: str) -> set[str]:
    return {name for name in files_for(modules) if ".dist-info" not in name}


def test_a_package_brings_all_that_it_requires_except_for_the_layer(install: Install) -> None:
    install("packed_own", "packed_a", "packed_b[more]>=1", "torch", "slslab[train]", "packed_no; sys_platform=='win32'")
    install("packed_a", "packed_b", files=("packed_a/__init__.py", "packed_a/__pycache__/x.pyc", "packed_a/data.txt"))
    install("packed_b", "packed_own", 'packed_c; extra == "more"', 'packed_no; extra == "other"')
    install("packed_c")
    assert names("packed_own.handlers") == {
        *("packed_own.py", "packed_a/__init__.py", "packed_a/data.txt", "packed_b.py", "packed_c.py")
    }
    assert "packed_a-1.0.dist-info/METADATA" in files_for(["packed_own"])
    assert {"torch", "numpy", "typing-extensions", "s3transfer"} <= set(layer_distributions())


def test_modules_without_a_distribution_and_ours_declare_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "packed_file.py").touch()
    assert names("packed_file", "slslab_workers.allreduce.handlers") == set()


def test_what_is_not_installed_is_named(install: Install) -> None:
    install("packed_lacks", "packed_gone")
    with pytest.raises(PlanError, match=r"packed-gone is not installed, and packed-lacks requires it") as refused:
        files_for(["packed_lacks"])
    assert refused.value.hint == "pip install packed-gone"


def test_an_editable_package_is_found_by_its_name(install: Install, tmp_path: Path) -> None:
    install("packed_uses", "packed-edited", "packed-elsewhere")
    for name in ("packed-edited", "packed-elsewhere"):
        install(name, files=(f"{name}.pth",))
        url = {"url": "file:///home", "dir_info": {"editable": True}}
        (tmp_path / f"{name.replace('-', '_')}-1.0.dist-info" / "direct_url.json").write_text(json.dumps(url))
    (tmp_path / "packed_edited").mkdir()
    (tmp_path / "packed_edited" / "__init__.py").touch()
    with pytest.raises(PlanError, match="packed-elsewhere is installed as editable, and its files"):
        files_for(["packed_uses"])
    (tmp_path / "packed_elsewhere.py").touch()
    assert names("packed_uses") == {"packed_uses.py", "packed_edited/__init__.py", "packed_elsewhere.py"}


def test_an_editable_project_declares_for_all_its_packages(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The innermost one, if one project is in another's folder."""
    install("packed_outer", "packed_no", files=("packed_outer.pth",))
    install("packed_inner", "packed_b", files=("packed_inner.pth",))
    install("packed_b")
    for name, folder in (("packed_outer", "home"), ("packed_inner", "home/a project")):
        url = {"url": (tmp_path / folder).as_uri(), "dir_info": {"editable": True}}
        (tmp_path / f"{name}-1.0.dist-info" / "direct_url.json").write_text(json.dumps(url))
    package = tmp_path / "home" / "a project" / "src" / "packed_models"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(package.parent))
    assert names("packed_models.net") == {"packed_b.py"}


def test_a_requirement_that_cannot_be_read_is_named(install: Install) -> None:
    install("packed_legacy", "packed_b (>dev)")
    with pytest.raises(PlanError, match=r"packed-legacy 1.0 requires 'packed_b \(>dev\)', which can't be read."):
        files_for(["packed_legacy"])
