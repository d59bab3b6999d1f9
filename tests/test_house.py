"""The import graph: no circles, few levels. The contracts between folders are in pyproject.toml (`lint-imports`)."""

from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType

import grimp
import pytest

import slslab
import slslab_lab
import slslab_workers

PACKAGES = ("slslab", "slslab_aws", "slslab_lab", "slslab_ray", "slslab_workers")
LEVELS = 14
MODULES_AT_THE_ROOT = 6

Graph = Mapping[str, set[str]]


@pytest.fixture(scope="module")
def modules() -> Graph:
    """What every module imports, wherever in it."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    return {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


@pytest.fixture(scope="module")
def folders(modules: Graph) -> Graph:
    """What every folder imports of others; a module that lies at a package's root stands for itself."""
    parents = {module.rpartition(".")[0] for module in modules}

    def folder(module: str) -> str:
        parent = module.rpartition(".")[0]
        return module if module in parents or parent in PACKAGES else parent

    found: dict[str, set[str]] = {}
    for module, imported in modules.items():
        found.setdefault(folder(module), set()).update(map(folder, imported))
    return {name: imported - {name} for name, imported in found.items()}


def test_no_module_imports_itself_through_others(modules: Graph) -> None:
    TopologicalSorter(modules).prepare()


def test_folders_have_no_circle_and_few_levels(folders: Graph) -> None:
    levels: dict[str, int] = {}
    for folder in TopologicalSorter(folders).static_order():
        levels[folder] = 1 + max((levels[below] for below in folders[folder]), default=0)
    assert max(levels.values()) <= LEVELS, sorted(levels.items(), key=lambda item: item[1])


@pytest.mark.parametrize("package", [slslab, slslab_lab, slslab_workers])
def test_the_root_of_a_package_is_small(package: ModuleType) -> None:
    """What `ls` shows is the diagram of the design, not a heap of modules."""
    modules = sorted(file.name for file in Path(package.__path__[0]).glob("*.py"))
    assert len(modules) <= MODULES_AT_THE_ROOT, modules
