"""No sentence or constant outside an architecture's folder, its study and its paper names it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.messages import PRODUCT, ROOT

from slslab_lab.runs.planning import architectures

# Studies compare architectures by name. Examples of commands are of one, and two questions are about LambdaML's two.
# Each built-in architecture has its own colour on pages.
BY_NAME = ("/studies/", "/papers/", "slslab_lab/commands/", "slslab_lab/pages/scales.py")
# Words that aren't an architecture's alone.
WORDS = {"gpu", "GPU baseline", "IaaS peers"}
# The operation in which instances add up, by the name of torch's function.
OPERATION = "peer.allreduce"


def strings(path: Path) -> Iterator[str]:
    """Yield a module's strings except its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_architectures_are_named_in_their_folders() -> None:
    own = {f"slslab_workers/{name}/" for name in architectures()}
    names = {name for each in architectures().values() for name in (each.name, each.title)} - WORDS - {""}
    name = re.compile(rf"\b({'|'.join(sorted(names))})\b")
    found = [
        f"{path.relative_to(ROOT)}: {string}"
        for folder in PRODUCT
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not any(part in str(path) for part in (*own, *BY_NAME))
        for string in strings(path)
        if name.search(string) and string != OPERATION
    ]
    assert found == []
