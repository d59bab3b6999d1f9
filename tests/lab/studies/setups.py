"""The setup of studies in tests: the usual one, except for a test's changes."""

from dataclasses import replace
from statistics import fmean
from typing import Any

from slslab.predict.profiles.profile import Profile
from slslab_lab.papers.paper import load_paper
from slslab_lab.studies.aggregation import Setting, play_round
from slslab_lab.studies.catalogue import STUDIES
from slslab_lab.studies.gradssharding import BLIND, observations
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


def todays_seconds(profile: Profile, spread: float) -> list[float]:
    """The seconds of GradsSharding's rounds that were predicted blind, played by today's code on this profile.

    One of nine rounds was cold.
    """
    paper = load_paper("gradssharding-2026")
    add_s_per_gb = fmean(one.add_s_per_gb for one in observations(paper))
    seconds = []
    for row in paper.table(BLIND).rows:
        model, topology = (str(row.inputs[name]) for name in ("model", "topology"))
        parameters, shards, memory_mb = (int(row.inputs[name]) for name in ("parameters", "shards", "memory_mb"))
        setting = Setting(model, parameters, topology, shards, memory_mb)
        warm, cold = (play_round(setting, add_s_per_gb, profile, spread, cold=cold).wall_s for cold in (False, True))
        seconds.append((8 * warm + cold) / 9)
    return seconds
