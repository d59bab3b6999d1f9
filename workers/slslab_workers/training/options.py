"""Options of training that several architectures offer. Where one lacks an option, its default holds."""

from slslab_workers.option import Option

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
OPTIMISER = Option(
    "optimiser",
    str,
    "sgd",
    "sgd with the plan's momentum and weight decay, or adam.",
    ("sgd", "adam"),
)
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
    "or kept, which are disjoint and the same in all epochs.",
    ("disjoint", "overlapping", "kept"),
)
