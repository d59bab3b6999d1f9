"""Read the errors of modelled figures from accuracy.toml.

The replay's errors are for plans that a host hasn't run, a profile's are for times on AWS.
"""

import math
from collections.abc import Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from slslab.predict.anchors import Z80
from slslab.toml_files import DataFiles, TomlTable

FILE = Path(__file__).with_name("accuracy.toml")
SCHEMA = 1


class Deviation(TomlTable):
    """Mean and greatest absolute error, as shares of the measured figure."""

    mean: Annotated[float, Field(gt=0)]
    worst: Annotated[float, Field(gt=0)]


class ProfileErrors(TomlTable):
    """A profile's errors on rounds that it predicted: of seconds, and of cost if it predicted any."""

    seconds: Deviation
    cost: Deviation | None = None


class Speed(TomlTable):
    """The factor by which an assumed speed may be off (80 % range), and why."""

    factor: Annotated[float, Field(gt=1)]
    reason: Annotated[str, Field(min_length=1)]


class Accuracy(TomlTable):
    """The errors of seconds and of billed seconds; when, how and on what they were measured; the errors of profiles;
    and the errors of the speeds of GPUs and of instances' processors."""

    date: date
    source: str
    measured_on: str
    seconds: Deviation
    billed_seconds: Deviation
    profiles: Mapping[str, ProfileErrors]
    speeds: Mapping[Literal["gpu", "instance"], Speed]


@cache
def _load(path: Path) -> Accuracy:
    return DataFiles(Accuracy, "accuracy file", schema=SCHEMA).load(path)


def replay_errors(*, instances: bool = False) -> dict[str, float]:
    """Return the mean absolute errors of the replay: of seconds, billed seconds and cost.

    The cost's error is the billed seconds' error, because everything else on the bill follows from them or counts
    requests. Instances are billed from launch to end, so all of theirs are the error of seconds.
    """
    accuracy = _load(FILE)
    return _by_figure(accuracy.seconds, accuracy.seconds if instances else accuracy.billed_seconds)


def profile_errors(profile: str, *, instances: bool = False) -> dict[str, float] | None:
    """Return the same errors of a profile, None for one that nothing tested.

    A profile that predicted no costs has the error of seconds for them, too.
    """
    errors = _load(FILE).profiles.get(profile)
    if errors is None:
        return None
    return _by_figure(errors.seconds, errors.seconds if instances else errors.cost or errors.seconds)


def speed_deviation(processor: Literal["gpu", "instance"]) -> float:
    """Return the standard deviation of the logarithm of an instance's assumed speed: its GPU's or processors'."""
    return math.log(_load(FILE).speeds[processor].factor) / Z80


def _by_figure(seconds: Deviation, billed: Deviation) -> dict[str, float]:
    return {"seconds": seconds.mean, "billed_seconds": billed.mean, "cost": billed.mean}
