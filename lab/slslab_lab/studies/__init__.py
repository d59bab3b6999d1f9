"""Papers' tables and figures made again: published, recomputed, measured and modelled figures side by side."""

from pathlib import Path

from slslab.errors import RunError

# The models of Table 2 of Barrak et al.
NAMES = {"mobilenet": "MobileNet", "resnet18": "ResNet-18"}
MODELS = tuple(NAMES)
# The project's own recordings and curves: in a wheel next to this package, in a checkout at the repository's root.
FOLDERS = (Path(__file__).parents[1] / "recorded", Path(__file__).resolve().parents[3] / "results")

RECORD = "record them with --fidelity sampled."
# The project's own recordings and curves: what each folder contains, and how to make it.
COMMITTED = {
    "table2": ("recordings of Table 2", RECORD),
    "lambdaml-table1": ("recordings of LambdaML's Table 1", RECORD),
    "atlas": ("recordings of the atlas", "record them: slslab atlas --record --recordings DIR."),
    "accuracy": ("accuracy curves", "make them with slslab accuracy ARCH, such as allreduce."),
}


def committed(name: str) -> Path:
    """Return one of the folders of COMMITTED; RunError if it is missing."""
    return find_committed(name, *COMMITTED[name])


def find_committed(name: str, what: str, hint: str) -> Path:
    """Return the path of the project's own data with this name; RunError if they don't exist."""
    for folder in FOLDERS:
        if (folder / name).exists():
            return folder / name
    raise RunError(f"There are no {what}.", hint)
