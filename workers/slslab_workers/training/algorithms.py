"""LambdaML's algorithms: their options, and what workers exchange and when; `training/local.py` has the arithmetic.

GA-SGD exchanges the gradient of each minibatch. MA-SGD and ADMM train locally for some epochs and then exchange their
models. EM (k-means) assigns all rows of a worker and exchanges the resulting sums or centroids (docs/protocols.md,
"Algorithms"). Importing this module does not import torch.
"""

from collections.abc import Callable, Mapping

from slslab_workers.channels.choice import traced
from slslab_workers.models import exchanged_buffers, spec_of
from slslab_workers.option import Option
from slslab_workers.patterns import (
    BUILD,
    CONNECT,
    MESSAGE,
    MINIBATCH,
    RECEIVE,
    UPDATE,
    Activity,
    Part,
    Role,
    Signal,
    Workload,
    trainer,
)
from slslab_workers.plan import Plan, PlanError, Value
from slslab_workers.training.options import COMBINE
from slslab_workers.training.released_log import LOG_TRAFFIC, Blocks, logged_steps

ALGORITHM = Option(
    "algorithm",
    str,
    "ga",
    "What is exchanged: ga the gradient of each minibatch; ma (model averaging) the model after --local-passes epochs; "
    "admm, for lr and svm, also the dual variables; em, for kmeans, each cluster's rows after each epoch.",
    ("ga", "ma", "admm", "em"),
)
LOCAL_PASSES = Option("local-passes", int, 1, "Epochs that a worker trains alone between two exchanges (ma and admm).")
RHO = Option("rho", float, 0.01, "ADMM's weight of the distance from the consensus.")
LAMBDA = Option("lambda", float, 0.01, "ADMM's weight of the consensus's L1 norm.")
ADMM_PENALTY = Option(
    "admm-penalty",
    str,
    "squared",
    "ADMM's penalty ρ/2·‖w + u − z‖²; norm is the distance itself, not squared, as in LambdaML's code.",
    ("squared", "norm"),
)
CLUSTERS = Option("clusters", int, 10, "Clusters of kmeans; the first are rank 0's first rows.")
CENTROIDS = Option(
    "centroids",
    str,
    "weighted",
    "Centroids become the means of all workers' rows (weighted), or of their centroids (equal), as in LambdaML's code.",
    ("weighted", "equal"),
)
THRESHOLD = Option("threshold", float, 1e-4, "EM ends when the centroids move less than this in an epoch, on average.")
SYNCHRONISATION = Option(
    "synchronisation",
    str,
    "bsp",
    "bsp waits for all workers in each exchange. s-asp doesn't wait: a worker replaces the global model by its own, "
    "and continues with the replaced one.",
    ("bsp", "s-asp"),
)
OPTIONS = (ALGORITHM, SYNCHRONISATION, LOCAL_PASSES, RHO, LAMBDA, ADMM_PENALTY, CLUSTERS, CENTROIDS, THRESHOLD)
# ADMM's messages have one intercept for each of two classes, as in the paper.
LINEAR_CLASSES = 2
# Options that only one algorithm has.
OWN_OPTIONS = {"admm": (RHO, LAMBDA, ADMM_PENALTY), "em": (CLUSTERS, CENTROIDS, THRESHOLD)}


def trains_locally(options: Mapping[str, Value]) -> bool:
    """Return whether workers train by themselves between two exchanges."""
    return ALGORITHM.of(options) != "ga" or is_asynchronous(options)


def is_em(options: Mapping[str, Value]) -> bool:
    """Return whether EM clusters one fixed set: workers keep their samples, and training may end before its last epoch,
    when the centroids hardly move."""
    return ALGORITHM.of(options) == "em"


def is_asynchronous(options: Mapping[str, Value]) -> bool:
    """Return whether workers take the current global model without waiting for each other."""
    return SYNCHRONISATION.of(options) == "s-asp"


def exchange_every(options: Mapping[str, Value], batches: int) -> int:
    """Return the number of steps from one exchange to the next; an epoch has `batches` steps."""
    return 1 if ALGORITHM.of(options) == "ga" else batches * int(LOCAL_PASSES.of(options))


def message_length(options: Mapping[str, Value], parameters: int) -> int:
    """Return how many float32 numbers a worker sends in one exchange, for a model of this size."""
    match ALGORITHM.of(options):
        case "admm":
            # w and its dual variables, and an intercept for each class.
            return 2 * parameters - LINEAR_CLASSES
        case "em":
            # Sums and row counts; or means and how far they moved.
            return parameters + (int(CLUSTERS.of(options)) if CENTROIDS.of(options) == "weighted" else 1)
        case _:
            return parameters


