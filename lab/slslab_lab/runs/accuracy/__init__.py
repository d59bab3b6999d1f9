"""Accuracy curves: what an architecture learns, in one process."""
