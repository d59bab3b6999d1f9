"""Refuse a plan whose environments do not fit at once into the host's memory, or into the account's concurrency."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from slslab.aws.accounts import account_limits
from slslab.errors import HostError, RequestError, counted
from slslab.lambda_.places import terms
from slslab_workers.architecture import Architecture, ResidentPhase
from slslab_workers.plan import Plan


def admit_concurrency(plan: Plan, architecture: Architecture) -> None:
    """Refuse a plan whose functions wait for more of each other than the account runs at once (RequestError)."""
    most = account_limits(plan.account).account_concurrency
    for phase in architecture.resident_set(plan):
        if architecture.requirements(plan).instances is None and phase.environments > most:
            raise RequestError(
                f"{phase.name} needs {counted(phase.environments, 'function')} at once, and the account "
                f"{plan.account} runs at most {most:,} (account_concurrency): the others would be throttled.",
                f"choose --workers {most} or fewer, or another --account.",
            )


def admit(plan: Plan, architecture: Architecture, budgets_mb: Sequence[int]) -> None:
    """Refuse a plan that cannot be resident in the hosts' memory for functions, with the arithmetic (HostError)."""
    there = f"there are {terms(budgets_mb)} MB for functions"
    for phase in architecture.resident_set(plan):
        if not _fits(phase, plan, budgets_mb):
            needed_mb = phase.environments * plan.memory_mb + phase.beside_mb
            if not phase.environments:
                raise HostError(
                    f"{phase.name} needs {needed_mb:,} MB, and {there}.",
                    f"an option may give it less: slslab run {plan.architecture} --help",
                )
            beside = f" + {phase.beside_mb:,} MB of smaller functions and databases" if phase.beside_mb else ""
            fits = bisect_left(
                range(1, plan.workers), True, key=lambda n: not _all_fit(plan, architecture, n, budgets_mb)
            )
            raise HostError(
                f"{phase.name} needs {counted(phase.environments, 'environment')} at once: "
                f"{phase.environments:,} × "
                f"{plan.memory_mb:,} MB{beside} = {needed_mb:,} MB, and {there}.",
                f"--workers {fits} fits, or a smaller --memory." if fits else "choose a smaller --memory.",
            )


def _fits(phase: ResidentPhase, plan: Plan, budgets_mb: Sequence[int]) -> bool:
    """Return whether the hosts have room for the phase; each environment is on one of them.

    Of several hosts, what is beside is counted as whole environments: it may consist of parts as large as these.
    """
    places = sum(budget_mb // plan.memory_mb for budget_mb in budgets_mb)
    beside = math.ceil(phase.beside_mb / plan.memory_mb) if len(budgets_mb) > 1 else 0
    needed_mb = phase.environments * plan.memory_mb + phase.beside_mb
    return phase.environments + beside <= places and needed_mb <= sum(budgets_mb)


def _all_fit(plan: Plan, architecture: Architecture, workers: int, budgets_mb: Sequence[int]) -> bool:
    """Return whether there is room for the plan with another number of workers."""
    smaller = replace(plan, workers=workers)
    return all(_fits(phase, smaller, budgets_mb) for phase in architecture.resident_set(smaller))
