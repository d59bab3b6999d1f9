"""Count the marker phrases of stiff English in docstrings, messages and docs, per 10,000 words of each folder.

`python -m tests.house.language` prints where they stand, and the counts; with `--record` it lowers the record. A folder
is a folder at the root, or one below it, such as `emulator/slslab/aws`.
"""

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("language.json")
PHRASES = (
    "beside", "so many", "so much", "whose", "whoever", "those that", "those of", "that of", "of which",
    "(?-i:is none)", "are none", "has none", "is no", "are no", "but for", "goes on", "go on", "foretold", "comes to",
    "as many", "who asks", "who takes", "is told", "nobody", "parcel", "takes off",
)  # fmt: skip
PATTERN = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b".replace(" ", r"\s+"), re.IGNORECASE)
FOLDERS = ("emulator", "lab", "plugins", "workers", "tests", "benchmarks", "docs")
# Made of data, and in no commit.
GENERATED = (
    "accuracy-of-replay.md", "results.md", "what-the-paper-did-not-say.md", "lambdaml-space.md",
)  # fmt: skip
# A string of fewer words is a name, a key or a heading.
MESSAGE_WORDS = 4


@dataclass(frozen=True)
class Counted:
    """Words of a folder, and the sentences in which a marker phrase stands, with their file and line."""

    words: int
    found: tuple[str, ...]

    @property
    def rate(self) -> float:
        """Return the phrases per 10,000 words."""
        return 10_000 * len(self.found) / self.words


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield what people read of a file, with its first line: docstrings and messages of a module, a page without its
    code."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        prose = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), source, flags=re.DOTALL)
        yield 1, prose
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) >= MESSAGE_WORDS:
            yield node.lineno, node.value


def count(folder: str) -> Counted:
    """Count the words and the phrases of a folder; the README and its neighbours belong to docs."""
    paths = sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md"))
    paths += sorted(ROOT.glob("*.md")) if folder == "docs" else []
    paths = [path for path in paths if path.name not in GENERATED]
    words, found = 0, list[str]()
    for path in paths:
        for first, text in texts(path):
            words += len(text.split())
            for match in PATTERN.finditer(text):
                line = first + text.count("\n", 0, match.start())
                found.append(f"{path.relative_to(ROOT)}:{line}: {' '.join(match[0].split())}")
    return Counted(words, tuple(found))


def recorded() -> dict[str, float]:
    """Return the greatest rate of each folder that passes."""
    return dict(json.loads(RECORD.read_text()))


def main() -> int:
    """Print where the phrases stand and how many there are."""
    parser = argparse.ArgumentParser(description="Count marker phrases of stiff English.")
    parser.add_argument("folders", nargs="*", default=FOLDERS)
    parser.add_argument("--record", action="store_true", help="lower the record to what is counted")
    arguments = parser.parse_args()
    record = recorded()
    for folder in arguments.folders:
        counted = count(folder)
        print(*counted.found, sep="\n")
        print(f"{folder}: {len(counted.found)} in {counted.words} words, {counted.rate:.1f} per 10,000")
        if folder in record:
            record[folder] = min(record[folder], round(counted.rate + 0.05, 1))
    if arguments.record:
        RECORD.write_text(json.dumps(record, indent=0) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
