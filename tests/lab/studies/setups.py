"""The setup of studies in tests: the usual one, except for a test's changes."""

from dataclasses import replace
from typing import Any

from slslab_lab.studies.catalogue import STUDIES
from slslab_lab.studies.study import Setup


class Watching:
    """Keeps what is reported to it."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, int, int]] = []
        self.said: list[str] = []

    def report(self, stage: str, done: int, total: int) -> None:
        self.reported.append((stage, done, total))

    def say(self, line: str) -> None:
        self.said.append(line)


def setup(name: str, changes: dict[str, Any] | None = None, **options: Any) -> Setup:
    """What a study is made with by these options, and with changes of its parts."""
    return replace(STUDIES[name].setup(Watching(), **options), **(changes or {}))
