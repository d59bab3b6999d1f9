"""Links of committed pages, as a reader on a code host follows them: to committed files, and to headings in these."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LISTED = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
FILES = set(filter(None, LISTED.split("\0")))
PAGES = sorted(name for name in FILES if name.endswith(".md"))


def prose(name: str) -> str:
    """The text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@cache
def anchors(name: str) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", prose(name), re.MULTILINE)
    texts = (re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts}


@pytest.mark.parametrize("page", PAGES)
def test_a_relative_link_leads_to_a_committed_file_and_heading(page: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = str(((ROOT / page).parent / path).resolve().relative_to(ROOT)) if path else page
        folder = any(name.startswith(f"{target}/") for name in FILES)
        assert target in FILES or folder, f"{page}: {link}"
        if anchor and target.endswith(".md"):
            assert anchor in anchors(target), f"{page}: {link}"


def test_there_are_pages_with_links() -> None:
    assert {"README.md", "CONTRIBUTING.md", "docs/README.md", "docs/replay.md"} <= set(PAGES)


@pytest.mark.parametrize(("page", "least"), [("CONTRIBUTING.md", 8), ("docs/trace.md", 6)])
def test_what_a_page_names_is_in_the_file_next_to_it(page: str, least: int) -> None:
    named = re.findall(r"`([\w.]+)`,? in \[`[^`]+`\]\(([^)]+)\)", prose(page))
    assert len(named) >= least
    for name, path in named:
        table, last = re.escape(name), name.rpartition(".")[2]
        definition = rf"^( *(def|class) {last}\b|{last}\b.*=|\[{table}\])"
        text = ((ROOT / page).parent / path).read_text(encoding="utf-8")
        assert re.search(definition, text, re.MULTILINE), f"{name} in {path}"
