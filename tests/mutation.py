"""Mutation testing: are the tests of billing, limits, metering, aggregation and check able to notice an error?

`make mutation` changes each function of these modules in every way that mutmut knows (another operator, another
constant, an argument left out …) and runs the module's own tests against each change. A change that no test notices is
a gap in the tests, unless its effect can't be observed: such changes are listed in `equivalent_mutants.toml`, each with
its reason. Writes results/mutation.md; exit code 1 if a change went unnoticed without a reason.

The page holds a digest of each module. Without an argument, only modules with a new digest run, and the page keeps its
results for the others. `test_mutation_page.py` uses the digests to find a page that is older than its modules. Modules
given as arguments always run, for example after a change of their tests.

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
REPORT = ROOT / "results" / "mutation.md"
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
FOLDERS = {"slslab": ROOT / "emulator", "slslab_lab": ROOT / "lab", "slslab_workers": ROOT / "workers"}
# The modules, and the files below tests/ that test them; these start no process, and need no conftest.py.
CHECKS = ("lab/checks/test_planted.py", "lab/checks/test_rules.py")
MODULES = {
    "slslab.aws.limits": ("emulator/aws/test_limits.py", "emulator/lambda_/test_clock.py"),
    "slslab.run.bill": ("emulator/run/test_bill.py",),
    "slslab.lambda_.clock": ("emulator/lambda_/test_clock.py",),
    "slslab.run.metrics": ("emulator/run/test_metrics.py",),
    "slslab.run.oversubscription": ("emulator/run/test_metrics.py",),
    "slslab.run.records": ("emulator/lambda_/test_clock.py", "emulator/run/test_records.py"),
    "slslab_workers.gloo.ring": ("workers/gloo/test_ring.py",),
    "slslab_workers.gradssharding.topology": ("workers/gradssharding/test_topology.py",),
    "slslab_workers.kubeml.merging": ("workers/kubeml/test_merging.py",),
    "slslab_workers.kubeml.protocol": ("workers/kubeml/test_protocol.py",),
    "slslab_workers.mlless.protocol": ("workers/mlless/test_protocol.py",),
    "slslab_workers.patterns.messages": (
        "workers/test_protocol.py",
        "workers/gradssharding/test_protocol.py",
        "workers/kubeml/test_protocol.py",
        *CHECKS,
    ),
    "slslab_workers.spirt.protocol": ("workers/spirt/test_protocol.py",),
    "slslab_workers.trace.operations": ("workers/trace/test_operations.py",),
    "slslab_workers.training.aggregation": ("workers/training/test_aggregation.py",),
    "slslab_lab.checks.exchange": ("lab/checks/test_exchange.py", *CHECKS),
    "slslab_lab.checks.ledger": ("lab/checks/test_ledger.py",),
    "slslab_lab.checks.left": ("lab/checks/test_left.py",),
    "slslab_lab.checks.messages": ("lab/checks/test_messages.py",),
    "slslab_lab.checks.run": CHECKS,
    "slslab_lab.checks.times": ("lab/checks/test_times.py",),
}
# What tests read beside the files below tests/.
READ = ("docs", "results/lambdaml-table1")
KILLED = ("killed", "timeout", "segfault", "suspicious")


@dataclass(frozen=True)
class Survivor:
    """A change that no test noticed: the lines before and after, and the reason why no test can (empty: none known)."""

    module: str
    function: str
    before: str
    after: str
    reason: str


def file_of(module: str) -> Path:
    """Return a module's file, relative to the folder of its package."""
    return Path(module.replace(".", "/") + ".py")


def source(module: str) -> Path:
    """Return a module's file."""
    return FOLDERS[module.partition(".")[0]] / file_of(module)


def digest(module: str) -> str:
    """Return what a page says of the module's present code: twelve hexadecimal digits.

    Comments, docstrings and imports, which nothing is changed in, don't count.
    """
    tree = ast.parse(source(module).read_text())
    tree.body = [each for each in tree.body if not isinstance(each, ast.Import | ast.ImportFrom)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:12]


