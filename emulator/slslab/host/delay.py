"""Measure how long a busy host kept runnable threads waiting."""

from slslab.host.procfs import Sample, ThreadTimes

ACTIVE_FRACTION = 0.05
UNSTARTED = ThreadTimes(0, 0)


def host_delay_ns(before: Sample, after: Sample) -> int:
    """Return how long a busy host kept threads waiting between two samples, ns: the mean over active threads."""
    wall = after.wall_ns - before.wall_ns
    delays, active = 0, 0
    for thread, times in after.threads.items():
        earlier = before.threads.get(thread, UNSTARTED)
        delay = times.delay_ns - earlier.delay_ns
        delays += delay
        active += times.cpu_ns - earlier.cpu_ns + delay > ACTIVE_FRACTION * wall
    throttled = max(0, after.throttled_ns - before.throttled_ns)
    waited = max(0, delays - throttled)
    return min(wall, waited // max(1, active))


def busiest_ns(before: Sample, after: Sample) -> int:
    """Return the CPU time of the busiest thread between two samples, ns."""
    used = (times.cpu_ns - before.threads.get(thread, UNSTARTED).cpu_ns for thread, times in after.threads.items())
    return max(used, default=0)
