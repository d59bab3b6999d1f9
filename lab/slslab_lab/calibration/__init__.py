"""Profiles fitted to recorded runs, or to CloudWatch logs."""
