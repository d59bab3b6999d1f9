"""Rules that every run must obey, about messages, times, the bill and leftovers (docs/checks.md)."""
