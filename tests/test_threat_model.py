"""The threat model in docs/design.md: each line names a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "design.md"


def test_every_line_has_a_test() -> None:
    section = PAGE.read_text().partition("\n## The threat model\n")[2]
    tables = [line for line in section.splitlines() if line.startswith("| ")]
    lines = [line for line in tables if "| test |" not in line]
    assert len(lines) > 15
    for line in lines:
        (named,) = re.findall(r"`(tests/\S+)` \|$", line)
        path, _, function = named.partition("::")
        assert re.search(rf"^def {function or 'test_'}", (ROOT / path).read_text(), re.MULTILINE), line