def largest_bytes(plan: Plan, chunks: int = 1) -> int:
    """Return the bytes of the largest exchanged object if messages are cut into `chunks`."""
    parameters = spec_of(plan).parameters + exchanged_buffers(plan)
    first = parameters if ALGORITHM.of(plan.options) == "em" else 0
    return 4 * max(first, -(-message_length(plan.options, parameters) // chunks))


def role(ranks: range, workload: Workload, exchange: Callable[[int, Part], Blocks]) -> Role:
    """Return the role of these workers, which repeat a cycle of local steps and steps that end with an exchange.

    `exchange` returns the blocks of an exchange. It takes the step's number and the part that uses the aggregate.
    """
    algorithm, every = ALGORITHM.of(workload.options), exchange_every(workload.options, workload.batches)
    local = () if algorithm == "em" else (UPDATE,)

    def step(number: int) -> Blocks:
        if not trains_locally(workload.options):
            return exchange(number, UPDATE)
        return ((*local, MESSAGE), *exchange(number, RECEIVE)) if (number + 1) % every == 0 else (local,)

    steps = logged_steps(workload, step, every)
    return trainer(ranks, workload.parameters, *steps, start=_start(workload, root=0 in ranks))


def _start(workload: Workload, *, root: bool) -> tuple[Part, ...]:
    """Return the parts before a worker's first step: connect, build, and with EM share the first centroids."""
    if ALGORITHM.of(workload.options) != "em":
        return (CONNECT, BUILD)
    size, channel = 4 * workload.parameters, traced(workload.options)
    first = Signal("first model", each="run", key="{run}/{architecture}/first")
    if root:
        put = Activity(f"{channel}.put", "synchronise", bytes=size, makes=(first,), protocol=True)
        return (CONNECT, BUILD, *MINIBATCH[:2], put)
    get = Activity(f"{channel}.get", "synchronise", bytes=size, needs=(first,), polling="get", protocol=True)
    return (CONNECT, BUILD, get)


def check(plan: Plan) -> None:
    """Raise PlanError if the algorithm doesn't fit the plan's model, epochs or other options."""
    algorithm, passes = str(ALGORITHM.of(plan.options)), int(LOCAL_PASSES.of(plan.options))
    for owner, own in OWN_OPTIONS.items():
        for option in own:
            if algorithm != owner and option.of(plan.options) != option.default:
                raise PlanError(
                    f"--{option.name} does not apply to --algorithm {algorithm}.", f"it is an option of {owner}."
                )
    if passes != 1 and algorithm not in ("ma", "admm"):
        raise PlanError(f"--local-passes does not apply to --algorithm {algorithm}.", "it is an option of ma and admm.")
    if (algorithm == "em") != bool(spec_of(plan).clusters):
        raise PlanError(
            f"--algorithm {algorithm} does not train {plan.model}: EM is for the model kmeans, and only EM trains it.",
            "choose --model kmeans with --algorithm em, or neither.",
        )
    if algorithm in ("admm", "em") and is_asynchronous(plan.options):
        raise PlanError(
            f"--algorithm {algorithm} needs the messages of all workers, and s-asp waits for none.",
            "choose ga or ma, or --synchronisation bsp.",
        )
    if not trains_locally(plan.options):
        return
    if passes < 1 or plan.epochs % passes:
        raise PlanError(
            f"With --local-passes {passes} the last of {plan.epochs} epochs does not end with an exchange.",
            "choose a number of epochs that can be divided by the local passes.",
        )
    if COMBINE.of(plan.options) != "mean" or LOG_TRAFFIC.of(plan.options):
        raise PlanError(
            "Workers exchange models here, so rules and the log traffic of gradients don't apply.",
            "leave out --as-released, --combine and --log-traffic.",
        )
    if algorithm == "admm":
        _check_admm(plan)
    if algorithm == "em":
        _check_em(plan)


def _check_admm(plan: Plan) -> None:
    rho, weight = float(RHO.of(plan.options)), float(LAMBDA.of(plan.options))
    known = spec_of(plan)
    # A linear model has a weight for each feature and output, and an intercept for each output.
    if known.tensors != 2 or known.parameters != known.outputs * (known.features + 1):
        raise PlanError(
            f"ADMM is for convex losses, and {plan.model} is a neural network.", "choose --model lr or svm."
        )
    if known.outputs != LINEAR_CLASSES:
        raise PlanError(
            f"ADMM is written for {LINEAR_CLASSES} classes, and {plan.model} has {known.outputs} outputs.",
            "choose --algorithm ga or ma.",
        )
    if rho < 0 or weight < 0 or (rho == 0 and weight > 0):
        raise PlanError(
            f"With --rho {rho:g} and --lambda {weight:g} ADMM has no consensus.",
            "choose numbers of at least 0, and a rho above 0 unless lambda is 0.",
        )


def _check_em(plan: Plan) -> None:
    clusters, of_model = int(CLUSTERS.of(plan.options)), spec_of(plan).clusters
    if clusters != of_model:
        raise PlanError(
            f"The model {plan.model} has {of_model} clusters, and --clusters is {clusters}.", "make them equal."
        )
    if clusters > plan.batch_size:
        raise PlanError(
            f"The first of {clusters} centroids are rows of one minibatch, and it has {plan.batch_size}.",
            f"choose --batch-size {clusters} or more, or fewer --clusters.",
        )
