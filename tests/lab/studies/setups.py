"""The setup of studies in tests: the usual one, except for a test's changes."""

from dataclasses import replace
from typing import Any

from slslab.predict.profiles.profile import Profile
from slslab_lab.papers.paper import load_paper
from slslab_lab.studies.aggregation import INIT_S, Setting, play_round
from slslab_lab.studies.catalogue import STUDIES
from slslab_lab.studies.gradssharding import BLIND
from slslab_lab.studies.study import Setup

# As measured in GradsSharding's rounds.
ADD_S_PER_GB = 0.1858


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


def todays_seconds(profile: Profile, spread: float) -> list[float]:
    """The seconds of GradsSharding's rounds that were predicted blind, played by today's code on this profile."""
    return [
        play_round(
            Setting(
                str(row.inputs["model"]),
                int(row.inputs["parameters"]),
                str(row.inputs["topology"]),
                *(int(row.inputs[name]) for name in ("shards", "memory_mb")),
            ),
            ADD_S_PER_GB,
            profile,
            spread,
        ).wall_s
        # One of nine rounds was cold.
        + INIT_S / 9
        for row in load_paper("gradssharding-2026").table(BLIND).rows
    ]
