"""Record what users see of a checkout, or compare two checkouts.

    python -m tests.same.record FOLDER               record this checkout into a folder, a file for each command
    python -m tests.same.record --base COMMIT        compare this checkout with a commit, runs and their bits included

A checkout is installed into its own folder, so that its wheel and its entry points are used.
"""

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.same import cases

ROOT = Path(__file__).parents[2]
LINES = 60


class _VisibleText(HTMLParser):
    """Collects what a reader sees of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self._hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self.texts.append(" ".join(data.split()))


class Checkout:
    """A checkout's commands, as installed in a folder."""

    at_once = 2

    def __init__(self, tree: Path, installed: Path) -> None:
        self._tree = tree
        self._installed = installed

    def run(self, words: Iterable[str]) -> tuple[int, str, str, Mapping[str, str]]:
        """Run a command; return its exit code, what it printed, what it said, and the files that it left."""
        # Tables are as wide as its path.
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            out = Path(folder, "out")
            out.mkdir()
            variables = {
                **{"XDG_CACHE_HOME": f"{folder}/cache", "XDG_STATE_HOME": f"{folder}/state"},
                **{"SLSLAB_RUNS": f"{folder}/runs", "COLUMNS": "100", "NO_COLOR": "1"},
            }
            code, *texts = self._execute([word.replace("OUT", str(out)) for word in words], variables)
            # Not the workers' own code, which an export has a copy of.
            left = [path for path in sorted(out.rglob("*")) if path.is_file() and "slslab_workers" not in path.parts]
            files = {str(path.relative_to(out)): _text(path) for path in left}
            printed, said = (text.replace(folder, "FOLDER").replace(str(self._tree), "TREE") for text in texts)
            return code, printed, said, files

    def _execute(self, words: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "slslab", *words],
            cwd=self._tree,
            env={**os.environ, "PYTHONPATH": str(self._installed), **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def record(self, words: Iterable[str]) -> str:
        """Return what a command shows, masked; of a failure also what it said."""
        code, printed, said, files = self.run(words)
        parts = [f"exit code {code}", printed, *([said] if code else [])]
        parts += [f"--- {name}\n{text}" for name, text in files.items()]
        return cases.masked("\n".join(parts))

    def record_bits(self, words: Iterable[str]) -> str:
        """Return the digests, losses and counts of a run."""
        code, printed, said, _ = self.run(words)
        if code:
            return f"exit code {code}\n{said}"
        return "\n".join(f"{name} = {value}" for name, value in _leaves(json.loads(printed)))

    def help(self) -> Iterator[tuple[str, str]]:
        """Yield the help of every command."""
        waiting: list[tuple[str, ...]] = [()]
        while waiting:
            with ThreadPoolExecutor(self.at_once) as pool:
                pages = list(pool.map(lambda words: self.record((*words, "--help")), waiting))
            found = []
            for words, page in zip(waiting, pages, strict=True):
                yield f"help {' '.join(words)}".strip(), page
                # Of groups: their commands, in one section or several.
                listed = page.partition("\nOptions:\n")[2]
                found += [(*words, name) for name in re.findall(r"^  ([a-z]\S*)", listed, re.MULTILINE)]
            waiting = found


def _text(path: Path) -> str:
    if path.suffix == ".html":
        parser = _VisibleText()
        parser.feed(path.read_text())
        return "\n".join(parser.texts)
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return f"{path.stat().st_size} bytes"


def _leaves(value: Any, name: str = "", kept: bool = False) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}", kept or key in cases.BITS)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{name}[{number}]", kept)
    elif kept:
        yield name, value


def install(tree: Path, into: Path) -> Checkout:
    """Install a checkout into a folder."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--no-build-isolation", "--target", str(into), str(tree)], check=True)
    return Checkout(tree, into)


def record(checkout: Checkout, *, bits: bool) -> dict[str, str]:
    """Return what each command of a checkout shows."""
    shown = dict(checkout.help())
    with ThreadPoolExecutor(checkout.at_once) as pool:
        commands = [*cases.quick(), *cases.slow()]
        shown |= zip(
            [name for name, _ in commands], pool.map(checkout.record, [words for _, words in commands]), strict=True
        )
    if bits:
        shown["atlas"] = checkout.record(cases.ATLAS)
        shown |= {name: checkout.record_bits(words) for name, words in cases.bits()}
    return shown


def compare(before: Mapping[str, str], now: Mapping[str, str]) -> int:
    """Print what differs, the first lines of each difference; return how many outputs do."""
    different = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    for name in different:
        old, new = ((side.get(name) or "").splitlines() for side in (before, now))
        lines = list(difflib.unified_diff(old, new, "before", "now", lineterm="", n=1))
        print(
            f"=== {name}", *lines[:LINES], *([f"... {len(lines) - LINES} more lines"] * (len(lines) > LINES)), sep="\n"
        )
    print(f"{len(different)} of {len({**before, **now})} outputs differ.")
    return len(different)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--base", metavar="COMMIT")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slslab-same-") as place:
        now = record(install(ROOT, Path(place, "now")), bits=bool(given.base))
        if given.folder is not None:
            given.folder.mkdir(parents=True, exist_ok=True)
            for name, text in now.items():
                (given.folder / f"{name.replace(' ', '-')}.txt").write_text(text)
        if given.base is None:
            return 0
        tree = Path(place, "tree")
        subprocess.run(
            ["git", "-C", str(ROOT), "worktree", "add", "--quiet", "--detach", str(tree), given.base], check=True
        )
        try:
            return int(compare(record(install(tree, Path(place, "before")), bits=True), now) > 0)
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(tree)], check=True)


if __name__ == "__main__":
    sys.exit(main())
