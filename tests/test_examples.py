"""Commands that the README and docs/reference.md show exist, with all the options that they are shown with."""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from tests.commands import slslab

from slslab_lab.runs.planning import architectures

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/reference.md")


def commands() -> list[list[str]]:
    """The words behind `slslab` in each line of a block, without its comment."""
    blocks = (block for page in PAGES for block in re.findall(r"```\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))
    lines = (line for block in blocks for line in block.splitlines() if line.startswith("slslab "))
    return [shlex.split(line, comments=True)[1:] for line in lines]


@cache
def help_of(*names: str) -> str:
    shown = slslab(*names, "--help")
    assert shown.code == 0, names
    return shown.out


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_a_command_exists_with_its_options(words: list[str]) -> None:
    name, *rest = words
    groups = {*architectures(), "sam", "waiting", "table2"}
    nested = [name, *(word for word in rest[:1] if word in groups)]
    for option in (word for word in rest if word.startswith("--")):
        assert re.search(rf"{option}\b", help_of(*nested)), option


def test_options_of_run_stand_in_groups_and_each_once() -> None:
    text = help_of("run", "spirt")
    headings = re.findall(r"^(\w.*):$", text, re.MULTILINE)
    assert headings == ["Training", "Options of SPIRT", "Functions and services", "Output"]
    shown = re.findall(r"^  (--[\w-]+)", text, re.MULTILINE)
    assert len(shown) == len(set(shown)) > 40


def test_there_are_many() -> None:
    assert len(commands()) > 30
