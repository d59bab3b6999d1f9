"""Provide profiles of platforms: latencies, bandwidths and speeds, each with its source."""

# The profile that models AWS, unless another one is named.
DEFAULT_PROFILE = "aws-us-east-1-2026-11"
