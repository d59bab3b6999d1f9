"""Read the errors of modelled figures from accuracy.toml.

The replay's errors are for plans that a host hasn't run, a profile's are for times on AWS.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from slslab.errors import RequestError
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
    return DataFiles(Accuracy, "accuracy file", RequestError, schema=SCHEMA).load(path)


@dataclass(frozen=True)
class MeanErrors:
    """Mean absolute errors of seconds, billed seconds and cost; `profile` is None for a profile that nothing tested."""

    replay: Mapping[str, float]
    profile: Mapping[str, float] | None


def mean_errors(profile: str, *, instances: bool) -> MeanErrors:
    """Return the mean errors of the replay and of a profile.

    The cost's error is the billed seconds' error, because everything else on the bill follows from them or counts
    requests. For instances, which are billed from launch to end, and for a profile that predicted no costs, it is the
    error of seconds.
    """
    accuracy = _load(FILE)
    seconds = accuracy.seconds.mean
    billed = seconds if instances else accuracy.billed_seconds.mean
    errors = accuracy.profiles.get(profile)
    if errors is None:
        return MeanErrors(_by_figure(seconds, billed), None)
    cost = errors.seconds if instances else errors.cost or errors.seconds
    return MeanErrors(_by_figure(seconds, billed), _by_figure(errors.seconds.mean, cost.mean))


def speed_deviation(processor: Literal["gpu", "instance"]) -> float:
    """Return the standard deviation of the logarithm of an instance's assumed speed: its GPU's or processors'."""
    return math.log(_load(FILE).speeds[processor].factor) / Z80


def _by_figure(seconds: float, billed: float) -> dict[str, float]:
    return {"seconds": seconds, "billed_seconds": billed, "cost": billed}
