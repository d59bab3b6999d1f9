"""The import graph: no circles, few levels; and short modules and functions.

The contracts between folders are in pyproject.toml (`lint-imports`).
"""

import ast
from collections.abc import Mapping
from graphlib import TopologicalSorter
from importlib.util import find_spec
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
LINES_OF_A_MODULE, LINES_OF_A_FUNCTION = 500, 80

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


def test_functions_and_modules_are_short(modules: Graph) -> None:
    for module in modules:
        if spec := find_spec(module):
            source = Path(str(spec.origin)).read_text(encoding="utf-8")
            assert source.count("\n") <= LINES_OF_A_MODULE, module
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    lines = (node.end_lineno or 0) - node.lineno + 1
                    assert lines <= LINES_OF_A_FUNCTION, f"{module}.{node.name}"


@pytest.mark.parametrize("package", [slslab, slslab_lab, slslab_workers])
def test_the_root_of_a_package_is_small(package: ModuleType) -> None:
    """What `ls` shows is the diagram of the design, not a heap of modules."""
    modules = sorted(file.name for file in Path(package.__path__[0]).glob("*.py"))
    assert len(modules) <= MODULES_AT_THE_ROOT, modules
