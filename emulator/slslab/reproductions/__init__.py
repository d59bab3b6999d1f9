"""Tables and figures of papers, made again: published, recomputed, measured and modelled side by side."""

from pathlib import Path

# The models of Table 2 of Barrak et al.
MODELS = ("mobilenet", "resnet18")
# The project's own recordings and curves: in a wheel beside the package, in a checkout at the repository's root.
FOLDERS = (Path(__file__).parents[1] / "recorded", Path(__file__).resolve().parents[3] / "results")
