"""The options that decide which aggregator adds what, and the names of a round's objects."""

from slslab_workers.gradssharding.topology import TOPOLOGIES, Aggregator, Levels, levels
from slslab_workers.option import Option
from slslab_workers.plan import Plan

UPLOADED = "uploaded"
UNWEIGHTED = "unweighted"
TOPOLOGY = Option(
    "topology",
    str,
    "shards",
    "Layout of aggregators: shards, GradsSharding's function for each slice of all gradients; lambda-fl, leaves and a "
    "root; lifl, three levels.",
    TOPOLOGIES,
)
SHARDS = Option("shards", int, 4, "Slices of a gradient, each with a function of its own (topology shards), M.")
GRADIENTS = Option(
    "gradients",
    str,
    "trained",
    "Where gradients come from: trained by clients, which are functions and update with the mean; or uploaded by the "
    "driver, random ones that aren't used for updates.",
    ("trained", UPLOADED),
)
AVERAGING = Option(
    "averaging",
    str,
    "weighted",
    "What LIFL's levels pass on: weighted, sums, so that the root makes the mean; unweighted, averages, which give the "
    "mean only if all groups are equally large.",
    ("weighted", UNWEIGHTED),
    released=UNWEIGHTED,
)


def tree_of(plan: Plan) -> Levels:
    """Return the aggregators of the plan's rounds, level by level."""
    return levels(str(plan.options["topology"]), plan.workers, shards_of(plan))


def shards_of(plan: Plan) -> int:
    """Return how many slices a gradient is stored in; 1 if it is stored whole."""
    return int(plan.options["shards"]) if plan.options["topology"] == "shards" else 1


def divisor(one: Aggregator, tree: Levels, averaging: str) -> int:
    """Return an aggregator's divisor: the number of clients on the last level, else 1.

    LIFL's divide by the number of their inputs on every level if `averaging` is unweighted.
    """
    if len(tree) == 3 and averaging == UNWEIGHTED:
        return len(one.inputs)
    return one.clients if one.level == len(tree) else 1


def round_prefix(plan: Plan, position: int) -> str:
    """Return the prefix of the keys of a round's objects; `position` counts the run's steps."""
    epoch, step = divmod(position, plan.batches)
    return f"{plan.run}/gradssharding/e{epoch}/s{step}/"


def gradient_key(plan: Plan, position: int, client: int, shard: int) -> str:
    """Return the key of a slice of a client's gradient. All rounds share uploaded ones."""
    uploaded = plan.options["gradients"] == UPLOADED
    prefix = f"{plan.run}/gradssharding/uploaded/" if uploaded else round_prefix(plan, position)
    return f"{prefix}{client}/{shard}"


def output_key(plan: Plan, position: int, level: int, number: int) -> str:
    """Return the key of an aggregator's output."""
    return f"{round_prefix(plan, position)}level{level}/{number}"


def mean_keys(plan: Plan, position: int) -> list[str]:
    """Return the keys of a round's mean, slice by slice."""
    tree = tree_of(plan)
    return [output_key(plan, position, len(tree), one.number) for one in tree[-1]]
