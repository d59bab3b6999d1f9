"""Replay: the Lambda timeline of a recorded run, and of runs that were never made, out of a trace alone."""
