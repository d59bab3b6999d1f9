"""Names of a run's objects. All start with the run's prefix, so runs never share an object."""

from slslab_workers.plan import Plan

# The end of the key of the global model, which workers replace without waiting for each other.
GLOBAL = "global"
# The driver's verdicts.
GO_ON, STOP = b"go on", b"stop"


class Key:
    """A kind of key or queue of a run: `key(plan, rank=0, …)` is the name of one.

    The template's fields are the run and the named values.
    """

    def __init__(self, template: str) -> None:
        self._template = template

    def __call__(self, plan: Plan, **values: int | str) -> str:
        """Return the name; KeyError unless there is a value for each field."""
        return self._template.format(run=plan.run, **values)


# A worker's minibatch.
minibatch_key = Key("{run}/data/e{epoch}/s{step}/{rank}")
# A worker's state between two invocations.
state_key = Key("{run}/state/{rank}")
# Rank 0's parameters and buffers after an epoch.
model_key = Key("{run}/model/{epoch}")
# A worker's result.
result_key = Key("{run}/results/{rank}")
# A worker's log, named as in the authors' code (docs/protocols.md, "As released").
log_key = Key("{run}/logs/{logged_as}_worker_{rank}_log.txt")
# The images on which workers check whether they have converged.
validation_key = Key("{run}/validation")
# The driver's verdict after an epoch: whether workers that stay train another.
verdict_key = Key("{run}/verdicts/{epoch}")
# The object with rank 0's address, for its peers.
rendezvous_key = Key("{run}/rendezvous")
# The global model of an architecture, which all workers replace (S-ASP).
global_key = Key(f"{{run}}/{{architecture}}/{GLOBAL}")
