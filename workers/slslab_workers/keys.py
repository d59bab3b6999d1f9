"""Names of a run's objects: everything lies below the run's own prefix, so that runs never meet."""

from slslab_workers.plan import Plan

# What the authors' code calls an architecture in the names of its logs, where that is another name.
LOGGED_AS = {"allreduce": "all_reduce", "scatterreduce": "scatter_reduce"}


def minibatch_key(plan: Plan, epoch: int, step: int, rank: int) -> str:
    """Key of a worker's minibatch."""
    return f"{plan.run}/data/e{epoch}/s{step}/{rank}"


def state_key(plan: Plan, rank: int) -> str:
    """Key of a worker's state between two invocations."""
    return f"{plan.run}/state/{rank}"


def model_key(plan: Plan, epoch: int) -> str:
    """Key of rank 0's parameters and buffers after an epoch."""
    return f"{plan.run}/model/{epoch}"


def result_key(plan: Plan, rank: int) -> str:
    """Key of a worker's result."""
    return f"{plan.run}/results/{rank}"


def log_key(plan: Plan, rank: int) -> str:
    """Key of a worker's log, named as in the authors' code (protocol reference 1.5)."""
    return f"{plan.run}/logs/{LOGGED_AS.get(plan.architecture, plan.architecture)}_worker_{rank}_log.txt"


def validation_key(plan: Plan) -> str:
    """Key of the images that SPIRT's convergence check judges by."""
    return f"{plan.run}/validation"


def verdict_key(plan: Plan, epoch: int) -> str:
    """Key of what the driver says after an epoch to workers that stay: whether there is another."""
    return f"{plan.run}/verdicts/{epoch}"
