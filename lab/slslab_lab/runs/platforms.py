"""Plans for a platform of functions with GPUs: its size, time-out and prices, and its limits instead of Lambda's."""

import math
from dataclasses import replace
from typing import Any

from slslab.aws.accounts import account_limits
from slslab.aws.limits import Limits
from slslab.errors import RequestError
from slslab.predict.gpus import load_gpus
from slslab.predict.profiles.profile import load_platform
from slslab_workers.architecture import Requirements
from slslab_workers.plan import GPU_MEMORY, LONGEST_TIMEOUT_S, Plan


def platform_values(name: str) -> dict[str, Any]:
    """Return the values of a plan that a platform sets, unless the command line does."""
    containers = load_platform(name).containers
    assert containers is not None
    return {
        "memory_mb": int(containers.memory_mb.value),
        "timeout": min(int(containers.timeout_s.value), LONGEST_TIMEOUT_S),
        "prices": containers.prices,
    }


def limits_of(plan: Plan) -> Limits:
    """Return the limits of a plan's functions: its account's, except the ones that its platform's profile has."""
    limits = account_limits(plan.account)
    if plan.platform is None:
        return limits
    profile = load_platform(plan.platform)
    containers = profile.containers
    assert containers is not None
    memory_mb, timeout_s = int(containers.memory_mb.value), min(int(containers.timeout_s.value), LONGEST_TIMEOUT_S)
    return limits.changed(
        memory_mb=replace(limits.memory_mb, maximum=memory_mb),
        timeout_s=replace(limits.timeout_s, maximum=timeout_s),
        init_s=float(timeout_s),
        idle_s=containers.idle_s.value,
        processors=((memory_mb, math.ceil(containers.vcpus.value)),),
        account_concurrency=int(profile.functions.concurrency.value),
    )


def check_limits(plan: Plan, requirements: Requirements, limits: Limits) -> None:
    """Raise RequestError for a plan that its account or platform doesn't allow."""
    if plan.platform is not None and requirements.instances is not None:
        raise RequestError(f"{plan.architecture} runs on instances, not on functions.", "leave out --platform.")
    owner = "account" if plan.platform is None else "platform"
    for what, option, value, unit, limit in (
        ("functions", "memory", plan.memory_mb, "MB", limits.memory_mb),
        ("time-outs", "timeout", plan.timeout, "s", limits.timeout_s),
    ):
        if value > limit.maximum:
            raise RequestError(
                f"The {owner} {getattr(plan, owner)} has {what} of at most {limit.maximum:,} {unit}"
                f"{' here' if plan.platform else ''}, and the plan wants {value:,} {unit}.",
                f"choose a smaller --{option}, or leave out --{owner}.",
            )


def gpu_variables(plan: Plan) -> dict[str, str]:
    """Return the variables of a plan's functions that limit their memory of a GPU to the platform's, if it is known."""
    containers = plan.platform and load_platform(plan.platform).containers
    limit_mb = load_gpus().memory_mb(containers.gpu) if containers else None
    return {} if limit_mb is None else {GPU_MEMORY: str(limit_mb)}
