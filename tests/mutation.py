"""Mutation testing: are the tests of billing, metering and limits able to notice an error?

`make mutation` changes each function of these modules in every way that mutmut knows (another operator, another
constant, an argument left out …) and runs the module's own tests against each change. A change that no test notices
is a gap in the tests, unless it changes nothing that can be observed: those are listed in `equivalent_mutants.toml`,
each with its reason. Writes docs/mutation.md; exit code 1 if a change went unnoticed without a reason.

The page holds a digest of each module, by which `test_mutation_page.py` finds a page that is older than its modules.

mutmut works on a copy, because it takes modules' names from where they lie below its working directory.
"""

import ast
import hashlib
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
SOURCE, TESTS = ROOT / "emulator" / "slslab", ROOT / "tests" / "slslab"
# Modules below emulator/slslab, and the files below tests/slslab that test them.
MODULES = {
    "aws.limits": ("aws/test_limits.py", "lambda_/test_clock.py"),
    "billing.bill": ("billing/test_bill.py",),
    "host.delay": ("lambda_/test_clock.py",),
    "lambda_.clock": ("lambda_/test_clock.py",),
    "lambda_.report_line": ("lambda_/test_clock.py",),
    "trace.records": ("lambda_/test_clock.py", "trace/test_records.py"),
}
KILLED = ("killed", "timeout", "segfault", "suspicious")


@dataclass(frozen=True)
class Survivor:
    """A change that no test noticed: the lines before and after, and the reason why none can (empty: there is none)."""

    module: str
    function: str
    before: str
    after: str
    reason: str


def file_of(module: str) -> Path:
    """Return a module's file, relative to the package."""
    return Path(module.replace(".", "/") + ".py")


def digest(module: str) -> str:
    """Return what a page says of the module's present source: twelve hexadecimal digits."""
    return hashlib.sha256((SOURCE / file_of(module)).read_bytes()).hexdigest()[:12]


def prepare() -> None:
    """Make a fresh copy of the package and of these modules' tests, with mutmut's settings."""
    shutil.rmtree(COPY, ignore_errors=True)
    shutil.copytree(SOURCE, COPY / "slslab", ignore=shutil.ignore_patterns("__pycache__"))
    tests = sorted({test for tests in MODULES.values() for test in tests})
    for test in tests:
        target = COPY / "tests" / "slslab" / test
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TESTS / test, target)
    settings = {
        "pytest": {"ini_options": {"addopts": "--import-mode=importlib -p no:cacheprovider"}},
        "mutmut": {
            "source_paths": ["slslab"],
            "only_mutate": [f"slslab/{file_of(module)}" for module in MODULES],
            "pytest_add_cli_args_test_selection": [f"tests/slslab/{test}" for test in tests],
            # The same examples for every change, so that the score does not depend on luck.
            "pytest_add_cli_args": ["--hypothesis-profile=ci"],
            "use_git_change_detection": False,
        },
    }
    (COPY / "pyproject.toml").write_text(tomli_w.dumps({"tool": settings}))


def mutmut(*arguments: str, show: bool = False) -> str:
    """Run mutmut on the copy; return its output, unless that is shown."""
    command = [str(Path(sys.executable).with_name("mutmut")), *arguments]
    done = subprocess.run(command, cwd=COPY, check=True, text=True, stdout=None if show else subprocess.PIPE)
    return done.stdout or ""


def module_of(name: str) -> str:
    """Return the module of a mutant, which mutmut names `slslab.MODULE.FUNCTION__mutmut_NUMBER`."""
    return name.removeprefix("slslab.").rpartition(".")[0]


def examine(name: str, reasons: list[dict[str, str]]) -> Survivor:
    """Say what a surviving mutant changed, and why that cannot be noticed."""
    lines = mutmut("show", name).splitlines()
    before, after = (
        "\n".join(line[1:].strip() for line in lines if line[:1] == sign and line[:3] != 3 * sign) for sign in "-+"
    )
    module = module_of(name)
    function = name.partition("__mutmut_")[0].rpartition(".")[2]
    function = re.sub(r"^x(_|ǁ)", "", function).replace("ǁ", ".")
    known = {(r["module"], r["function"], r["before"], r["after"]): r["reason"] for r in reasons}
    return Survivor(module, function, before, after, known.get((module, function, before, after), ""))


def out_of_reach(module: str) -> list[str]:
    """List the functions that mutmut leaves alone: those with a decorator, but for static and class methods."""
    tree = ast.parse((SOURCE / file_of(module)).read_text())
    owners: list[tuple[str, ast.Module | ast.ClassDef]] = [("", tree)]
    owners += [(f"{node.name}.", node) for node in tree.body if isinstance(node, ast.ClassDef)]
    left_alone = []
    for prefix, owner in owners:
        for node in owner.body:
            if isinstance(node, ast.FunctionDef) and node.decorator_list:
                names = [ast.unparse(decorator) for decorator in node.decorator_list]
                if names not in (["staticmethod"], ["classmethod"]):
                    left_alone.append(f"`{module}.{prefix}{node.name}`")
    return left_alone


def report(endings: dict[str, Counter[str]], survivors: list[Survivor], seconds: float) -> str:
    """Write docs/mutation.md."""
    lines = [
        "# Mutation testing",
        "",
        f"Made by `make mutation` on {datetime.now(UTC):%Y-%m-%d} with mutmut {version('mutmut')}, "
        f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, in {seconds:.0f} s. Do not edit.",
        "",
        "| module | digest | changes | noticed | equivalent | unnoticed | score |",
        "|---|---|---|---|---|---|---|",
    ]
    for module in MODULES:
        total, killed = endings[module].total(), sum(endings[module][ending] for ending in KILLED)
        equivalent = sum(1 for survivor in survivors if survivor.module == module and survivor.reason)
        score = f"{killed / (total - equivalent):.1%}" if total > equivalent else "–"
        counts = f"{total} | {killed} | {equivalent} | {total - killed - equivalent}"
        lines.append(f"| `{file_of(module)}` | `{digest(module)}` | {counts} | {score} |")
    lines += [
        "",
        "The score is what was noticed of the changes that can be noticed; by the digest of a module's source a test "
        "tells when this page is older. Out of mutmut's reach are what stands outside functions (tables, "
        "fields and their constraints) and "
        + ", ".join(name for module in MODULES for name in out_of_reach(module))
        + ".",
    ]
    for title, listed in (
        ("Unnoticed", [survivor for survivor in survivors if not survivor.reason]),
        ("Equivalent: changes that change nothing", [survivor for survivor in survivors if survivor.reason]),
    ):
        if listed:
            lines += ["", f"## {title}", "", "| where | line | changed into | why |", "|---|---|---|---|"]
        for survivor in listed:
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
            endings[module_of(name)][ending] += 1
            if ending not in KILLED:
                survivors.append(examine(name, reasons))
    REPORT.write_text(report(endings, survivors, seconds), encoding="utf-8")
    unnoticed = sum(1 for survivor in survivors if not survivor.reason)
    for reason in reasons:
        if not any(reason["function"] == one.function and reason["after"] == one.after for one in survivors):
            print(f"{EQUIVALENT.name} has a change that is not made any more: {reason['after']}")
    print(f"{len(survivors)} of {sum(map(Counter.total, endings.values()))} changes survived, {unnoticed} unexplained")
    print(f"report: {REPORT.relative_to(ROOT)}")
    return 1 if unnoticed or not all(endings.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
