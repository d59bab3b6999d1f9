"""Published figures, and what can be recomputed from them."""
