"""Tables and figures of papers, made again: published, recomputed, measured and modelled side by side."""

from pathlib import Path

from slslab.errors import RunError

# The models of Table 2 of Barrak et al.
MODELS = ("mobilenet", "resnet18")
# The project's own recordings and curves: in a wheel beside the package, in a checkout at the repository's root.
FOLDERS = (Path(__file__).parents[1] / "recorded", Path(__file__).resolve().parents[3] / "results")


def find_committed(name: str, what: str, hint: str) -> Path:
    """Return where the project's own data of this name are; RunError if there are none."""
    for folder in FOLDERS:
        if (folder / name).exists():
            return folder / name
    raise RunError(f"There are no {what}.", hint)
