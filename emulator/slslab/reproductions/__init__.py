"""Tables and figures of papers, made again: published, recomputed, measured and modelled side by side."""
