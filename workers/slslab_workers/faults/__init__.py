"""Faults in a run: the plan, and their injection into a worker's process."""
