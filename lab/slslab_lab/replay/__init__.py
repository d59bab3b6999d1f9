"""Replay: the Lambda timeline of a recorded run, and of runs that were never made, from a trace alone."""
