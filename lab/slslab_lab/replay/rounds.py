"""One round of an exchange in isolation: the time until every worker has the sum of all gradients.

Programs are the architectures' patterns, with the CPU time of a recorded run or without any, and the kernel plays them.
Everything here is modelled.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from slslab.predict.environment import NS
from slslab.predict.profiles.profile import Profile
from slslab_lab.replay.crossings import pipe_share
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Gathering, Program, Step, Track
from slslab_lab.replay.programs.scaling import generate
from slslab_lab.replay.programs.step_costs import Cost, StepCosts
from slslab_workers.architecture import Architecture
from slslab_workers.channels.polling import POLICIES, Poll
from slslab_workers.patterns import Workload
from slslab_workers.training.released_log import LOG_TRAFFIC
from slslab_workers.training.released_log import PHASE as LOG

PHASE = "synchronise"
DELETE = "object.delete"
# Requests outside the exchange or after it: no worker waits for them.
CLEANING = (DELETE, "object.list")
FREE = Cost(0.0, 0.0, 0.0, 0.0, 0.0, False, 0.0)


@dataclass(frozen=True)
class _Free(StepCosts):
    def of(self, function: str, op: str, phase: str, first: bool) -> Cost:  # noqa: ARG002
        return FREE


def without_compute(architecture: Architecture) -> StepCosts:
    """Return an architecture's costs, with all CPU times 0."""
    template = Track(architecture.name, "invocation", 0, (), 1769)
    return _Free(architecture, Workload(2, 1, 1, 1), {}, {"invocation": template}, frozenset(), Poll(0.0, 1.0, 0.0), {})


@dataclass(frozen=True)
class Round:
    """A round in which `workers` exchange gradients of `size` bytes.

    `polling` is how they wait for objects: `released` as LambdaML's code, `adaptive` as the emulator's workers by
    default, or `none`: they block. With `deletes_at_once` the merging worker deletes the objects it has read with one
    request, as LambdaML's code does, not one by one. `log_bytes` is the size of each worker's log when the round
    begins, for the log traffic of Barrak et al.'s code; None without it.
    """

    costs: StepCosts
    workers: int
    size: int
    polling: str = "released"
    deletes_at_once: bool = False
    log_bytes: int | None = None

    def program(self) -> Program:
        """Return the second of two steps, since the first step of a run does things that aren't part of a round."""
        options = {**self.costs.workload.options, LOG_TRAFFIC.name: self.log_bytes is not None}
        workload = replace(self.costs.workload, parameters=max(1, round(self.size / 4)), options=options)
        made = generate(replace(self.costs, workload=workload), self.workers, 2, 1)
        tracks = tuple(replace(track, steps=tuple(self._steps(track))) for track in made.tracks)
        # A list finds all objects, or none while other workers are behind: only the pauses between gets matter.
        policy = POLICIES["adaptive" if self.polling == "none" else self.polling]
        return replace(made, tracks=tracks, batches=1, polls=policy.gets)

    def _steps(self, track: Track) -> Iterator[Step | Gathering]:
        written: int | None = None
        for item in track.steps:
            if isinstance(item, Step) and (item.phase, item.step) == (LOG, 1):
                # The log at the beginning of the round doesn't contain the first step's lines.
                written = item.bytes if written is None else written
                yield replace(item, bytes=item.bytes - written + (self.log_bytes or 0))
            elif isinstance(item, Step):
                yield from self._exchanged((item,))
            elif groups := tuple(filter(None, map(self._exchanged, item.groups))):
                if self.deletes_at_once:
                    groups = tuple(tuple(step for step in group if step.op != DELETE) for group in groups)
                yield Gathering(groups)
                if self.deletes_at_once:
                    yield Step(DELETE, PHASE, requests=1)

    def _exchanged(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        kept = (step for step in steps if step.phase == PHASE and step.step == 1)
        return tuple(replace(step, polling="") if self.polling == "none" else step for step in kept)

    def seconds(self, profile: Profile) -> float:
        """Return the time from the first request until the last worker has the sum, without later deletes and logs."""
        timeline = play(self.program(), profile)
        ends = (
            end
            for step, end in zip(timeline.steps, timeline.end, strict=True)
            if step.phase == PHASE and step.op not in CLEANING
        )
        return (max(ends) - min(timeline.begin)) / NS


def size_at(profile: Profile, share: float) -> int:
    """Return the bytes of a gradient at which latency × bandwidth ÷ size of the object store's gets is `share`."""
    return max(4, round(pipe_share(profile, 1) / share))