def prepare(module: str) -> None:
    """Make a fresh copy of the module's package and of the tests, with mutmut's settings."""
    shutil.rmtree(COPY, ignore_errors=True)
    package = module.partition(".")[0]
    shutil.copytree(FOLDERS[package] / package, COPY / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", COPY / "tests", ignore=shutil.ignore_patterns("__pycache__", "conftest.py"))
    for folder in READ:
        shutil.copytree(ROOT / folder, COPY / folder)
    settings = {
        "pytest": {"ini_options": {"addopts": "--import-mode=importlib -p no:cacheprovider"}},
        "mutmut": {
            "source_paths": [package],
            "also_copy": list(READ),
            "only_mutate": [str(file_of(module))],
            "pytest_add_cli_args_test_selection": [f"tests/{test}" for test in MODULES[module]],
            # The same examples for every change, so that the score does not depend on luck.
            "pytest_add_cli_args": ["--hypothesis-profile=ci"],
            "use_git_change_detection": False,
        },
    }
    (COPY / "pyproject.toml").write_text(tomli_w.dumps({"tool": settings}))


def mutmut(*arguments: str, show: bool = False) -> str:
    """Run mutmut on the copy; return its output, unless that is shown."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    done = subprocess.run(command, cwd=COPY, check=True, text=True, stdout=None if show else subprocess.PIPE)
    return done.stdout or ""


def examine(module: str, name: str, reasons: list[dict[str, str]]) -> Survivor:
    """Say what a surviving mutant changed, and why that cannot be noticed."""
    lines = mutmut("show", name).splitlines()
    before, after = (
        "\n".join(line[1:].strip() for line in lines if line[:1] == sign and line[:3] != 3 * sign) for sign in "-+"
    )
    function = name.partition("__mutmut_")[0].rpartition(".")[2]
    function = re.sub(r"^x(_|ǁ)", "", function).replace("ǁ", ".")
    known = {(r["module"], r["function"], r["before"], r["after"]): r["reason"] for r in reasons}
    return Survivor(module, function, before, after, known.get((module, function, before, after), ""))


def out_of_reach(module: str) -> list[str]:
    """List the functions that mutmut leaves alone: decorated ones, except static and class methods."""
    tree = ast.parse(source(module).read_text())
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


@dataclass(frozen=True)
class Part:
    """What the page says of a module: the lines of its tables."""

    row: str
    unnoticed: list[str]
    equivalent: list[str]


def run(module: str, reasons: list[dict[str, str]]) -> Part:
    """Make and test all changes of a module."""
    present = digest(module)
    prepare(module)
    begun = time.monotonic()
    mutmut("run", "--max-children", str(os.cpu_count() or 2), show=True)
    seconds = time.monotonic() - begun
    endings: Counter[str] = Counter()
    survivors = []
    for line in mutmut("results", "--all", "true").splitlines():
        name, _, ending = line.strip().rpartition(": ")
        if name.startswith(f"{module}."):
            endings[ending] += 1
            if ending not in KILLED:
                survivors.append(examine(module, name, reasons))
    for reason in reasons:
        if reason["module"] == module and reason["reason"] not in {survivor.reason for survivor in survivors}:
            print(f"{EQUIVALENT.name} has a change that is not made any more: {reason['after']}")
    total, noticed = endings.total(), sum(endings[ending] for ending in KILLED)
    equivalent = sum(1 for survivor in survivors if survivor.reason)
    score = f"{noticed / (total - equivalent):.1%}" if total > equivalent else "–"
    counts = f"{total} | {noticed} | {equivalent} | {total - noticed - equivalent}"
    return Part(
        f"| `{module}` | `{present}` | {counts} | {score} | {seconds:.0f} |",
        [line_of(survivor) for survivor in survivors if not survivor.reason],
        [line_of(survivor) for survivor in survivors if survivor.reason],
    )


def line_of(survivor: Survivor) -> str:
    """Return a line of the page's tables of survivors."""
    cells = (f"{survivor.module}.{survivor.function}", survivor.before, survivor.after)
    code = " | ".join(f"`{cell.replace('|', chr(92) + '|')}`".replace("\n", " ") for cell in cells)
    return f"| {code} | {survivor.reason or '–'} |"


def read_page() -> dict[str, Part]:
    """Return what the page says of each module, as it is now or was before."""
    lines = REPORT.read_text(encoding="utf-8").splitlines() if REPORT.exists() else []
    parts = {}
    for module in MODULES:
        rows = [line for line in lines if line.startswith(f"| `{module}` |")]
        own = [line for line in lines if line.startswith(f"| `{module}.")]
        if rows:
            unnoticed = [line for line in own if line.endswith("| – |")]
            parts[module] = Part(rows[0], unnoticed, [line for line in own if line not in unnoticed])
    return parts


def report(parts: dict[str, Part]) -> str:
    """Write results/mutation.md."""
    found = [parts[module] for module in MODULES if module in parts]
    counts = [[int(cell) for cell in part.row.split("|")[3:7]] for part in found]
    total, noticed, equivalent, unnoticed = map(sum, zip(*counts, strict=True))
    seconds = sum(int(part.row.split("|")[8]) for part in found)
    lines = [
        "# Mutation testing",
        "",
        f"Of {total - equivalent:,} changes that can be noticed, the tests notice {noticed:,}: "
        f"{noticed / (total - equivalent):.1%}. Made by `make mutation`, last on {datetime.now(UTC):%Y-%m-%d}, with "
        f"mutmut {version('mutmut')}, Python {sys.version.split()[0]}, {os.cpu_count()} cores. Do not edit.",
        "",
        "| module | digest | changes | noticed | equivalent | unnoticed | score | s |",
        "|---|---|---|---|---|---|---|---|",
        *(part.row for part in found),
        f"| all | | {total} | {noticed} | {equivalent} | {unnoticed} | {noticed / (total - equivalent):.1%} "
        f"| {seconds} |",
        "",
        "The score is the share of noticeable changes that the tests notice. A test compares the digests with the "
        "modules, and fails if this page is outdated. mutmut can't change code outside functions (tables, fields and "
        "their constraints), nor " + ", ".join(name for module in MODULES for name in out_of_reach(module)) + ".",
    ]
    for title, listed in (
        ("Unnoticed", [line for part in found for line in part.unnoticed]),
        ("Equivalent: changes that change nothing", [line for part in found for line in part.equivalent]),
    ):
        if listed:
            lines += ["", f"## {title}", "", "| where | line | changed into | why |", "|---|---|---|---|", *listed]
    return "\n".join(lines) + "\n"


def main() -> int:
    parts = read_page()
    changed = [module for module in MODULES if module not in parts or digest(module) not in parts[module].row]
    reasons = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["mutant"]
    for module in sys.argv[1:] or changed:
        if module not in MODULES:
            print(f"{module} is not among the modules that are tested. Hint: choose {', '.join(MODULES)}.")
            return 2
        parts[module] = run(module, reasons)
        # After each module, so that nothing is lost if the command is stopped.
        REPORT.write_text(report(parts), encoding="utf-8")
        print(parts[module].row)
    print(f"report: {REPORT.relative_to(ROOT)}")
    return 1 if any(part.unnoticed for part in parts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
