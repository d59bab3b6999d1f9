"""Profiles of platforms: latencies, bandwidths and speeds, each with its source."""
