"""The options that decide who adds up what, and the names of a round's objects."""

from slslab_workers.gradssharding.topology import TOPOLOGIES, Aggregator, Levels, levels
from slslab_workers.option import Option
from slslab_workers.plan import Plan

UPLOADED = "uploaded"
TOPOLOGY = Option(
    "topology",
    str,
    "shards",
    "Who adds up what: shards, GradsSharding's function for each slice of all gradients; lambda-fl, leaves and a root; "
    "lifl, three levels.",
    TOPOLOGIES,
)
SHARDS = Option("shards", int, 4, "Slices of a gradient, each with a function of its own (topology shards), M.")
GRADIENTS = Option(
    "gradients",
    str,
    "trained",
    "Where gradients come from: trained by clients that are functions, and update with the mean; uploaded by the "
    "driver, random ones, which nobody updates with.",
    ("trained", UPLOADED),
)
AVERAGING = Option(
    "averaging",
    str,
    "weighted",
    "What LIFL's levels hand on: weighted, sums, so that the root makes the mean; unweighted, averages, whose average "
    "is the mean only where all groups are equally large.",
    ("weighted", "unweighted"),
    released="unweighted",
)


def tree_of(plan: Plan) -> Levels:
    """Return the aggregators of the plan's rounds, level by level."""
    return levels(str(plan.options["topology"]), plan.workers, shards_of(plan))


def shards_of(plan: Plan) -> int:
    """Return how many slices a gradient is stored in; 1 where it is stored whole."""
    return int(plan.options["shards"]) if plan.options["topology"] == "shards" else 1


def divisor(one: Aggregator, tree: Levels, averaging: str) -> int:
    """Return what an aggregator divides its sum by: all clients if it is of the last level, else 1.

    With `unweighted` averages LIFL's divides by the number of its inputs, on every level.
    """
    if len(tree) == 3 and averaging == "unweighted":
        return len(one.inputs)
    return one.clients if one.level == len(tree) else 1


def round_prefix(plan: Plan, position: int) -> str:
    """Return what the keys of a round's objects begin with; `position` counts the run's steps."""
    epoch, step = divmod(position, plan.batches)
    return f"{plan.run}/gradssharding/e{epoch}/s{step}/"


def gradient_key(plan: Plan, position: int, client: int, shard: int) -> str:
    """Return the key of a slice of a client's gradient. Uploaded ones are the same in all rounds."""
    uploaded = plan.options["gradients"] == UPLOADED
    prefix = f"{plan.run}/gradssharding/uploaded/" if uploaded else round_prefix(plan, position)
    return f"{prefix}{client}/{shard}"


def output_key(plan: Plan, position: int, level: int, number: int) -> str:
    """Return the key of what an aggregator stores."""
    return f"{round_prefix(plan, position)}level{level}/{number}"


def mean_keys(plan: Plan, position: int) -> list[str]:
    """Return the keys of a round's mean, slice by slice."""
    tree = tree_of(plan)
    return [output_key(plan, position, len(tree), one.number) for one in tree[-1]]
