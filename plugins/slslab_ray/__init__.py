"""Execution environments on the nodes of a Ray cluster, which their owners have started."""
