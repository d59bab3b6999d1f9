"""docs/threat-model.md: each line names a test that is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "threat-model.md"


def test_every_line_has_a_test() -> None:
    tables = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    lines = [line for line in tables if "| test |" not in line]
    assert len(lines) > 15
    for line in lines:
        (named,) = re.findall(r"`(tests/\S+)` \|$", line)
        path, _, function = named.partition("::")
        assert re.search(rf"^def {function or 'test_'}", (ROOT / path).read_text(), re.MULTILINE), line
