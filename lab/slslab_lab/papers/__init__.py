"""Published figures, and the arithmetic that recomputes them."""
