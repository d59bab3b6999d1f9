"""Collect the sentences that users meet: errors, hints, notes, help texts, table headings, and texts of pages.

`python -m tests.house.messages` writes them to messages.txt, module by module, so that a reviewer reads each changed
sentence as a line of the diff. Values in a sentence stand in braces.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("messages.txt")
PRODUCT = ("emulator/slslab", "lab/slslab_lab", "plugins", "workers/slslab_workers")
# Users read all arguments of these.
CALLS = {
    "BadParameter", "Card", "Chart", "Figure", "Finding",
    "HostError", "Note", "OSError", "PlanError", "RequestError", "RunError", "Table",
    "UsageError", "_finding", "echo",
}  # fmt: skip
KEYWORDS = {"caption", "headline", "help", "hint", "note", "notes", "says"}
# In these folders every string of this many words is a sentence of a screen or a page, except for expressions.
SCREENS = ("slslab/report/", "slslab/run/predictions", "slslab/run/service", "/cli/", "slslab_lab/pages/", "/commands/")
WORDS = 3
EXPRESSION = re.compile(r"datum\.|\bwidth [/<]|-src |^answer |length\(|^[\W\d]*$")


def collect() -> str:
    """Return the sentences of all modules, below the modules' names."""
    parts = []
    for folder in PRODUCT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if found := list(dict.fromkeys(messages(path))):
                parts.append("\n".join((f"# {path.relative_to(ROOT)}", *found)))
    return "\n\n".join(parts) + "\n"


def messages(path: Path) -> Iterator[str]:
    """Yield a module's sentences in their order, each on one line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    screen = any(part in f"/{path.relative_to(ROOT)}" for part in SCREENS)
    shown = {id(node) for argument in _arguments(tree) for node in ast.walk(argument)}
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    commands = {id(node.body[0].value) for node in ast.walk(tree) if _is_command(node)}  # type: ignore[attr-defined]
    inner: set[int] = set()
    texts = []
    for node in ast.walk(tree):
        if id(node) in inner or (text := _text(node)) is None:
            continue
        inner |= {id(part) for part in ast.walk(node)}
        if EXPRESSION.search(text):
            continue
        is_sentence = len(text.split()) >= WORDS and screen and id(node) not in docstrings
        if id(node) in commands or (" " in text.strip() and id(node) in shown) or is_sentence:
            texts.append((node.lineno, node.col_offset, " ".join(text.split())))  # type: ignore[attr-defined]
    yield from (text for *_, text in sorted(texts))


def _arguments(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield from node.args if name in CALLS else ()
            yield from (each.value for each in node.keywords if name in CALLS or each.arg in KEYWORDS)


def _is_command(node: ast.AST) -> bool:
    """Return whether this is a command or group of the command line with a docstring, which is its help."""
    if not isinstance(node, ast.FunctionDef) or ast.get_docstring(node) is None:
        return False
    called = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
    return any(ast.unparse(each).split(".")[-1] in ("command", "group") for each in called)


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "" for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return f"{{{_name(node.value)}}}"
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _name(value: ast.AST) -> str:
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
    return "…"


if __name__ == "__main__":
    RECORD.write_text(collect(), encoding="utf-8")
    sys.exit(0)
