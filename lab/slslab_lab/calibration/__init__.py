"""Profiles fitted to a running host, to recorded runs, or to CloudWatch logs."""
