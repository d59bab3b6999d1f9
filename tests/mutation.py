"""Mutation testing: are the tests of billing, metering and limits able to notice an error?

`make mutation` changes each function of these modules in every way that mutmut knows (another operator, another
constant, an argument left out …) and runs the module's own tests against each change. A change that no test notices
is a gap in the tests, unless it changes nothing that can be observed: those are listed in `equivalent_mutants.toml`,
each with its reason. Writes docs/mutation.md; exit code 1 if a change went unnoticed without a reason.

mutmut works on a copy, because it takes modules' names from where they lie below its working directory.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import tomli_w

ROOT = Path(__file__).parents[1]
COPY = ROOT / ".mutation"
REPORT = ROOT / "docs" / "mutation.md"
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
MODULES = ("billing", "metering", "limits")
KILLED = ("killed", "timeout", "segfault", "suspicious")


@dataclass(frozen=True)
class Survivor:
    """A change that no test noticed: the lines before and after, and the reason why none can (empty: there is none)."""

    module: str
    function: str
    before: str
    after: str
    reason: str


def prepare() -> None:
    """A fresh copy of the package and of these modules' tests, with mutmut's settings."""
    shutil.rmtree(COPY, ignore_errors=True)
    shutil.copytree(ROOT / "emulator" / "slslab", COPY / "slslab", ignore=shutil.ignore_patterns("__pycache__"))
    tests = [f"tests/slslab/test_{module}.py" for module in MODULES]
    (COPY / "tests" / "slslab").mkdir(parents=True)
    for test in tests:
        shutil.copy(ROOT / test, COPY / test)
    settings = {
        "pytest": {"ini_options": {"addopts": "--import-mode=importlib -p no:cacheprovider"}},
        "mutmut": {
            "source_paths": ["slslab"],
            "only_mutate": [f"slslab/{module}.py" for module in MODULES],
            "pytest_add_cli_args_test_selection": tests,
            # The same examples for every change, so that the score does not depend on luck.
            "pytest_add_cli_args": ["--hypothesis-profile=ci"],
            "use_git_change_detection": False,
        },
    }
    (COPY / "pyproject.toml").write_text(tomli_w.dumps({"tool": settings}))


def mutmut(*arguments: str, show: bool = False) -> str:
    """Run mutmut on the copy; its output, unless that is shown."""
    command = [str(Path(sys.executable).with_name("mutmut")), *arguments]
    done = subprocess.run(command, cwd=COPY, check=True, text=True, stdout=None if show else subprocess.PIPE)
    return done.stdout or ""


def examine(name: str, reasons: list[dict[str, str]]) -> Survivor:
    """What a surviving mutant changed, and why that cannot be noticed."""
    lines = mutmut("show", name).splitlines()
    before, after = (
        "\n".join(line[1:].strip() for line in lines if line[:1] == sign and line[:3] != 3 * sign) for sign in "-+"
    )
    module, _, function = name.partition("__mutmut_")[0].removeprefix("slslab.").partition(".")
    function = re.sub(r"^x(_|ǁ)", "", function).replace("ǁ", ".")
    known = {(r["module"], r["function"], r["before"], r["after"]): r["reason"] for r in reasons}
    return Survivor(module, function, before, after, known.get((module, function, before, after), ""))


def out_of_reach(module: str) -> list[str]:
    """Functions that mutmut leaves alone: those with a decorator, but for static and class methods."""
    tree = ast.parse((ROOT / "emulator" / "slslab" / f"{module}.py").read_text())
    owners: list[tuple[str, ast.Module | ast.ClassDef]] = [("", tree)]
    owners += [(f"{node.name}.", node) for node in tree.body if isinstance(node, ast.ClassDef)]
    found = []
    for prefix, owner in owners:
        for node in owner.body:
            if isinstance(node, ast.FunctionDef) and node.decorator_list:
                names = [ast.unparse(decorator) for decorator in node.decorator_list]
                if names not in (["staticmethod"], ["classmethod"]):
                    found.append(f"`{module}.{prefix}{node.name}`")
    return found


def report(endings: dict[str, Counter[str]], survivors: list[Survivor], seconds: float) -> str:
    """docs/mutation.md."""
    lines = [
        "# Mutation testing",
        "",
        f"Made by `make mutation` on {datetime.now(UTC):%Y-%m-%d} with mutmut {version('mutmut')}, "
        f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, in {seconds:.0f} s. Do not edit.",
        "",
        "| module | changes | noticed | equivalent | unnoticed | score |",
        "|---|---|---|---|---|---|",
    ]
    for module in MODULES:
        total, killed = endings[module].total(), sum(endings[module][ending] for ending in KILLED)
        equivalent = sum(1 for survivor in survivors if survivor.module == module and survivor.reason)
        score = f"{killed / (total - equivalent):.1%}" if total > equivalent else "–"
        lines.append(f"| `{module}.py` | {total} | {killed} | {equivalent} | {total - killed - equivalent} | {score} |")
    lines += [
        "",
        "The score is what was noticed of the changes that can be noticed. Out of mutmut's reach are what stands "
        "outside functions (tables, fields and their constraints) and "
        + ", ".join(name for module in MODULES for name in out_of_reach(module))
        + ".",
    ]
    for title, found in (
        ("Unnoticed", [survivor for survivor in survivors if not survivor.reason]),
        ("Equivalent: changes that change nothing", [survivor for survivor in survivors if survivor.reason]),
    ):
        if found:
            lines += ["", f"## {title}", "", "| where | line | changed into | why |", "|---|---|---|---|"]
        for survivor in found:
            cells = (f"{survivor.module}.{survivor.function}", survivor.before, survivor.after)
            code = " | ".join(f"`{cell.replace('|', chr(92) + '|')}`" for cell in cells)
            lines.append(f"| {code} | {survivor.reason or '–'} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    prepare()
    begun = time.monotonic()
    mutmut("run", "--max-children", str(os.cpu_count() or 2), show=True)
    seconds = time.monotonic() - begun
    reasons = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["mutant"]
    endings: dict[str, Counter[str]] = {module: Counter() for module in MODULES}
    survivors = []
    for line in mutmut("results", "--all", "true").splitlines():
        name, _, ending = line.strip().rpartition(": ")
        if name.startswith("slslab."):
            endings[name.split(".")[1]][ending] += 1
            if ending not in KILLED:
                survivors.append(examine(name, reasons))
    REPORT.write_text(report(endings, survivors, seconds), encoding="utf-8")
    unnoticed = sum(1 for survivor in survivors if not survivor.reason)
    print(f"{len(survivors)} of {sum(map(Counter.total, endings.values()))} changes survived, {unnoticed} unexplained")
    print(f"report: {REPORT.relative_to(ROOT)}")
    return 1 if unnoticed or not all(endings.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
