"""Refuse plans that need more memory than this host or one of AWS has, or more concurrency than the account allows."""

import math
import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace

from slslab.errors import HostError, RequestError, counted
from slslab.lambda_.hosts import terms
from slslab_lab.replay.memory import shortages
from slslab_lab.runs.platforms import limits_of
from slslab_workers.architecture import Architecture, ResidentPhase
from slslab_workers.models import spec_of
from slslab_workers.plan import Plan

Say = Callable[[str], None]


def admit_concurrency(plan: Plan, architecture: Architecture) -> None:
    """Raise RequestError if the plan needs more concurrent functions than the account or platform allows."""
    most, needed = limits_of(plan).account_concurrency, architecture.concurrency(plan)
    if needed <= most or architecture.requirements(plan).instances is not None:
        return
    owner = ("account", plan.account) if plan.platform is None else ("platform", plan.platform)
    fits = _most_workers(plan, lambda fewer: architecture.concurrency(fewer) <= most)
    fewer = f"--workers {fits} or fewer" if fits else "fewer --workers and --batches"
    raise RequestError(
        f"{plan.architecture} needs {counted(needed, 'function')} at once, but the {' '.join(owner)} allows only "
        f"{most:,} concurrent functions.",
        f"choose {fewer}, or another --{owner[0]}.",
    )


def admit_hosts(plan: Plan, architecture: Architecture, say: Say) -> None:
    """Raise RequestError if a cache or database on AWS has too little memory for the plan; `say` it if it may have."""
    for shortage in shortages(architecture, plan, spec_of(plan).parameters):
        if shortage.is_certain:
            raise RequestError(shortage.message, shortage.hint)
        say(f"Warning: {shortage.message} Hint: {shortage.hint}")


def print_warning(line: str) -> None:
    """Print a line on stderr."""
    print(line, file=sys.stderr)


def admit(plan: Plan, architecture: Architecture, budgets_mb: Sequence[int]) -> None:
    """Raise HostError, with the arithmetic, if the plan doesn't fit into the hosts' memory for functions."""
    there = f"there are {terms(budgets_mb)} MB for functions"
    for phase in architecture.resident_set(plan):
        if not _fits(phase, plan, budgets_mb):
            needed_mb = phase.environments * plan.memory_mb + phase.beside_mb
            if not phase.environments:
                raise HostError(
                    f"{phase.name} needs {needed_mb:,} MB, but {there}.",
                    f"an option may lower that: slslab run {plan.architecture} --help",
                )
            beside = f" + {phase.beside_mb:,} MB of smaller functions and databases" if phase.beside_mb else ""
            fits = _most_workers(
                plan, lambda fewer: all(_fits(each, fewer, budgets_mb) for each in architecture.resident_set(fewer))
            )
            raise HostError(
                f"{phase.name} needs {counted(phase.environments, 'environment')} at once: "
                f"{phase.environments:,} × "
                f"{plan.memory_mb:,} MB{beside} = {needed_mb:,} MB, but {there}.",
                f"--workers {fits} fits, or a smaller --memory." if fits else "choose a smaller --memory.",
            )


def _fits(phase: ResidentPhase, plan: Plan, budgets_mb: Sequence[int]) -> bool:
    """Return whether the phase fits into the hosts' memory; each environment runs on one host.

    With several hosts, `beside_mb` is rounded up to whole environments, because its parts may be that large.
    """
    most = sum(budget_mb // plan.memory_mb for budget_mb in budgets_mb)
    beside = math.ceil(phase.beside_mb / plan.memory_mb) if len(budgets_mb) > 1 else 0
    needed_mb = phase.environments * plan.memory_mb + phase.beside_mb
    return phase.environments + beside <= most and needed_mb <= sum(budgets_mb)


def _most_workers(plan: Plan, fits: Callable[[Plan], bool]) -> int:
    """Return the largest number of workers, fewer than the plan's, with which it fits; 0 if none does."""
    return bisect_left(range(1, plan.workers), True, key=lambda workers: not fits(replace(plan, workers=workers)))
