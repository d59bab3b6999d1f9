"""One constant for the speed of Lambda's processors, shared by all rows of a table.

A profile assumes that a vCPU is as fast as a processor of the recording host. The published seconds of all rows
together give a better figure: the speed with which half of the rows are modelled longer and half shorter than
published. No row has a constant of its own."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from slslab.replay.profiles.profile import Figure, Profile, with_speed

# The range in which the speed is searched, and its precision.
SLOWEST, FASTEST = 1 / 64, 64.0
CLOSE = 1e-4


@dataclass(frozen=True)
class Calibration:
    """The speed of a vCPU, as a multiple of a processor of the recording host, and the rows that it was fitted to."""

    speed: float
    rows: tuple[str, ...]

    def apply(self, profile: Profile) -> Profile:
        """Return the profile with functions of that speed."""
        source = f"fitted to the published seconds of {len(self.rows)} rows: the median of modelled ÷ published is 1"
        return with_speed(profile, Figure(value=self.speed, status="assumed", source=source))

    def as_document(self) -> dict[str, Any]:
        """Return the calibration for JSON."""
        return {"cpu_speed": self.speed, "rows": list(self.rows)}


def calibrate(published: Mapping[str, float], modelled: Callable[[float], Mapping[str, float]]) -> Calibration:
    """Return the speed at which the median row is modelled as published; `modelled` plays all rows at a speed.

    More speed never takes longer, so it is found by halving the interval. If requests alone take longer than
    published, the speed is the largest in the range, and the cells show how far off they are."""

    def off(speed: float) -> float:
        seconds_by_row = modelled(speed)
        return median(math.log(seconds_by_row[name] / seconds) for name, seconds in published.items())

    slow, fast = SLOWEST, FASTEST
    while fast / slow > 1 + CLOSE:
        middle = math.sqrt(slow * fast)
        if off(middle) > 0:
            slow = middle
        else:
            fast = middle
    return Calibration(math.sqrt(slow * fast), tuple(published))
