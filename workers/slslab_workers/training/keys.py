"""Names of a run's objects. All start with the run's prefix, so runs never share an object."""

from slslab_workers.plan import Plan

# The end of the key of the global model, which workers replace without waiting for each other.
GLOBAL = "global"
# The driver's verdicts.
GO_ON, STOP = b"go on", b"stop"


def minibatch_key(plan: Plan, epoch: int, step: int, rank: int) -> str:
    """Return the key of a worker's minibatch."""
    return f"{plan.run}/data/e{epoch}/s{step}/{rank}"


def state_key(plan: Plan, rank: int) -> str:
    """Return the key of a worker's state between two invocations."""
    return f"{plan.run}/state/{rank}"


def model_key(plan: Plan, epoch: int) -> str:
    """Return the key of rank 0's parameters and buffers after an epoch."""
    return f"{plan.run}/model/{epoch}"


def result_key(plan: Plan, rank: int) -> str:
    """Return the key of a worker's result."""
    return f"{plan.run}/results/{rank}"


def global_key(plan: Plan) -> str:
    """Return the key of the global model, which all workers replace (S-ASP)."""
    return f"{plan.run}/{plan.architecture}/{GLOBAL}"


def log_key(plan: Plan, rank: int, logged_as: str) -> str:
    """Return the key of a worker's log, named as in the authors' code (docs/protocols.md, "As released")."""
    return f"{plan.run}/logs/{logged_as}_worker_{rank}_log.txt"


def validation_key(plan: Plan) -> str:
    """Return the key of the images on which workers check whether they have converged."""
    return f"{plan.run}/validation"


def verdict_key(plan: Plan, epoch: int) -> str:
    """Return the key of the driver's verdict after an epoch: whether workers that stay train another."""
    return f"{plan.run}/verdicts/{epoch}"


def rendezvous_key(plan: Plan) -> str:
    """Return the key of the object with rank 0's address, for its peers."""
    return f"{plan.run}/rendezvous"
