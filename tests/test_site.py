"""The documentation as a site: it builds strictly, has every command, and asks no other host for anything."""

import ast
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import click
import pytest

from slslab.cli.root import root

ROOT = Path(__file__).parent.parent
SITE = ("accuracy-of-replay.md", "results.md", "what-the-paper-did-not-say.md", "lambdaml-space.md")


class Asked(HTMLParser):
    """What a browser fetches for a page by itself: scripts, styles, pictures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag in ("script", "img", "iframe"):
            self.addresses.append(found.get("src") or "")
        elif tag == "link" and found.get("rel") not in ("canonical", "next", "prev"):
            self.addresses.append(found.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-m", "docs.build", *SITE], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    # Strict: a link to a page or heading that is not there, or a page that is not in the contents, is an error.
    built = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_there_and_asks_no_other_host(site: Path) -> None:
    pages = {path.stem for path in site.glob("*.html")}
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} - {"README"} < pages
    assert {"index", "overview", "contributing", "changelog", "commands", "document"} < pages
    for page in site.glob("*.html"):
        asked = Asked(page.read_text(encoding="utf-8")).addresses
        assert asked
        assert not [address for address in asked if address.startswith(("http:", "https:", "//"))], page.name


def test_the_reference_has_every_command(site: Path) -> None:
    text = (site / "commands.html").read_text(encoding="utf-8")

    def names(group: click.Group, before: str = "") -> list[str]:
        found, context = [], click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            if command.hidden:
                continue
            found.append(f"{before}{name}")
            if isinstance(command, click.Group):
                found += names(command, f"{before}{name} ")
        return found

    commands = names(root)
    assert len(commands) > 25
    for name in commands:
        assert f">{name.rpartition(' ')[2]}<" in text, name


def test_the_reference_has_the_schema_of_a_run(site: Path) -> None:
    schema = json.loads((site / "document.schema.json").read_text(encoding="utf-8"))
    text = (site / "document.html").read_text(encoding="utf-8")
    for module, name in (("document", "Modelled"), ("document", "MemorySize"), ("bill", "Cost")):
        place = f"slslab.run.{module}.{name}"
        assert f'id="{place}"' in text
        assert all(f'id="{place}.{key}"' in text for key in schema["$defs"][name]["properties"])
    # The type `OnLambda` has the key `lambda`, a word of Python.
    ended = schema["properties"].keys() - {"lambda"}
    assert all(f'id="slslab.run.document.RunDocument.{key}"' in text for key in ended)
    assert re.search('autorefs-internal"[^>]* href="#slslab.run.document.MemorySize"', text)


def test_the_examples_use_what_the_reference_of_plugins_has_and_nothing_else(site: Path) -> None:
    text = (site / "plugins.html").read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "examples").rglob("*.py")]
    imports = [node for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    used = {f"{node.module}.{each.name}" for node in imports for each in node.names}
    ours = {name for name in used if name.startswith("slslab")}
    assert ours
    for name in ours:
        assert f'id="{name}' in text, f"{name} is used in examples/, and isn't in PLUGIN_SURFACE of docs/site.py"


def test_the_readmes_errors_are_those_of_the_accuracy_of_replay(site: Path) -> None:  # noqa: ARG001 - it builds the page
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "accuracy-of-replay.md").read_text(encoding="utf-8")
    blind = ("RQ3: seconds of a round", "RQ3: cost of a round")
    for row in ("seconds of a worker's handlers", "billed seconds of all functions", "left out of the fit", *blind):
        [(mean, greatest)] = re.findall(rf"^\|.*{row}.*\| ([\d.]+)% \| ([\d.]+)% \|", page, re.MULTILINE)
        assert f"{mean} % ({greatest} %)" in readme, row
    [mean] = re.findall(r"with nothing fitted to them, by (\d+)%", page)
    greatest = max(float(each) for each in re.findall(r"^\|.*\| predicted \|.*\| ([\d.]+)% \|", page, re.MULTILINE))
    assert f"{mean} % ({greatest:.0f} %)" in readme
