"""Plans for a platform of functions with GPUs: its size, time-out and prices, and its limits instead of Lambda's."""

import math
from dataclasses import replace
from typing import Any

from slslab.aws.accounts import account_limits
from slslab.aws.limits import Limits, Range
from slslab.errors import RequestError
from slslab.predict.gpus import load_gpus
from slslab.predict.profiles.profile import load_platform
from slslab_workers.architecture import Architecture
from slslab_workers.plan import GPU_MEMORY, Plan

# Functions of platforms are made by AWS's API, too, in whose model no time-out is longer.
LONGEST_TIMEOUT_S = 5400


def platform_values(name: str) -> dict[str, Any]:
    """Return the values of a plan that a platform sets, unless the command line does."""
    containers = load_platform(name).gpu_containers
    return {
        "memory_mb": int(containers.memory_mb.value),
        "timeout": min(int(containers.timeout_s.value), LONGEST_TIMEOUT_S),
        "prices": containers.prices,
    }


def limits_of(plan: Plan) -> Limits:
    """Return the limits of a plan's functions: the ones of its account, changed by its platform.

    Limits that a platform's profile doesn't have stay Lambda's, except the limit of init.
    """
    limits = account_limits(plan.account)
    if plan.platform is None:
        return limits
    profile = load_platform(plan.platform)
    containers = profile.gpu_containers
    memory_mb, timeout_s = int(containers.memory_mb.value), min(int(containers.timeout_s.value), LONGEST_TIMEOUT_S)
    return limits.changed(
        memory_mb=replace(limits.memory_mb, maximum=memory_mb),
        timeout_s=replace(limits.timeout_s, maximum=timeout_s),
        init_s=float(timeout_s),
        idle_s=containers.idle_s.value,
        processors=((memory_mb, math.ceil(containers.vcpus.value)),),
        account_concurrency=int(profile.functions.concurrency.value),
    )


def check_limits(plan: Plan, architecture: Architecture) -> None:
    """Raise RequestError for memory sizes and a time-out that Lambda, the plan's account or its platform don't have.

    PlanError if the architecture can't run the plan.
    """
    limits = limits_of(plan)
    _check(plan, "functions", "--memory is", plan.memory_mb, "MB", limits.memory_mb, "choose another --memory")
    _check(plan, "time-outs", "--timeout is", plan.timeout, "s", limits.timeout_s, "choose another --timeout")
    # Requirements may assume a size and a time-out that exist.
    requirements = architecture.requirements(plan)
    if plan.platform is not None and requirements.instances is not None:
        raise RequestError(f"{plan.architecture} runs on instances, not on functions.", "leave out --platform.")
    for option in architecture.options:
        if option.memory and (size_mb := option.size_mb(plan)):
            given = f"--{option.name} is", f"choose another --{option.name}"
            says, hint = given if option.of(plan.options) else option.chosen
            _check(plan, "functions", says, size_mb, "MB", limits.memory_mb, hint)


def _check(plan: Plan, what: str, says: str, value: int, unit: str, limit: Range, hint: str) -> None:
    if limit.minimum <= value <= limit.maximum:
        return
    owner = "Lambda"
    for other in ("account", "platform"):
        if (named := getattr(plan, other)) not in (None, Plan.account):
            owner, hint = f"The {other} {named}", f"{hint}, or leave out --{other}"
    raise RequestError(
        f"{owner} has {what} of {limit.minimum:,} to {limit.maximum:,} {unit}, and {says} {value:,} {unit}.", f"{hint}."
    )


def gpu_variables(plan: Plan) -> dict[str, str]:
    """Return the variables of a plan's functions that limit their memory of a GPU to the platform's, if it is known."""
    containers = plan.platform and load_platform(plan.platform).containers
    limit_mb = load_gpus().memory_mb(containers.gpu) if containers else None
    return {} if limit_mb is None else {GPU_MEMORY: str(limit_mb)}
