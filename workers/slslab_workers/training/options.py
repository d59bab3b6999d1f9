"""Training options that several architectures offer. An architecture without an option uses its default."""

from slslab_workers.option import Option
from slslab_workers.plan import Plan
from slslab_workers.training import partitions

# Other partitions are uneven, see `slslab_workers.training.partitions`.
EVEN = ("disjoint", "overlapping", "kept")


def uneven(plan: Plan) -> str | None:
    """Return the plan's uneven partition; None if all workers have equally many samples of the same kind."""
    chosen = str(PARTITION.of(plan.options))
    return None if chosen in EVEN else chosen


COMBINE = Option(
    "combine",
    str,
    "mean",
    "What becomes of all workers' gradients: mean divides their sum by the number of workers, sum leaves it as it is; "
    "the others withstand Byzantine workers (docs/byzantine.md).",
    (
        *("mean", "sum", "median", "trimmed-mean", "krum", "multi-krum", "meamed", "geometric-median"),
        *("centred-clipping", "zeno"),
    ),
)
OPTIMISER = Option("optimiser", str, "sgd", "sgd with the plan's momentum and weight decay, or adam.", ("sgd", "adam"))
REPLICAS = Option(
    "replicas",
    str,
    "seeded",
    "Initial models: seeded gives every worker the same; unseeded gives each its own, as the authors' code does.",
    ("seeded", "unseeded"),
)
PARTITION = Option(
    "partition",
    str,
    "disjoint",
    "The workers' training samples: disjoint slices of one shuffle an epoch; overlapping ones as in the authors' code; "
    "kept, which are disjoint and the same in all epochs. Uneven ones are kept, too: dirichlet:ALPHA draws each "
    "worker's share of each class, labels:K gives it K classes, sizes:A,B,... are the workers' sizes.",
    check_text=lambda text: text in EVEN or partitions.parse(text),
)
