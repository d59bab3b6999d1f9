"""KubeML's epochs of ResNet34 on CIFAR-10 as in the paper, played on a profile: how long merging takes.

Functions and the job need no CPU time here, and documents aren't loaded, so an epoch's computing and reading isn't
included. The paper doesn't give its machine's figures; one rate at which tensors move stands for it.
"""

from dataclasses import replace
from typing import Any

from slslab.predict.environment import NS
from slslab.predict.profiles.profile import Profile
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.programs.scaling import generate
from slslab_lab.replay.rounds import without_compute
from slslab_lab.replay.speeds import with_figures
from slslab_workers.kubeml.driver import KubeML
from slslab_workers.kubeml.pattern import pattern_of
from slslab_workers.kubeml.shares import Epoch
from slslab_workers.patterns import Activity, Pattern, Workload

# ResNet34 as released: torchvision's, with 1,000 classes.
PARAMETERS, TENSORS, BUFFERS = 21_797_672, 218, 17_060
MODEL_MB = 4 * (PARAMETERS + BUFFERS) / 1e6


class _Released(KubeML):
    """KubeML with the paper's documents, which needn't divide into a plan's minibatches."""

    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch

    def pattern(self, workload: Workload) -> Pattern:
        """Return the pattern of the epoch without validation, and without loading documents."""
        workload = replace(workload, parameters=PARAMETERS, tensors=TENSORS, buffers=BUFFERS, evaluation=False)
        made = pattern_of(workload, self._epoch)

        def is_kept(part: Any) -> bool:
            return not (isinstance(part, Activity) and part.op == "object.get")

        return replace(
            made, roles=tuple(replace(role, start=tuple(filter(is_kept, role.start))) for role in made.roles)
        )


def merging_seconds(epoch: Epoch, profile: Profile) -> float:
    """Return the seconds of an epoch: the second of two, with warm environments."""
    costs = without_compute(_Released(epoch))
    any_function = costs.functions["invocation"]
    functions = {name: replace(any_function, name=name) for name in ("invocation", "init", "job")}
    program = generate(replace(costs, functions=functions), epoch.functions, 1, 2)
    timeline = play(program, profile)
    calls = list(zip(program.tracks, timeline.calls, strict=True))
    first, second = (max(call.ended for track, call in calls if track.epoch == number) for number in range(2))
    return (second - first) / NS


def with_rate(profile: Profile, rate_mb_s: float) -> Profile:
    """Return the profile with tensors that move at this rate, in 10⁶ bytes a second."""
    change = {"value": rate_mb_s}
    return with_figures(profile, "tensor", "bandwidth_mb_s", lambda figure: figure.model_copy(update=change))
