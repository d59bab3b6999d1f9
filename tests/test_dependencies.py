"""What the packages import is declared in pyproject.toml, and not left to what other distributions happen to bring."""

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WRITTEN = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, WHEEL = WRITTEN["project"], WRITTEN["tool"]["hatch"]["build"]["targets"]["wheel"]
OWN = {"slslab", "slslab_aws", "slslab_lab", "slslab_ray", "slslab_workers"}
# pytest loads the plugin, so it is there.
PLUGIN = {"emulator/slslab/testing.py": {"pytest"}}


def declared(requirements: list[str]) -> set[str]:
    return {normalised(re.split(r"[\[<>=! ]", requirement)[0]) for requirement in requirements}


def normalised(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


# Reads the metadata of every installed distribution.
distributions = functools.cache(packages_distributions)


def imports(path: Path) -> Iterator[str]:
    """Top-level names that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        yield from (name.partition(".")[0] for name in names)


@pytest.mark.parametrize(
    ("folder", "example"), [("emulator", "starlette"), ("lab", "altair"), ("plugins", "moto"), ("workers", "torch")]
)
def test_what_is_imported_is_declared(folder: str, example: str) -> None:
    extras = PROJECT["optional-dependencies"].items()
    known = declared(PROJECT["dependencies"] + [entry for name, extra in extras if name != "dev" for entry in extra])
    found, undeclared = set(), set()
    for path in (ROOT / folder).rglob("*.py"):
        where = str(path.relative_to(ROOT))
        imported = set(imports(path))
        found |= imported
        for name in imported - sys.stdlib_module_names - OWN - PLUGIN.get(where, set()):
            # An extra that is not installed has its distribution's name.
            if not {normalised(one) for one in distributions().get(name, [name])} & known:
                undeclared.add(f"{where} imports {name}")
    assert example in found
    assert not undeclared, "declare it in pyproject.toml: " + ", ".join(sorted(undeclared))
