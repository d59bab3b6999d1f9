"""Tables and figures of papers, made again: published, recomputed, measured and modelled side by side."""

# The models of Table 2 of Barrak et al.
MODELS = ("mobilenet", "resnet18")
