"""What strangers look for at the root: complete, and of this version."""

import re
import tomllib
from pathlib import Path

import yaml
from tests.house.language import GENERATED

from slslab.installation import __version__

ROOT = Path(__file__).parents[1]
PAPER = tomllib.loads((ROOT / "papers" / "barrak-2025.toml").read_text(encoding="utf-8"))


def test_the_licence_is_the_one_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert project["license"] == "Apache-2.0"
    assert re.search(r"Apache License\s+Version 2.0, January 2004", text)
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_changelog_has_this_version() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert __version__ in headings


def test_the_citation_is_of_this_version_and_names_the_paper_as_its_data_do() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["cff-version"], citation["version"]) == ("1.2.0", __version__)
    assert citation["license"] == "Apache-2.0"
    paper = citation["references"][0]
    assert paper["title"] == PAPER["title"]
    names = [f"{author['given-names']} {author['family-names']}" for author in paper["authors"]]
    assert ", ".join(names) == PAPER["authors"]
    assert f"{paper['year']}, {paper['identifiers'][0]['value']}" == PAPER["published"]


def test_the_index_has_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md", *GENERATED}
    assert pages <= set(re.findall(r"\]\(([\w-]+\.md)\)", index))
