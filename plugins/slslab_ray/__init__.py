"""Execution environments on the nodes of a Ray cluster that their owners have started."""
