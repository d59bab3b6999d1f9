"""Compute one function at many points, in this process, on all cores of this host, or on a Ray cluster."""
