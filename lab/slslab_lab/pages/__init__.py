"""Reports: a run's document, for people to read."""
