"""Papers' tables and figures made again: published, recomputed, measured and modelled figures side by side."""

from pathlib import Path

from slslab.errors import RunError

# The models of Table 2 of Barrak et al.
NAMES = {"mobilenet": "MobileNet", "resnet18": "ResNet-18"}
MODELS = tuple(NAMES)
# The project's own recordings and curves: in a wheel next to this package, in a checkout at the repository's root.
FOLDERS = (Path(__file__).parents[1] / "recorded", Path(__file__).resolve().parents[3] / "results")


def committed(name: str) -> Path:
    """Return the path of one of the project's own recordings or results; RunError if it is missing."""
    for folder in FOLDERS:
        if (folder / name).exists():
            return folder / name
    raise RunError(f"The project's own {name} is missing.", "make it with its command in results/README.md.")
