"""Make a run, from its plan to its document."""
