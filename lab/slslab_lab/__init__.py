"""The lab: makes runs, and reads, replays, checks and compares them."""
