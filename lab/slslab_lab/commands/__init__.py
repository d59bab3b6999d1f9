"""The commands that make runs, and read, repeat and compare them."""
