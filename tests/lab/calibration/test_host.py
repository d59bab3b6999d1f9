"""A training step's parallel share: the arithmetic on made-up measurements, and once the measurement, in small."""

import pytest

from slslab_lab.calibration import host
from slslab_lab.calibration.host import StepTime, measure_step


@pytest.mark.parametrize(
    ("cpu_s", "wall_s", "parallel"),
    [
        ({1: 1.0}, {1: 1.0}, None),
        # 1.2 CPU seconds in 0.72 s: 0.6 = (1 − f) + f ÷ 2.
        ({1: 1.0, 2: 1.2}, {1: 1.0, 2: 0.72}, 0.8),
        ({1: 1.0, 2: 1.0}, {1: 1.0, 2: 0.5}, 1.0),
        # Measured beyond what can be.
        ({1: 1.0, 2: 1.0}, {1: 1.0, 2: 0.45}, 1.0),
        ({1: 1.0, 2: 1.0}, {1: 1.0, 2: 1.5}, 0.0),
        # 0.4 = (1 − f) + f ÷ 4.
        ({1: 1.0, 4: 1.0}, {1: 1.0, 4: 0.4}, 0.8),
    ],
)
def test_what_threads_do_at_once_is_amdahl_s_share(
    cpu_s: dict[int, float], wall_s: dict[int, float], parallel: float | None
) -> None:
    step = StepTime({count: (wall_s[count], cpu_s[count], 0.01) for count in wall_s})
    assert step.parallel == (None if parallel is None else pytest.approx(parallel))


def test_a_busy_host_cannot_tell_what_threads_do_at_once() -> None:
    step = StepTime({1: (1.0, 1.0, 0.01), 2: (0.72, 1.2, 0.04)})
    assert (step.busy, step.parallel) == (True, None)


def test_the_step_is_measured_on_every_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "BATCH", 4)
    told: list[tuple[str, int, int]] = []
    step = measure_step(lambda *progress: told.append(progress), steps=2)
    assert told == [("measuring training steps", 1, 2), ("measuring training steps", 2, 2)]
    assert 1 in step.quickest
    assert all(wall_s > 0 and cpu_s > 0 for wall_s, cpu_s, _ in step.quickest.values())
