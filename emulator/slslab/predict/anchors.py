"""Read the anchors: work with known times on Lambda and on the reference machine (`anchors.toml`)."""

import math
from collections.abc import Mapping
from datetime import date
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Literal

from pydantic import Field, model_validator

from slslab.errors import RequestError
from slslab.toml_files import DataFiles, TomlTable
from slslab_workers.trace.kinds import KINDS, Kind

Architecture = Literal["x86_64", "arm64"]
Form = Literal["whole", "short"]
PATH = Path(__file__).with_name("anchors.toml")
SCHEMA = 1
# The 80 % range of a normal distribution extends this many standard deviations to each side.
Z80 = NormalDist().inv_cdf(0.9)

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Deviation = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]


class Reference(TomlTable):
    """The machine on which `workloads` were measured, and its state; `provisional` until it was idle."""

    processor: Text
    flags: Text
    python: Text
    openssl: Text
    torch: Text
    numpy: Text
    measured: date
    load: float
    provisional: bool


class Workload(TomlTable):
    """CPU seconds of one reference workload on the reference machine: the least of several repetitions.

    `spread` is the standard deviation of the repetitions' logarithms. `python` holds the seconds in other versions of
    the interpreter, as multiples of the seconds in the reference's version.
    """

    description: Text
    whole_s: Positive
    short_s: Positive | None = None
    spread: Deviation
    python: Mapping[str, Positive] = {}

    def seconds(self, form: Form, python: str = "") -> float:
        """Return the seconds of one form in a version of Python, such as 3.12; for an unknown version, the reference's.

        RequestError if the workload has no short form.
        """
        seconds = self.whole_s if form == "whole" else self.short_s
        if seconds is None:
            raise RequestError("A workload has no short form.", "measure it whole.")
        return seconds * self.python.get(python, 1.0)


class KindOfWork(TomlTable):
    """One kind of work, and how uncertain a single anchor for it is (standard deviations of logarithms).

    `deviation` holds for any work of this kind, `year_deviation` for the time that has passed since the anchor was
    measured.
    """

    title: Text
    description: Text
    deviation: Deviation
    reason: Text
    year_deviation: Deviation = 0.0
    year_reason: str = ""


class Anchor(TomlTable):
    """Work with a known time on Lambda: seconds on one full vCPU, by architecture.

    `reference` is the workload for the same work, and `hosts` lists the workloads for comparing other hosts. An anchor
    with `ratios_only` gives no factor. Neither does one with `check`, which only checks the others and says why.
    """

    kind: Kind
    seconds: Mapping[Architecture, Positive]
    memory_mb: int
    year: int
    python: Text
    source: Text
    reference: str = ""
    hosts: tuple[str, ...] = ()
    ratios_only: bool = False
    check: str = ""


class HostDeviations(TomlTable):
    """Additions to a host's own deviation: always at least `least`, and more for each difference from the reference.

    `short` is for short forms, `python` for another version of Python that `workloads` know, `unknown_python` for one
    that they don't, `torch` for another version of PyTorch.
    """

    least: Deviation
    short: Deviation
    python: Deviation
    unknown_python: Deviation
    torch: Deviation
    reason: Text


class Unanchored(TomlTable):
    """The smallest and the largest factor seen between a host of this project and Lambda, for any kind of work."""

    lowest: Positive
    highest: Positive
    source: Text


class Anchors(TomlTable):
    """The whole file."""

    version: Text
    date: date
    missing: Text
    reference: Reference
    unanchored: Unanchored
    host: HostDeviations
    kinds: Mapping[Kind, KindOfWork]
    workloads: Mapping[str, Workload]
    anchors: Mapping[str, Anchor]

    @model_validator(mode="after")
    def _check(self) -> "Anchors":
        for name, anchor in self.usable().items():
            if unknown := {anchor.reference, *anchor.hosts} - set(self.workloads) or not anchor.hosts:
                raise ValueError(f"the anchor {name} names the workloads {unknown or 'none'}")
            if "x86_64" not in anchor.seconds:
                raise ValueError(f"the anchor {name} has no time on x86_64")
        if missing := {kind for kind in KINDS if not self.fitted(kind)}:
            raise ValueError(f"no anchor is of the kind {', '.join(sorted(missing))}")
        return self

    @property
    def python(self) -> str:
        """The reference's version of Python, such as 3.11."""
        return minor_version(self.reference.python)

    def usable(self) -> Mapping[str, Anchor]:
        """Return the anchors that a host's time can be compared with."""
        return {name: anchor for name, anchor in self.anchors.items() if not anchor.ratios_only}

    def fitted(self, kind: Kind) -> list[str]:
        """Return the anchors from which a kind's factor is computed."""
        return [name for name, anchor in self.usable().items() if anchor.kind == kind and not anchor.check]

    def constant(self, name: str) -> float:
        """Return Lambda's seconds ÷ the reference machine's in the anchor's Python, on x86_64."""
        anchor = self.anchors[name]
        return anchor.seconds["x86_64"] / self.workloads[anchor.reference].seconds("whole", anchor.python)

    def constants(self, kind: Kind) -> list[float]:
        """Return the constants of all anchors from which a kind's factor is computed."""
        return [self.constant(name) for name in self.fitted(kind)]

    def deviation(self, kind: Kind) -> float:
        """Return how uncertain a kind's constant is: the standard deviation of its logarithm, without the year.

        It is the larger of two: the value in the file, and half the distance between the kind's anchors. More anchors
        never make it smaller.
        """
        return max(self.kinds[kind].deviation, envelope(self.constants(kind))[1])

    def arm64(self, kind: Kind) -> tuple[float, float]:
        """Return arm64's seconds ÷ x86_64's for a kind, and a deviation that covers the ratios of all its anchors.

        A kind without an anchor on arm64 gets all anchors' ratios, and 1.
        """
        ratios = {
            name: anchor.seconds["arm64"] / anchor.seconds["x86_64"]
            for name, anchor in self.usable().items()
            if "arm64" in anchor.seconds
        }
        own = [ratio for name, ratio in ratios.items() if self.anchors[name].kind == kind]
        return envelope(own or [1.0, *ratios.values()])


def envelope(values: list[float]) -> tuple[float, float]:
    """Return the logarithmic middle of these values, and the deviation at which the 80 % range covers them all."""
    low, high = math.log(min(values)), math.log(max(values))
    return math.exp((low + high) / 2), (high - low) / 2 / Z80


def minor_version(version: str) -> str:
    """Return 3.11 for 3.11.7."""
    return ".".join(version.split(".")[:2])


@cache
def load_anchors(path: Path = PATH) -> Anchors:
    """Return the anchors; RequestError names the first invalid entry."""
    return DataFiles(Anchors, "file of anchors", schema=SCHEMA).load(path)
