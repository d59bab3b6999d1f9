"""docs/troubleshooting.md quotes errors as the code prints them."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "troubleshooting.md"
PRODUCT = ("emulator", "lab", "plugins", "workers")
# Said by the shell, pip, the AWS clients and Lambda's runtime client.
FOREIGN = {
    "slslab: command not found",
    "No matching distribution found for slslab",
    "Could not connect to the endpoint URL",
    "Invalid base64",
    "Unable to import module",
}


def test_every_error_is_one_that_the_code_prints() -> None:
    texts = [
        node.value
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    headings = re.findall(r"^### `(.+)`$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(headings) >= 15
    assert set(headings) > FOREIGN
    for heading in set(headings) - FOREIGN:
        # An ellipsis stands for a value.
        for words in filter(None, heading.split("…")):
            assert any(words.strip() in text for text in texts), (heading, words)
