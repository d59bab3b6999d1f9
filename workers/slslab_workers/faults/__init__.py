"""Faults that a run is to meet: their plan, and what makes them happen in a worker's process."""
