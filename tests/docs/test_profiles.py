"""The page of the profiles has every figure of each, under its own heading or its base's."""

import re

import pytest
from docs.build import build
from docs.pages.profiles import value_of

from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import figures, load_profile, profile_names

PAGE = build("profiles.md")


def section(name: str) -> str:
    return PAGE.split(f"\n## {name}\n")[1].split("\n## ")[0]


def bases(name: str) -> list[str]:
    """The profile, its base, and so on."""
    found = re.search(r"Base: `(.+)`", section(name))
    return [name, *bases(found[1])] if found else [name]


@pytest.mark.parametrize("name", profile_names())
def test_every_figure_stands_with_its_status_and_source(name: str) -> None:
    lines = [line for each in bases(name) for line in section(each).splitlines()]
    for entry, figure in figures(load_profile(name)):
        # The first line is the profile's own, if it differs from its base.
        line = next(line for line in lines if line.startswith(f"| {entry} |"))
        assert line == f"| {entry} | {value_of(figure)} | {figure.status} | {figure.source} |"


def test_a_profile_with_a_base_has_what_differs_alone() -> None:
    assert bases(DEFAULT_PROFILE) == [DEFAULT_PROFILE, "aws-us-east-1-2026", "aws-us-east-1"]
    assert "| task_ms | 110 | fitted |" in section(DEFAULT_PROFILE)
    assert "compute.vcpu_mb" not in section(DEFAULT_PROFILE)


def test_a_rough_figure_stands_with_its_range() -> None:
    assert "| functions.cold_image_ms | 3000 (1000 to 10000) | assumed |" in section("modal-t4")
