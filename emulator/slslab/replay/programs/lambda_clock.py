"""The Lambda clock in a recording: what a worker would have measured had the host not held it up."""

from slslab.replay.programs.recording import Event


def lambda_clock_ns(event: Event) -> int:
    """Return an event's duration on the Lambda clock, ns: its wall time less the host delay within it."""
    return int(event["end_ns"] - event["start_ns"] - event["host_delay_ns"])
