"""Profiles of platforms: latencies, bandwidths and speeds, each with its source."""

# What a run takes on AWS is modelled on this profile, unless another one is named.
DEFAULT_PROFILE = "aws-us-east-1-2026-11"
