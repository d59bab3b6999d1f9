"""Parameter averaging (local SGD): workers train on their own and average their models every few steps, over S3."""

from slslab_workers.driver.deployment import FunctionArchitecture
from slslab_workers.option import Option
from slslab_workers.patterns import UPDATE, Activity, Pattern, Signal, Workload, trainer

EVERY = Option("every", int, 5, "Steps between two averages.")
MODEL = Signal("model", key="{run}/parameter-averaging/e{epoch}/s{step}/{maker}")


def pattern(workload: Workload) -> Pattern:
    """Return who sends what: every k steps everybody puts its model and gets those of all others."""
    others, size, every = workload.workers - 1, 4 * workload.parameters, int(workload.options["every"])
    put = Activity("object.put", "synchronise", bytes=size, makes=(MODEL,), protocol=True)
    get = Activity("object.get", "synchronise", others, others * size, needs=(MODEL,), polling="get", protocol=True)
    average = (put, get, Activity("reduce", "synchronise", work=(others + 1) * size))
    steps = ((UPDATE,),) * (every - 1) + ((UPDATE, *average),)
    return Pattern(workload, (trainer(range(workload.workers), workload.parameters, *steps),))


class ParameterAveraging(FunctionArchitecture):
    """Another architecture: what it is called, its options, what it sends, and the function of its workers."""

    name = "parameter-averaging"
    summary = "Parameter averaging over S3: every worker trains on its own, and all average their models every K steps."
    options = (EVERY,)
    messages = staticmethod(pattern)
    handler = "own.handlers.handler"


architecture = ParameterAveraging()
